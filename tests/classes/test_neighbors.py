"""Neighbors: exactly those of a full comparison, or nearly so by cells."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes import neighbors
from bacon_gcd.classes.neighbors import exact_neighbors, nearest, neighbors_by_cells


def clustered(n, *, dim=16, n_clusters=30, spread=0.6):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n_clusters, dim))
    rows = centers[rng.integers(n_clusters, size=n)] + spread * rng.normal(size=(n, dim))
    return torch.nn.functional.normalize(torch.from_numpy(rows).float(), dim=1)


def test_small_sets_are_compared_all_with_all():
    features = clustered(50)
    cosines = (features @ features.T).fill_diagonal_(-2)
    expected = cosines.argsort(dim=1, descending=True)[:, :6]
    np.testing.assert_array_equal(nearest(features), expected.numpy())


def test_a_chunk_boundary_changes_nothing(monkeypatch):
    features = clustered(50)
    whole = nearest(features)
    monkeypatch.setattr(neighbors, "CHUNK", 7)
    np.testing.assert_array_equal(nearest(features), whole)


def test_cells_find_nearly_all_neighbors_of_clustered_rows():
    features = clustered(6000)
    exact = nearest(features)
    found = neighbors_by_cells(features, n_neighbors=6, seed=0)
    hits = [len({*a} & {*b}) / 6 for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    assert np.mean(hits) >= 0.95
    assert not (found == np.arange(6000)[:, None]).any()


def test_large_sets_go_by_cells(monkeypatch):
    features = clustered(500)
    monkeypatch.setattr(neighbors, "EXACT_BELOW", 400)
    by_cells = neighbors_by_cells(features, n_neighbors=6, seed=0)
    np.testing.assert_array_equal(nearest(features), by_cells)


def test_equal_rows_fill_no_cell_beyond_its_limit():
    features = torch.nn.functional.normalize(torch.ones(3000, 4), dim=1)
    cells = neighbors._cells(features, seed=0)
    assert max(len(rows) for rows in cells) <= 4 * neighbors.CELL_ROWS
    assert sorted(np.concatenate(cells).tolist()) == list(range(3000))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_rows_have_as_many_neighbors_as_there_are_others(n):
    assert nearest(clustered(n)).shape == (n, n - 1)


def test_rows_beside_others_may_be_their_own_copies():
    rows = torch.eye(3)
    np.testing.assert_array_equal(exact_neighbors(rows, rows, n_neighbors=1), [[0], [1], [2]])
    assert exact_neighbors(rows[:0], rows, n_neighbors=2).shape == (0, 2)


def test_of_many_rows_only_so_many_cosines_are_held_at_once(monkeypatch):
    features, held = clustered(400), []
    whole = exact_neighbors(features, features, n_neighbors=6, first=0)
    monkeypatch.setattr(neighbors, "MOST_COSINES", 400 * 9)
    topk = torch.Tensor.topk
    monkeypatch.setattr(
        torch.Tensor, "topk", lambda rows, *a, **b: held.append(rows.numel()) or topk(rows, *a, **b)
    )
    found = exact_neighbors(features, features, n_neighbors=6, first=0)
    some = neighbors.neighbors_of(features, np.arange(0, 400, 7), n_neighbors=6)
    assert max(held) == 400 * 9
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(some, whole[::7])


@pytest.mark.parametrize(("n", "way"), [(19_999, "exact"), (20_000, "cells 0")])
def test_from_20_000_rows_on_neighbors_are_found_by_cells(monkeypatch, n, way):
    monkeypatch.setattr(neighbors, "exact_neighbors", lambda *_, **__: "exact")
    monkeypatch.setattr(neighbors, "neighbors_by_cells", lambda *_, seed, **__: f"cells {seed}")
    assert nearest(torch.zeros(n, 1)) == way


def test_a_chunk_has_at_most_256_rows_and_256_megabytes_of_cosines(monkeypatch):
    assert [neighbors._chunk(n) for n in (0, 1, 2**16, 2**17, 10**6, 10**9)] == [
        256, 256, 256, 256, 67, 1,
    ]  # fmt: skip
    monkeypatch.setattr(neighbors, "MOST_COSINES", 10)
    assert [neighbors._chunk(n) for n in (0, 1, 2)] == [10, 10, 5]


def test_rows_that_begin_later_are_not_their_own_neighbors():
    angles = torch.tensor([0.0, 10, 30, 60, 100]).deg2rad()
    others = torch.stack([angles.cos(), angles.sin()], dim=1)
    found = exact_neighbors(others[2:4], others, n_neighbors=2, first=2)
    assert found.tolist() == [[1, 0], [2, 4]]


def of_cells(monkeypatch, cells, features, *, n_neighbors, compared):
    monkeypatch.setattr(neighbors, "_cells", lambda *_, **__: [np.array(rows) for rows in cells])
    monkeypatch.setattr(neighbors, "COMPARED", compared)
    monkeypatch.setattr(neighbors, "CELL_ROWS", 2)
    return neighbors_by_cells(features, n_neighbors=n_neighbors, seed=0).tolist()


def test_rows_of_a_cell_are_compared_with_those_of_the_nearest_cells(monkeypatch):
    angles = torch.tensor([0.0, 20, 22, 42, 70, 90]).deg2rad()
    features = torch.stack([angles.cos(), angles.sin()], dim=1)
    cells = [[0, 1], [2, 3], [4, 5]]
    alone = of_cells(monkeypatch, cells, features, compared=2, n_neighbors=1)
    assert alone == [[1], [0], [3], [2], [5], [4]]
    two = of_cells(monkeypatch, cells, features, compared=4, n_neighbors=1)
    assert two == [[1], [2], [1], [2], [5], [4]]
    # The second cell is nearer to the first than to the last: no row of the last is looked at.
    both = of_cells(monkeypatch, cells, features, compared=4, n_neighbors=3)
    assert both[3] == [2, 1, 0]


def parts_asked_for(monkeypatch, n_rows):
    asked = []

    def recorded(features, rows, n_parts, *, seed):
        asked.append(n_parts)
        return [rows]

    with monkeypatch.context() as changed:
        changed.setattr(neighbors, "_parts", recorded)
        neighbors._cells(torch.linspace(-1, 1, n_rows)[:, None], seed=0)
    return asked


def test_there_are_as_many_parts_as_cells_in_a_part_and_256_rows_in_a_cell(monkeypatch):
    assert parts_asked_for(monkeypatch, 256 * 300) == [17, 300]
    assert parts_asked_for(monkeypatch, 256 * 25 + 1) == [5, 26]
    assert parts_asked_for(monkeypatch, 20) == [1, 1]


def test_parts_are_the_clusters_of_the_rows():
    features = torch.eye(4)[[0, 1, 2, 3, 0, 1, 2, 3, 0]]
    parts = neighbors._parts(features, np.array([0, 2, 3, 4, 6, 7, 8]), 3, seed=0)
    assert sorted(part.tolist() for part in parts) == [[0, 4, 8], [2, 6], [3, 7]]
    (whole,) = neighbors._parts(features, np.array([5, 1]), 1, seed=0)
    assert whole.tolist() == [5, 1]


def test_the_parts_of_few_rows_are_found_from_all_of_them(monkeypatch):
    given = []
    kmeans = neighbors.kmeans
    monkeypatch.setattr(
        neighbors, "kmeans", lambda rows, *a, **b: given.append(rows) or kmeans(rows, *a, **b)
    )
    features = clustered(30)
    neighbors._parts(features, np.arange(5, 30), 2, seed=0)
    np.testing.assert_array_equal(given[0], features[5:])


def test_a_cell_over_the_limit_is_halved_across_its_longest_axis():
    across = torch.tensor([0.3, -0.3] * 4)
    features = torch.stack([9 + across, torch.tensor([0.0, 7, 1, 6, 2, 5, 3, 4])], dim=1)
    halves = [h.tolist() for h in neighbors._halved(features, np.arange(8), limit=7)]
    assert sorted(sorted(half) for half in halves) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    whole = list(neighbors._halved(features, np.arange(8), limit=8))
    assert [half.tolist() for half in whole] == [list(range(8))]


@pytest.mark.parametrize(("n", "sizes"), [(16, [16]), (17, [8, 9])])
def test_a_cell_has_at_most_four_times_the_usual_rows(monkeypatch, n, sizes):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 4)
    monkeypatch.setattr(neighbors, "_parts", lambda features, rows, n_parts, *, seed: [rows])
    cells = neighbors._cells(torch.ones(n, 2), seed=0)
    assert sorted(len(rows) for rows in cells) == sizes


def test_a_row_is_compared_with_as_many_others_however_many_there_are(monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 8)
    monkeypatch.setattr(neighbors, "COMPARED", 64)
    compared, exact = [], neighbors.exact_neighbors

    def counted(rows, others, **more):
        compared.append(len(others))
        return exact(rows, others, **more)

    monkeypatch.setattr(neighbors, "exact_neighbors", counted)
    for n in (1000, 8000):
        features = clustered(n)
        largest_cell = max(len(rows) for rows in neighbors._cells(features, seed=0))
        compared.clear()
        neighbors_by_cells(features, n_neighbors=6, seed=0)
        of_cells = compared[1:]  # the first are the centers of the cells
        assert min(of_cells) >= 64
        assert max(of_cells) < 64 + largest_cell


@pytest.mark.parametrize("n_columns", [1024, 1039, 3001])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_are_those_of_a_sort(n_columns, sign):
    others = clustered(n_columns)
    rows = others[:20] if sign > 0 else -others[:20]
    expected = (rows @ others.T).argsort(dim=1, descending=True)[:, :7]
    found = neighbors.largest(neighbors.cosines(rows, others), 7)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_columns_that_fill_a_line_of_the_cache_are_nobodys_neighbors():
    others = torch.eye(2)[[0] * 1025]
    values = neighbors.cosines(-torch.eye(2)[:1], others)
    assert values.shape == (1, 1040)
    assert neighbors.largest(values, 60).max() < 1025
    assert not values[:, 1025:].isfinite().any()
