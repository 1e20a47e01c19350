"""Figures from finished cells."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.benchmark.experiments import find_experiment
from bacon_gcd.benchmark.figures import FIGURES, Source, draw, feature_points
from bacon_gcd.benchmark.measures import alignment, uniformity
from bacon_gcd.benchmark.runner import run_grid
from bacon_gcd.benchmark.tables import make_table
from bacon_gcd.config import UserError
from bacon_gcd.report.charts import style_of
from tests.benchmark.grids import grid_in, quick_request


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    grid = grid_in(tmp_path_factory.mktemp("figures"))
    request = quick_request("bacon-s", "kmeans", "anchored-kmeans")
    cells = [cell for cell in request.cells() if cell.settings.preset != "recommended"]
    outcome = run_grid(request, cells, grid, data=None, tell=lambda line: None)
    assert not outcome.failed
    return Source(make_table(request.table(find_experiment("table2")), request, grid), grid, None)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_written_as_png_and_svg(name, source, tmp_path):
    png, svg = draw(name, source, tmp_path / name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in svg.read_bytes()


def test_the_same_figure_is_the_same_file(source, tmp_path):
    first, second = (draw("alignment", source, tmp_path / name) for name in ("first", "second"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_without_cells_the_line_says_what_to_run(tmp_path):
    grid, request = grid_in(tmp_path), quick_request("gcd")
    empty = Source(make_table(request.tables()[0], request, grid), grid, None)
    with pytest.raises(UserError, match="run some with: bacon benchmark run table2"):
        draw("curves", empty, tmp_path / "curves")


def test_no_two_of_24_lines_look_alike():
    assert len({tuple(style_of(number).values()) for number in range(24)}) == 24


def test_alignment_is_the_mean_squared_distance_inside_a_class():
    rng = np.random.default_rng(0)
    features = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(12, 5))), dim=1)
    classes = np.repeat([0, 1, 2], 4)
    by_hand = [
        np.mean(
            [
                float((features[i] - features[j]).square().sum())
                for i in np.flatnonzero(classes == c)
                for j in np.flatnonzero(classes == c)
                if i != j
            ]
        )
        for c in range(3)
    ]
    assert alignment(features, classes) == pytest.approx(np.mean(by_hand))


def test_uniformity_is_lower_for_spread_features():
    spread = torch.eye(6)
    together = torch.nn.functional.normalize(torch.eye(6) + 5, dim=1)
    assert uniformity(spread) == pytest.approx(-4.0)  # all pairs at squared distance 2
    assert uniformity(spread) < uniformity(together)


def with_cells(source, label, *cells):
    """The same with other cells of a row."""
    kept = dict(source.table.cells) | {(label, "planted"): cells}
    return replace(source, table=replace(source.table, cells=kept))


def test_estimates_of_class_counts_are_drawn_in_the_order_of_epochs(source):
    (cell,) = source.table.cells["BaCon-S", "planted"]
    sizes = cell.counts["true"]
    stored = cell.counts | {"estimated": {"0": sizes, "14": sizes, "8": sizes}}
    figure = FIGURES["counts"](with_cells(source, "BaCon-S", replace(cell, counts=stored)))
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["true", "epoch 0", "epoch 8", "epoch 14"]


def test_errors_of_class_counts_are_drawn_from_zero(source):
    (axis,) = FIGURES["count-errors"](source).axes
    assert axis.get_ylim()[0] == 0


def test_methods_on_the_same_features_are_one_point(source):
    assert list(feature_points(source)) == [
        "BaCon-S",
        "k-means (untrained)\nanchored k-means (untrained)",
    ]


def test_the_model_of_another_seed_is_taken_where_the_first_is_not_kept(source):
    label = "k-means (untrained)"
    (kept,) = source.table.cells[label, "planted"]
    gone = replace(kept, name="a cell without a folder")
    method, _ = with_cells(source, label, gone, kept).trained(label)
    assert method.headline == "test_kmeans"
    with pytest.raises(UserError, match="its model is not kept here"):
        with_cells(source, label, gone).trained(label)
