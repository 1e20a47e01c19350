"""Counting classes: known answers on planted clusters with a long tail."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.classes.number import MergeTree, count_classes, merge_tree
from bacon_gcd.classes.parts import Parts, count_novel, fold_errors, pair_score
from bacon_gcd.config import UserError


def plant(n_classes, n_known, *, n_max=60, ratio=10, spread=0.5, share=0.5, seed=0):
    """Unit rows around random directions, class sizes from n_max down to n_max / ratio."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, 32))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    sizes = n_max * ratio ** (-rng.permutation(n_classes) / max(n_classes - 1, 1))
    true = np.repeat(np.arange(n_classes), sizes.astype(int))
    rows = centers[true] + spread * rng.normal(size=(len(true), 32)) / np.sqrt(32)
    labels = np.where((true < n_known) & (rng.random(len(true)) < share), true, -1)
    return torch.nn.functional.normalize(torch.from_numpy(rows).float(), dim=1), labels


@pytest.mark.parametrize("n_classes", [6, 10, 30])
@pytest.mark.parametrize("share_known", [0.0, 0.5, 0.7])
def test_the_interval_covers_a_planted_long_tail(n_classes, share_known):
    features, labels = plant(n_classes, int(share_known * n_classes))
    found = count_classes(features, labels, seed=0)
    assert found.interval[0] <= found.estimate <= found.interval[1]
    assert abs(found.estimate - n_classes) <= max(0.15 * n_classes, 1)


def test_the_other_counts_are_told_beside_it():
    features, labels = plant(10, 5)
    assert count_classes(features, labels, seed=0).beside.keys() == {
        "silhouette",
        "agglomerative",
        "labels",
    }
    none = count_classes(features, np.full(len(labels), -1), seed=0)
    assert none.beside.keys() == {"silhouette", "agglomerative"}


def test_an_allowed_range_is_kept():
    features, labels = plant(10, 5)
    found = count_classes(features, labels, seed=0, allowed=(14, 16))
    assert (found.estimate, found.interval) == (14, (14, 14))
    assert count_classes(features, labels, seed=0, allowed=(12, 12)).estimate == 12


def test_when_all_are_labeled_there_is_nothing_to_guess():
    features, labels = plant(6, 6, share=1.1)
    found = count_classes(features, labels, seed=0)
    assert (found.estimate, found.interval) == (6, (6, 6))


def test_identical_rows_are_one_class():
    found = count_classes(torch.ones(20, 4) / 2, np.full(20, -1), seed=0)
    assert (found.estimate, found.interval) == (1, (1, 1))


def test_rows_without_clear_clusters_get_many_small_classes_and_a_wide_interval():
    rows = torch.nn.functional.normalize(
        torch.randn(400, 64, generator=torch.Generator().manual_seed(0)), dim=1
    )
    found = count_classes(rows, np.full(400, -1), seed=0)
    assert found.estimate == 10  # a quarter of 2 sqrt(400) over-clusters
    assert found.interval[0] < 10 < 30 < found.interval[1]


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5])
def test_a_handful_of_rows_is_counted(n_rows):
    rows = torch.eye(8)[:n_rows]
    found = count_classes(rows, np.full(n_rows, -1), seed=0)
    assert 1 <= found.estimate <= n_rows


def test_one_label_per_class_still_bounds_the_number_from_below():
    features, labels = plant(6, 6)
    first = [np.flatnonzero(labels == c)[0] for c in range(6)]
    lone = np.full(len(labels), -1)
    lone[first] = np.arange(6)
    assert count_classes(features, lone, seed=0).estimate >= 6


def test_pairs_together_and_apart_by_hand():
    assert pair_score(np.array([[4, 0], [0, 3]])) == 1
    # One part: all pairs kept (2 of 2), and 2 ordered pairs of whole classes mixed.
    assert pair_score(np.array([[4, 3]])) == pytest.approx(2 * 2 / (2 * 2 + 2))
    # The first class in halves: it keeps 4 of its 12 ordered pairs.
    assert pair_score(np.array([[2, 0], [2, 0], [0, 3]])) == pytest.approx(
        2 * (1 / 3 + 1) / (2 * (1 / 3 + 1) + 2 / 3)
    )


