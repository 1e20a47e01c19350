"""Where k-means stops, seeds and fills empty clusters; ids, ties and defaults, by hand."""

import numpy as np
import pytest
import torch

from bacon_gcd import cluster
from bacon_gcd.cluster import (
    ClassEstimate,
    add_centroids,
    as_ids,
    estimate_n_classes,
    kmeans,
    match,
    squared_distances,
)
from bacon_gcd.config import UserError
from tests.reference.clustering import semi_supervised_kmeans


def column(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None]


def unlabeled(n_rows):
    return torch.full((n_rows,), -1)


def one_cluster(shift, **limits):
    """Anchored rounds of one cluster that starts so far from the mean of its two rows."""
    rows = column(4 + shift, 6 + shift)
    options = {"labels": unlabeled(2), "n_init": 1, "seed": 0, "start": column(5.0)}
    return kmeans(rows, 1, **options, **limits).n_iterations


# Ids and matching


def test_ids_are_not_copied_and_may_carry_a_gradient():
    ids = np.array([3, 1])
    assert np.shares_memory(as_ids(ids), ids)
    assert as_ids(torch.tensor([[2.0], [1.0]], requires_grad=True)).tolist() == [2, 1]


def test_one_cluster_matches_one_class_and_nothing_matches_nothing():
    assert match(np.array([0, 0]), np.array([0, 0]), 1).tolist() == [0]
    assert match(np.array([], int), np.array([], int), 2).tolist() == []


def test_negative_ids_are_refused():
    with pytest.raises(UserError, match=r"cluster ids -1\.\.0 are not all in 0\.\.0"):
        match(np.array([-1, 0]), np.array([0, 1]), 2)


def test_a_row_is_at_no_distance_from_itself():
    rows = column(0.0, 0.5)
    assert squared_distances(rows, rows).tolist() == [[0.0, 0.25], [0.25, 0.0]]


# Where it stops


def slow_lloyd(rows, centers, tolerance, most):
    """Iterations until the squared shift is within tolerance x variance, or no row moves."""
    still, shift = tolerance * rows.var(axis=0).mean(), np.inf
    done, before = 0, None
    while done < most:
        labels = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        if np.array_equal(labels, before) or shift <= still:
            break
        updated = np.stack([rows[labels == c].mean(axis=0) for c in range(len(centers))])
        shift, centers, before, done = ((updated - centers) ** 2).sum(), updated, labels, done + 1
    return done


