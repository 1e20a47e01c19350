"""Class counts read off clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.config import UserError
from bacon_gcd.distribution import class_counts_from_clusters
from tests.reference.clustering import class_counts


def planted(members, n_labeled):
    """Clusters and labels: members[j] = {class: images}, the first n_labeled[c] of c labeled."""
    clusters, true = [], []
    for j, contents in enumerate(members):
        for c, n in contents.items():
            clusters += [j] * n
            true += [c] * n
    labels, left = [], list(n_labeled)
    for c in true:
        shown = c < len(left) and left[c] > 0
        labels.append(c if shown else -1)
        if shown:
            left[c] -= 1
    return np.array(clusters), np.array(labels)


@pytest.mark.parametrize("rank_match", [True, False])
@pytest.mark.parametrize("cost", ["share", "count"])
def test_planted_clusters_give_the_exact_class_counts(rank_match, cost):
    clusters, labels = planted([{3: 9}, {1: 20}, {2: 14}, {0: 50}], [25, 10])
    counts = class_counts_from_clusters(
        clusters, labels, n_classes=4, n_known=2, rank_match=rank_match, cost=cost
    )
    assert counts.tolist() == [50, 20, 14, 9]
    assert counts.dtype == torch.float32


def test_rank_match_deals_the_matched_sizes_out_by_labeled_counts():
    # Class 0 has most labels but class 1 the larger cluster: the released code swaps the sizes.
    clusters, labels = planted([{0: 30}, {1: 60}, {2: 5}, {3: 8}], [15, 10])
    direct, ranked = (
        class_counts_from_clusters(clusters, labels, n_classes=4, n_known=2, rank_match=r)
        for r in (False, True)
    )
    assert direct.tolist() == [30, 60, 8, 5]
    assert ranked.tolist() == [60, 30, 8, 5]


def test_equal_labeled_counts_are_ranked_by_class_id():
    clusters, labels = planted([{c: 60 - c} for c in range(40)], [6, 5] * 20)
    counts = class_counts_from_clusters(clusters, labels, n_classes=40, n_known=40, rank_match=True)
    assert counts[1::2].tolist() == list(range(21, 41))
    assert counts[0::2].tolist() == list(range(41, 61))


def test_share_and_count_choose_different_clusters():
    # Class 0: 4 labeled among the 40 images of cluster 0, 3 labeled are all of cluster 1.
    clusters = np.array([0] * 40 + [1] * 3 + [2] * 7)
    labels = np.array([0] * 4 + [-1] * 36 + [0] * 3 + [-1] * 7)
    by_share, by_count = (
        class_counts_from_clusters(
            clusters, labels, n_classes=3, n_known=1, rank_match=False, cost=cost
        ).tolist()
        for cost in ("share", "count")
    )
    assert by_share == [3, 40, 7]
    assert by_count == [40, 7, 3]


@pytest.mark.parametrize("rank_match", [True, False])
def test_an_empty_cluster_counts_as_one(rank_match):
    clusters, labels = planted([{0: 6}, {}, {1: 4}], [3, 2])
    counts = class_counts_from_clusters(
        clusters, labels, n_classes=3, n_known=2, rank_match=rank_match
    )
    assert counts.tolist() == [6, 4, 1]


@pytest.mark.parametrize("rank_match", [True, False])
def test_a_known_class_without_labels_takes_a_cluster_nobody_else_claims(rank_match):
    clusters, labels = planted([{0: 6}, {2: 7}, {1: 4}, {3: 7}], [3, 0])
    counts = class_counts_from_clusters(
        clusters, labels, n_classes=4, n_known=2, rank_match=rank_match
    )
    assert sorted(counts.tolist()) == [4, 6, 7, 7]
    if not rank_match:
        assert counts[0] == 6


def test_no_labels_and_no_images_are_defined():
    none = class_counts_from_clusters([1, 1, 0], [-1] * 3, n_classes=2, n_known=0, rank_match=True)
    assert none.tolist() == [2, 1]
    empty = class_counts_from_clusters([], [], n_classes=2, n_known=1, rank_match=True)
    assert empty.tolist() == [1, 1]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 2)), min_size=5, max_size=40),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_counts_are_the_cluster_sizes_whatever_the_labels(rows, rank_match, share):
    clusters, labels = (np.array(column) for column in zip(*rows, strict=True))
    counts = class_counts_from_clusters(
        clusters, labels, n_classes=5, n_known=3, rank_match=rank_match,
        cost="share" if share else "count",
    )  # fmt: skip
    literal = class_counts(
        clusters, labels, n_classes=5, n_known=3, rank_match=rank_match, share=share
    )
    assert sorted(counts.tolist()) == sorted(literal)
    assert counts[3:].tolist() == sorted(counts[3:].tolist(), reverse=True)
    assert counts.min() >= 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rank_match", [True, False])
@pytest.mark.parametrize("share", [True, False])
def test_counts_are_the_literal_ones_where_the_best_assignment_is_unique(seed, rank_match, share):
    rng = np.random.default_rng(seed)
    true = rng.choice(6, size=300, p=np.array([10, 7, 5, 3, 2, 1]) / 28)
    stray = rng.random(300) < 0.2
    clusters = np.where(stray, rng.integers(6, size=300), rng.permutation(6)[true])
    labels = np.where((true < 4) & (rng.random(300) < 0.5), true, -1)
    counts = class_counts_from_clusters(
        torch.from_numpy(clusters), torch.from_numpy(labels), n_classes=6, n_known=4,
        rank_match=rank_match, cost="share" if share else "count",
    )  # fmt: skip
    assert counts.sum() == 300
    assert counts.tolist() == class_counts(
        clusters, labels, n_classes=6, n_known=4, rank_match=rank_match, share=share
    )


@pytest.mark.parametrize(
    ("clusters", "labels", "cost", "message"),
    [
        ([0, 1], [0], "share", "2 clusters for 1 labels"),
        ([0, 3], [0, -1], "share", r"cluster ids must lie in 0\.\.2"),
        ([0, 1], [0, 2], "share", "labels go up to 2, but 2 of 3 are known"),
        ([0, 1], [0, 1], "size", "choose from share, count"),
    ],
)
def test_what_cannot_be_counted_is_said_in_one_line(clusters, labels, cost, message):
    with pytest.raises(UserError, match=message):
        class_counts_from_clusters(
            clusters, labels, n_classes=3, n_known=2, rank_match=True, cost=cost
        )


def test_a_single_class_holds_every_image():
    options = {"n_classes": 1, "n_known": 1, "rank_match": False}
    assert class_counts_from_clusters([0, 0, 0], [0, -1, -1], **options).tolist() == [3]
