"""The experiments of the paper as data."""

from dataclasses import replace

import pytest

from bacon_gcd.benchmark.experiments import EXPERIMENTS, contradictions, find_experiment
from bacon_gcd.benchmark.formats import render
from bacon_gcd.benchmark.grid import Grid, Request, sharded
from bacon_gcd.benchmark.protocols import PROTOCOLS
from bacon_gcd.benchmark.tables import facts_line, make_table
from bacon_gcd.config import UserError
from bacon_gcd.methods import METHODS
from bacon_gcd.methods.base import Task


def cell_name(experiment, row, column, **request):
    table = find_experiment(experiment)
    asked = Request((experiment,), "vectors", **request)
    rows = [each.label for each in table.rows]
    found = next(each for each in table.columns if each.label == column)
    return asked.cell(table, rows.index(row), found, 0).name


def test_every_table_ablation_and_study_of_the_paper_is_there():
    tables = ["table1", "table2", "table3", "table4"]
    ablations = [f"ablation-{letter}" for letter in "abcdef"]
    assert list(EXPERIMENTS) == [*tables, *ablations, "e1", "e2", "e3"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_number_of_the_paper_has_a_row_and_a_column(name):
    experiment = EXPERIMENTS[name]
    assert set(experiment.printed) <= {row.label for row in experiment.rows}
    for columns in experiment.printed.values():
        assert set(columns) <= {column.label for column in experiment.columns}


def test_numbers_are_those_of_the_paper():
    table = EXPERIMENTS["table3"]
    row = next(row for row in table.rows if row.label == "OpenCon")
    told = table.number(row, table.columns[0])
    assert (told["known_many"], told["novel_few"], told["novel_std"]) == (86.8, 15.3, 17.7)
    e3 = EXPERIMENTS["e3"]
    row = next(row for row in e3.rows if row.label == "BaCon-O")
    assert e3.number(row, e3.columns[3]) == {"old": 65.3, "new": 54.4, "all": 63.1}


def test_where_the_paper_contradicts_itself_is_found():
    found = "\n".join(contradictions())
    assert "bacon-s on cifar100-lt, all: 67.2 in Table 2" in found
    assert "67.6 in ablation (c)" in found
    assert "balanced, ImageNet-100-LT: all 58.3" in found
    assert "BaCon-O, 30 %: all 62.3" in found
    assert len(contradictions()) == 9


def test_tables_share_the_runs_they_have_in_common():
    shared = cell_name("table2", "GCD", "CIFAR-100-LT")
    assert shared == cell_name("table4", "GCD", "ratio 100")
    assert shared == cell_name("e1", "GCD", "80 known") == cell_name("e3", "GCD", "unlabeled 100")
    assert shared != cell_name("e1", "GCD", "50 known")
    assert cell_name("ablation-f", "k = 0", "CIFAR-100-LT") == cell_name(
        "ablation-b", "sampling", "CIFAR-100-LT"
    )


def test_a_seed_decides_the_training_and_not_the_split():
    table = find_experiment("table2")
    cells = [
        Request(("table2",), "vectors").cell(table, 5, table.columns[1], seed) for seed in (0, 1)
    ]
    assert [cell.settings.seed for cell in cells] == [0, 1]
    assert [cell.settings.split.seed for cell in cells] == [0, 0]


def test_another_image_size_is_another_cell_that_its_command_and_table_name(tmp_path):
    asked = Request(("table2",), "vectors", datasets=("cifar100-lt",), methods=("gcd",))
    (own,), other = asked.cells(), replace(asked, image_size=96)
    (cell,) = other.cells()
    assert (own.settings.image_size, cell.settings.image_size) == (128, 96)
    assert own.name != cell.name
    assert "--image-size 96" in other.command_of(cell)
    table = make_table(other.tables()[0], other, Grid(tmp_path, tmp_path / "results"))
    assert "resnet18.pypi_in1k at 96 px (trained on ImageNet-1k with labels)" in facts_line(table)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_can_run_every_method(protocol):
    table = find_experiment("table2").narrowed(datasets=["cifar100-lt"])
    rules = PROTOCOLS[protocol]
    for row in table.rows:
        settings = rules.settings(row, table.columns[0], backbone="resnet18.pypi_in1k", seed=0)
        assert settings.method in METHODS
        assert settings.recipe.epochs == (0 if "kmeans" in row.method else rules.epochs)


def test_shards_hold_every_cell_once():
    cells = Request(("table2",), "vectors", seeds=(0, 1)).cells()
    parts = [cell.name for i in range(1, 6) for cell in sharded(cells, f"{i}/5")]
    assert sorted(parts) == sorted(cell.name for cell in cells)


@pytest.mark.parametrize("shard", ["0/4", "5/4", "3", "a/b", "1/"])
def test_a_shard_that_is_none_is_one_line(shard):
    with pytest.raises(UserError, match="such as 3/16"):
        sharded([], shard)


def test_a_folder_of_ones_own_becomes_a_column():
    table = find_experiment("table2").narrowed(
        datasets=["folder:photos"], split={"known": 0.5, "ratio": 50.0}
    )
    assert [c.dataset for c in table.columns] == ["folder:photos"]
    assert table.columns[0].split == {"known": 0.5, "ratio": 50.0}
    assert table.number(table.rows[0], table.columns[0]) == {}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"experiments": ("table9",)}, "experiment 'table9' is not known; choose from table1"),
        ({"methods": ("gdc",)}, "method 'gdc' is not known; choose from abc"),
        ({"datasets": ("cifar",)}, "dataset 'cifar' is not known; choose from cifar10-lt"),
        ({"protocol": "tails"}, "protocol 'tails' is not known; choose from paper, tail"),
        ({"protocol": "quick", "image_size": 96}, "planted vectors; leave out .* --image-size"),
        ({"split": {"ratio": 50.0}}, "--ratio: name the dataset it is for with --datasets"),
    ],
)
def test_a_name_that_is_not_known_is_one_line_with_the_choices(change, line):
    with pytest.raises(UserError, match=line):
        Request(**{"experiments": ("table2",)} | change).cells()


def test_the_note_on_intervals_is_true_and_stands_above_the_table(tmp_path):
    task = Task(
        n_classes=2,
        n_known=1,
        labeled_counts=(1,),
        n_images=2,
        n_epochs=PROTOCOLS["vectors"].epochs,
    )
    assert [task.scaled(r) for r in (1, 5, 10, 25, 50)] == [1, 1, 2, 4, 8]
    request = Request(("ablation-d",), "vectors")
    table = make_table(request.tables()[0], request, Grid(tmp_path, tmp_path / "results"))
    assert "in 30 epochs r = 1 and r = 5 both estimate before every epoch" in render(table, "md")