@pytest.mark.parametrize("tolerance", [0.0, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("most", [1, 300])
def test_lloyd_stops_as_the_slow_one_does(tolerance, most):
    line = np.sort(np.random.default_rng(0).uniform(0, 900, size=900))
    rows = np.stack([line, 0.1 * line, 0.0 * line], axis=1)
    start = rows[:3].copy()
    options = {"n_init": 1, "seed": 0, "start": torch.from_numpy(start), "tolerance": tolerance}
    found = kmeans(rows, 3, **options, max_iterations=most)
    assert found.n_iterations == slow_lloyd(rows, start, tolerance, most)


def test_lloyd_takes_at_most_300_iterations():
    rows = torch.arange(1500.0)[:, None]
    found = kmeans(rows, 30, n_init=1, seed=0, start=rows[:30], tolerance=0.0)
    assert found.n_iterations == 300


def test_anchored_rounds_are_ten_at_most_and_as_many_as_asked():
    rows = torch.arange(20_000.0)[:, None]
    options = {"labels": unlabeled(len(rows)), "n_init": 1, "seed": 0, "start": rows[:2]}
    for most, done in ((None, 10), (3, 3), (0, 0)):
        assert kmeans(rows, 2, **options, max_iterations=most).n_iterations == done


def test_anchored_rounds_end_when_the_squared_shift_is_below_the_tolerance():
    assert one_cluster(0.012) == 2  # 1.44e-4 is not below 1e-4: a second round, which is better
    assert one_cluster(0.005) == 1
    assert one_cluster(0.5, tolerance=0.25) == 2
    assert one_cluster(0.0, tolerance=0.0) == 1  # of equally good rounds the first


# Empty clusters


def test_the_inertia_does_not_count_a_row_that_fills_an_empty_cluster():
    rows, start = column(0.0, 0.1, 0.2, 10.0, 10.1, 30.0), column(0.0, 10.0, 1000.0)
    found = kmeans(rows, 3, n_init=1, seed=0, start=start, max_iterations=0)
    assert found.inertia == pytest.approx(0.06, rel=1e-3)


def test_one_cluster_fills_two_empty_ones():
    start = column(0.0, 1000.0, 2000.0)
    found = kmeans(column(0.0, 0.1, 0.3), 3, n_init=1, seed=0, start=start, max_iterations=0)
    assert found.labels.tolist() == [0, 2, 1]
    pair = kmeans(column(0.0, 0.1), 2, n_init=1, seed=0, start=start[:2], max_iterations=0)
    assert pair.labels.tolist() == [0, 1]


def test_a_lone_row_stays_though_it_is_the_farthest():
    rows, start = column(0.0, 0.1, 50.0), column(0.0, 40.0, 1000.0)
    found = kmeans(rows, 3, n_init=1, seed=0, start=start, max_iterations=0)
    assert found.labels.tolist() == [0, 2, 1]


def test_only_an_unlabeled_row_fills_an_empty_cluster():
    rows, labels = column(0.0, 100.0, 0.1, 0.5, 0.2), torch.tensor([0, 0, -1, -1, -1])
    start = column(0.0, 1000.0)
    found = kmeans(rows, 2, labels=labels, n_init=1, seed=0, start=start, max_iterations=1)
    assert found.labels.tolist() == [0, 0, 0, 1, 0]


# Seeds


def test_the_first_centroid_is_any_row_the_last_one_too():
    rows = torch.arange(6.0)[:, None]
    runs = (kmeans(rows, 1, n_init=1, seed=seed, max_iterations=0) for seed in range(60))
    assert {run.centroids.item() for run in runs} == set(range(6))


def test_rows_at_no_distance_are_not_drawn_not_even_by_the_smallest_or_largest_number():
    everyone = torch.ones(4, dtype=torch.bool)
    distances = torch.tensor([0.0, 1e-3, 3e-3, 0.0])
    drawn = cluster._draw(distances, everyone, np.array([0.0, 0.24, 0.26, 1.0]))
    assert drawn.tolist() == [1, 1, 2, 2]
    evenly = cluster._draw(torch.zeros(4), everyone, np.array([0.0, 0.3, 1.0]))
    assert evenly.tolist() == [0, 1, 3]


def test_an_added_centroid_is_one_draw_by_squared_distance():
    rows, among = column(0.0, 1.0, 3.0, 9.0), torch.tensor([True, True, True, False])
    drawn = set()
    for seed in range(40):
        found = add_centroids(rows, column(0.0), 2, among=among, seed=seed)
        near = np.random.default_rng(seed).random() * 10 < 1  # squares 0, 1, 9
        assert found.tolist() == [[0.0], [1.0 if near else 3.0]]
        drawn.add(near)
    assert drawn == {True, False}


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_one_labeled_row_is_where_its_class_starts_at_any_scale(scale):
    rows = scale * np.random.default_rng(3).normal(size=(24, 3)).astype(np.float32)
    labels = np.array([0, 1, 2, *[-1] * 21])
    for seed in range(4):
        slow = semi_supervised_kmeans(rows.astype(float), labels, 5, n_init=1, seed=seed, rounds=1)
        found = kmeans(rows, 5, labels=labels, n_init=1, seed=seed, max_iterations=1)
        assert (found.labels == slow[1]).all()


def test_rows_that_are_all_labeled_are_their_classes():
    rows, labels = column(0.0, 1.0, 5.0, 7.0), np.array([0, 0, 1, 1])
    found = kmeans(rows, 2, labels=labels, n_init=1, seed=0)
    assert found.labels.tolist() == labels.tolist()
    assert found.centroids[:, 0].tolist() == [0.5, 6.0]


# The number of classes


def test_of_equally_good_candidates_the_middle_one_wins_and_close_ones_are_told():
    three = cluster._best({2: 90.0, 3: 91.0, 4: 91.0, 5: 91.0, 6: 89.9})
    assert (three.n_classes, three.interval) == (4, (2, 5))
    four = cluster._best({2: 91.0, 3: 91.0, 4: 91.0, 5: 91.0})
    assert four.n_classes == 3


def test_the_first_class_alone_is_a_basis_for_an_estimate():
    labels = np.array([0, 0, -1, -1])
    found = estimate_n_classes(column(0.0, 0.1, 5.0, 5.1), labels, low=1, high=2, seed=0)
    assert found.accuracies == {1: 100.0, 2: 100.0}
    assert found.n_classes == 1


def test_accuracies_are_in_percent_of_the_labeled_rows():
    rows, labels = column(0.0, 0.1, 0.2, 9.0), np.array([0, 0, 1, -1])
    assert estimate_n_classes(rows, labels, low=1, high=1, seed=0).accuracies[1] == pytest.approx(
        200 / 3
    )


def test_an_estimate_runs_kmeans_once_per_candidate_unless_told_otherwise():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(200, 2)).astype(np.float32), rng.integers(0, 30, size=200)
    once, twice = (
        estimate_n_classes(rows, labels, low=25, high=40, seed=0, **n).accuracies
        for n in ({"n_init": 1}, {"n_init": 2})
    )
    assert estimate_n_classes(rows, labels, low=25, high=40, seed=0).accuracies == once
    assert once != twice


def test_accuracies_are_too_many_for_the_text_of_an_estimate():
    assert repr(ClassEstimate(3, (2, 4), {3: 1.0})) == "ClassEstimate(n_classes=3, interval=(2, 4))"
