"""Tables from finished cells: means, refusals, formats."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from bacon_gcd.benchmark import cells as cells_module
from bacon_gcd.benchmark.cells import read_result, write_result
from bacon_gcd.benchmark.formats import FORMATS, render
from bacon_gcd.benchmark.tables import check_means, make_table, paired
from bacon_gcd.config import UserError
from tests.benchmark.grids import grid_in, invented, keep, quick_request, real_result

KEY = ("GCD", "planted")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return real_result(tmp_path_factory.mktemp("cell"))


def filled(tmp_path, result, values, **changes):
    """A grid whose GCD cells of seed 0, 1, ... have these accuracies."""
    grid, request = grid_in(tmp_path), quick_request("gcd", "kmeans", seeds=range(len(values)))
    gcd = [cell for cell in request.cells() if cell.settings.method == "gcd"]
    keep(grid, *(invented(result, c, all=v, **changes) for c, v in zip(gcd, values, strict=True)))
    return grid, request


def table_of(grid, request):
    return make_table(request.tables()[0], request, grid)


def test_a_number_is_the_mean_over_seeds_with_its_sample_deviation(tmp_path, result):
    table = table_of(*filled(tmp_path, result, [40.0, 44.0, 51.0]))
    number = table.number(KEY, "all")
    assert number.mean == pytest.approx(45.0)
    assert number.std == pytest.approx(np.std([40, 44, 51], ddof=1))
    assert number.seeds == 3
    assert "**45.0 ± 5.6**" in render(table, "md")


def test_what_was_not_run_is_said(tmp_path, result):
    text = render(table_of(*filled(tmp_path, result, [40.0])), "md")
    assert "1 of 2 cells are run. Not run: k-means (untrained), planted: seed 0." in text
    assert "| k-means (untrained) | – | – | – |" in text


def test_a_difference_is_paired_by_seed():
    told = paired([1.0, 2.0, 3.0])
    assert told.mean == 2.0
    assert told.half == pytest.approx(4.303 / 3**0.5, abs=1e-3)  # t of two degrees of freedom
    assert told.sign == 0
    assert paired([2.0, 2.1, 1.9]).sign == 1
    assert paired([1.0]).half is None


@pytest.mark.parametrize(
    ("what", "changed"),
    [("backbone", "other"), ("split", "other"), ("protocol", "other")],
)
def test_cells_that_do_not_compare_are_refused_with_the_difference(tmp_path, result, what, changed):
    grid, request = filled(tmp_path, result, [40.0, 41.0])
    second = next(c for c in request.cells() if c.settings.seed == 1)
    other = invented(result, second, identity=result.identity | {what: changed})
    keep(grid, other)
    with pytest.raises(UserError, match=f"cannot be in one table: .* {changed} and"):
        table_of(grid, request)


def test_scores_that_do_not_add_up_are_refused(tmp_path, result):
    grid, _ = filled(tmp_path, result, [40.0])
    path = next(grid.results.glob("*gcd*"))
    stored = read_result(path)
    block = stored.blocks["test_kmeans"] | {"all": 41.0}
    with pytest.raises(UserError, match=r"has all 41\.0, but old 50\.0 and new 30\.0"):
        check_means(replace(stored, blocks=stored.blocks | {"test_kmeans": block}))


def test_an_edited_result_is_refused_by_its_hash(tmp_path, result):
    grid, request = filled(tmp_path, result, [40.0])
    path = next(grid.results.glob("*gcd*"))
    path.write_text(path.read_text().replace('"all": 40.0', '"all": 60.0'))
    with pytest.raises(UserError, match="changed since it was written: hash"):
        table_of(grid, request)


def test_a_damaged_result_names_the_file(tmp_path, result):
    grid, request = filled(tmp_path, result, [40.0])
    path = next(grid.results.glob("*gcd*"))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=f"{path.name}: not a result of a benchmark"):
        table_of(grid, request)


def test_a_block_placed_by_another_version_is_shown_as_not_run(tmp_path, result, monkeypatch):
    grid, request = filled(tmp_path, result, [40.0])
    assert table_of(grid, request).number(KEY, "all", "placed") is not None
    monkeypatch.setattr(cells_module, "ENGINE", result.engine + 1)
    table = table_of(grid, request)
    assert table.number(KEY, "all", "placed") is None
    assert table.number(KEY, "all").mean == 40.0


def test_a_result_of_an_earlier_format_is_refused_with_both_numbers(tmp_path, result):
    path = write_result(tmp_path, replace(result, format=1))
    with pytest.raises(UserError, match="result format 1 is not 2"):
        read_result(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_shows_ours_and_the_paper(tmp_path, result, kind):
    grid, request = filled(tmp_path, result, [40.0, 42.0])
    text = render(table_of(grid, request), kind, against="GCD")
    assert "41.0" in text
    assert "GCD" in text


def test_the_paper_stands_beside_ours(tmp_path, result):
    from bacon_gcd.benchmark.grid import Request

    grid = grid_in(tmp_path)
    request = Request(("table2",), "vectors", datasets=("cifar100-lt",), methods=("gcd",))
    (cell,) = request.cells()
    keep(grid, invented(result, cell, all=40.0))
    text = render(table_of(grid, request), "md")
    assert "| GCD | **50.0** (65.5) | **30.0** (49.0) | **40.0** (62.2) |" in text
    assert "trained with ImageNet labels" in text
    assert "seeds 0; protocol vectors 1" in text


def test_json_is_for_programs(tmp_path, result):
    value = json.loads(render(table_of(*filled(tmp_path, result, [40.0])), "json"))
    gcd = next(s for s in value["scores"] if (s["row"], s["score"]) == ("GCD", "new"))
    assert gcd == {
        "row": "GCD",
        "column": "planted",
        "score": "new",
        "mean": 30.0,
        "std": None,
        "seeds": 1,
        "paper": None,
    }


def test_csv_has_every_number_with_what_it_depends_on(tmp_path, result):
    text = render(table_of(*filled(tmp_path, result, [40.0, 42.0])), "csv")
    lines = list(csv.DictReader(text.splitlines()))
    found = {line["score"]: line for line in lines if line["row"] == "GCD"}
    expected = ["old", "new", "all", "by name: all", "placed: new", "NMI", "s per epoch"]
    assert set(expected) <= set(found)
    assert float(found["all"]["mean"]) == 41.0
    assert found["all"]["seeds"] == "2"
    assert {(line["backbone"], line["epochs"], line["protocol"]) for line in lines} == {
        ("planted vectors", "4", "quick 1")
    }


def test_a_result_survives_being_written_and_read(tmp_path, result):
    path = write_result(tmp_path, result)
    again = read_result(path)
    assert again.content() == result.content()
    assert again.run_settings.flat() == result.settings