def test_a_class_of_one_label_can_only_be_mixed():
    assert pair_score(np.array([[4, 0], [0, 1]])) == 1
    assert pair_score(np.array([[4, 1]])) < 1


def on_a_circle(sizes, hits, degrees):
    """Parts of two known classes, by their place on a circle."""
    turns = np.deg2rad(degrees)
    return Parts(np.array(sizes), np.array(hits), np.column_stack([np.cos(turns), np.sin(turns)]))


def test_parts_without_their_share_of_labels_are_novel():
    hits = [[5, 0], [0, 4], [0, 0], [0, 1]]
    parts = on_a_circle([10, 8, 9, 10], hits, [0, 90, 180, 270])
    assert parts.claimed(0.6).tolist() == [True, True, False, False]
    assert parts.claimed(0.1).tolist() == [True, True, False, True]
    unlabeled = on_a_circle([4, 4], [[0, 0], [0, 0]], [0, 90])
    assert not unlabeled.claimed(0.6).any()


def test_novel_parts_are_merged_as_far_as_known_ones():
    # Two parts of each known class lie 10 degrees apart, so do two pairs of novel parts.
    known = [[5, 0], [5, 0], [0, 5], [0, 5]]
    degrees = [0, 10, 60, 70, 120, 130, 200, 210]
    parts = on_a_circle([10] * 8, known + [[0, 0]] * 4, degrees)
    assert count_novel(parts, 0.5).best == 2
    apart = on_a_circle([10] * 8, known + [[0, 0]] * 4, [*degrees[:4], 120, 165, 210, 255])
    assert count_novel(apart, 0.5).best == 4
    lone = on_a_circle([*[10] * 8, 1], known + [[0, 0]] * 5, [*degrees, 300])
    assert count_novel(lone, 0.5).best == 2, "a part of one image is no class"


def test_classes_held_out_as_if_novel_are_counted_right_when_parts_are_classes():
    degrees = np.repeat(np.arange(6) * 60.0, 2) + np.tile([0.0, 6.0], 6)
    hits = np.repeat(4 * np.eye(6, dtype=int), 2, axis=0)
    turns = np.deg2rad(degrees)
    parts = Parts(hits.sum(axis=1), hits, np.column_stack([np.cos(turns), np.sin(turns)]))
    np.testing.assert_array_equal(fold_errors(parts, np.arange(6), seed=0), 0)


def test_every_cut_of_the_tree_is_a_coarsening_of_the_next():
    features, unlabeled = plant(6, 0)
    tree = merge_tree(features, unlabeled, seed=0)
    finer = tree.cut(tree.n_parts)
    np.testing.assert_array_equal(finer, tree.members)
    for n_parts in range(tree.n_parts - 1, 0, -1):
        cut = tree.cut(n_parts)
        assert len(np.unique(cut)) == n_parts
        assert len({(int(a), int(b)) for a, b in zip(cut, finer, strict=True)}) == n_parts + 1
        finer = cut
    with pytest.raises(UserError, match="1 to"):
        tree.cut(tree.n_parts + 1)


def test_the_tree_cut_at_the_planted_number_is_the_planted_classes():
    features, true = plant(5, 5, share=1.1, ratio=4, spread=0.3)
    tree = merge_tree(features, np.full(len(true), -1), seed=0)
    assert len({(int(a), int(b)) for a, b in zip(tree.cut(5), true, strict=True)}) == 5


def test_a_tree_is_cut_as_its_merges_say():
    tree = MergeTree(np.array([0, 1, 2, 0]), np.array([[0, 2, 0.5, 2], [1, 3, 0.75, 3]]))
    np.testing.assert_array_equal(tree.cut(2), [1, 0, 1, 1])


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 40), st.integers(0, 3), st.integers(0, 10))
def test_the_estimate_is_possible_whatever_the_data(n_rows, n_known, seed):
    rng = np.random.default_rng(seed)
    rows = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(n_rows, 5))).float())
    labels = np.full(n_rows, -1)
    labels[:n_known] = np.arange(n_known)
    found = count_classes(rows, labels, seed=seed)
    assert max(n_known, 1) <= found.interval[0] <= found.estimate <= found.interval[1] <= n_rows
