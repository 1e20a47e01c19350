"""The protocol: matching, groups by class size, and label-anchored accuracy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bacon_gcd.config import UserError
from bacon_gcd.metrics import anchored, frequency_groups, name_clusters, score
from tests.reference.accuracy import best_hits, long_tail_profile, released_groups

CIFAR10_RANKS = [0, 4, 2, 8, 5, 6, 7, 1, 9, 3]
CIFAR100_RANKS_TEXT = """
5 85 65 8 95 44 68 23 50 75 71 86 16 30 24 36 6 11 83 97 74 67 17 41 48 45 33 55 90 77 12 92 32 84
20 89 19 69 53 87 14 26 46 49 80 52 63 91 25 4 22 99 82 15 73 31 42 21 47 88 98 9 51 66 39 27 43 64
54 10 57 78 62 37 28 56 18 3 81 35 34 96 1 38 40 70 58 59 94 29 79 7 61 76 2 93 13 60 72 0
"""
CIFAR100_RANKS = [int(c) for c in CIFAR100_RANKS_TEXT.split()]


def sizes(groups):
    return [len(classes) for classes in groups.values()]


def with_accuracies(percent, n_images=1000):
    """True classes and predictions in which class c is right in percent[c] of its images."""
    true, predicted = [], []
    for c, accuracy in enumerate(percent):
        n_right = round(accuracy / 100 * n_images)
        true += [c] * n_images
        predicted += [c] * n_right + [(c + 1) % len(percent)] * (n_images - n_right)
    return np.array(predicted), np.array(true)


rows = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from([0, 3, 4, 1000, 10**12]), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)


@given(rows, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_all_is_the_best_of_all_permutations_and_splits_into_old_and_new(pair, n_known):
    predicted, true = map(np.array, pair)
    scores = score(predicted, true, n_known=n_known, train_counts=[4, 3, 2, 1])
    assert scores.all == pytest.approx(100 * best_hits(*pair, n_classes=4) / len(true))
    n_old = (true < n_known).sum()
    weighted = (scores.old or 0) * n_old + (scores.new or 0) * (len(true) - n_old)
    assert scores.all == pytest.approx(weighted / len(true))
    assert scores.nmi == pytest.approx(normalized_mutual_info_score(true, predicted))
    assert scores.ari == pytest.approx(adjusted_rand_score(true, predicted))


def test_a_table_worked_out_by_hand():
    #        cluster 7 -> class 0 (3 hits), 2 -> class 1 (1), 9 -> class 2 (2), 5 is left over
    predicted = torch.tensor([7, 7, 7, 2, 2, 7, 9, 9, 5])
    true = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    scores = score(predicted, true, n_known=2, train_counts=[9, 5, 1])
    assert scores.mapping == {7: 0, 2: 1, 9: 2}
    assert scores.all == pytest.approx(100 * 6 / 9)
    assert scores.old == pytest.approx(100 * 4 / 6)
    assert scores.new == pytest.approx(100 * 2 / 3)
    assert scores.per_class == pytest.approx((75.0, 50.0, 100 * 2 / 3))


def test_fewer_clusters_than_classes_and_a_missing_class():
    scores = score([0, 0, 0, 1], [0, 0, 1, 3], n_known=2, train_counts=[4, 3, 2, 1])
    assert scores.mapping == {0: 0, 1: 3}
    assert scores.per_class == (100.0, 0.0, None, 100.0)


@pytest.mark.parametrize(
    ("ratio", "totals"),
    [
        (20, [4500, 437, 2312, 225, 3225, 1188, 851, 610, 1657, 313]),
        (50, [4500, 214, 1886, 90, 2913, 790, 512, 331, 1221, 139]),
        (100, [4500, 125, 1617, 45, 2697, 581, 348, 208, 969, 75]),
        (150, [4500, 91, 1477, 30, 2578, 485, 278, 159, 846, 52]),
    ],
)
def test_groups_of_cifar10_are_1_2_2(ratio, totals):
    counts = long_tail_profile(4500, CIFAR10_RANKS, ratio)
    assert counts == totals
    groups = frequency_groups(counts, n_known=5, kind="released")
    assert sizes(groups) == [1, 2, 2, 1, 2, 2]
    assert groups["known_many"].tolist() == [0]
    assert groups["known_few"].tolist() == [1, 3]
    assert groups["novel_median"].tolist() == [5, 6]


@pytest.mark.parametrize(("ratio", "known"), [(100, [26, 28, 26]), (150, [26, 29, 25])])
def test_groups_of_cifar100_are_those_of_the_released_code(ratio, known):
    counts = long_tail_profile(450, CIFAR100_RANKS, ratio)
    groups = frequency_groups(counts, n_known=80, kind="released")
    assert sizes(groups) == [*known, 6, 8, 6]
    by_hand = [part for side in released_groups(counts, 80) for part in side]
    assert [classes.tolist() for classes in groups.values()] == by_hand


def test_exact_thirds_divide_evenly():
    counts = long_tail_profile(450, CIFAR100_RANKS, 150)
    groups = frequency_groups(counts, n_known=80, kind="thirds")
    assert sizes(groups) == [27, 27, 26, 7, 7, 6]
    assert min(counts[c] for c in groups["known_many"]) >= max(
        counts[c] for c in groups["known_median"]
    )


@given(st.lists(st.integers(1, 6), min_size=0, max_size=14), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_groups_part_the_classes_whatever_the_counts(counts, n_known):
    for kind in ("released", "thirds"):
        groups = frequency_groups(counts, n_known=n_known, kind=kind)
        members = np.concatenate(list(groups.values()))
        assert sorted(members.tolist()) == list(range(len(counts)))


@pytest.mark.parametrize(
    ("accuracies", "printed"),
    [
        ((72.9, 64.7, 62.0), 4.63),
        ((72.6, 70.6, 65.3), 3.08),
        ((74.4, 67.1, 60.8), 5.56),
        ((73.7, 66.1, 59.8), 5.68),
        ((75.9, 69.4, 52.9), 9.68),
    ],
)
def test_std_is_that_of_the_papers_tables(accuracies, printed):
    predicted, true = with_accuracies([*accuracies, *accuracies])
    scores = score(predicted, true, n_known=3, train_counts=[30, 20, 10, 3, 2, 1], groups="thirds")
    assert (scores.known_many, scores.known_median, scores.known_few) == pytest.approx(accuracies)
    assert round(scores.known_std, 2) == printed
    assert scores.novel_std == pytest.approx(scores.known_std)


def test_groups_pool_the_images_of_their_classes():
    predicted, true = with_accuracies([90, 80, 70, 60, 50, 40, 100, 100, 100])
    counts = [60, 50, 40, 30, 20, 10, 3, 3, 3]
    scores = score(predicted, true, n_known=6, train_counts=counts)
    assert scores.known_many == pytest.approx((90 + 80) / 2)
    assert scores.known_median == pytest.approx((70 + 60 + 50) / 3)
    assert scores.known_few == pytest.approx(40)
    assert (scores.novel_many, scores.novel_median, scores.novel_few) == (None, 100.0, None)
    assert scores.novel_std is None


def test_no_image_fits_into_a_single_class_too():
    assert score([], [], n_known=1, train_counts=[3]).all is None


def test_nothing_to_measure_is_null_in_json():
    scores = score([], [], n_known=2, train_counts=[2, 1])
    assert scores.all is scores.old is scores.new is scores.nmi is scores.ari is None
    text = json.dumps(scores.as_dict(), allow_nan=False)
    assert json.loads(text)["per_class"] == [None, None]
    only_known = score([0, 1], [0, 1], n_known=2, train_counts=[2, 1]).as_dict()
    assert only_known["new"] is None
    assert json.loads(json.dumps(only_known))["mapping"] == {"0": 0, "1": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted": [0]}, "1 predictions for 2 true classes"),
        ({"true": [0, -1]}, "must not be negative"),
        ({"true": [0, 5]}, "true class 5 does not fit into 2 classes"),
        ({"true": [0, 2]}, "true class 2 does not fit into 2 classes"),
        ({"n_classes": 3}, "2 train counts for 3 classes"),
        ({"groups": "halves"}, "choose from released, thirds"),
    ],
)
def test_what_cannot_be_scored_is_said_in_one_line(change, message):
    given = {"predicted": [0, 1], "true": [0, 1], "n_known": 1, "train_counts": [2, 1], **change}
    with pytest.raises(UserError, match=message):
        score(given.pop("predicted"), given.pop("true"), **given)


def test_clusters_are_named_by_labeled_images_alone():
    clusters = np.array([3, 3, 3, 1, 1, 0, 0])
    labels = np.array([0, 0, 1, 1, 1, -1, -1])
    names = name_clusters(clusters, labels, n_clusters=4, n_known=2)
    assert names.tolist() == [-1, 1, -1, 0]


def test_a_cluster_without_a_labeled_image_of_its_class_is_not_named():
    names = name_clusters([0, 0, 0], [0, 0, 1], n_clusters=3, n_known=2)
    assert names.tolist() == [0, -1, -1]
    assert name_clusters([0, 1], [-1, -1], n_clusters=2, n_known=0).tolist() == [-1, -1]


def test_anchored_accuracy_worked_out_by_hand():
    # Cluster 0 is named class 0, cluster 1 class 1; 2 and 3 are new and match classes 3 and 2.
    predicted = np.array([0, 0, 1, 2, 1, 1, 3, 3, 0, 2, 2])
    true = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3])
    result = anchored(predicted, true, names=np.array([0, 1, -1, -1]), n_known=2)
    assert result.old == pytest.approx(100 * 4 / 6)
    assert result.new == pytest.approx(100 * 4 / 5)
    assert result.all == pytest.approx(100 * 8 / 11)
    assert result.mapping == {0: 0, 1: 1, 2: 3, 3: 2}
    same = anchored(predicted, true, names={0: 0, 1: 1}, n_known=2)
    assert same == result
    assert json.loads(json.dumps(result.as_dict()))["mapping"]["3"] == 2


def test_wrong_names_cost_accuracy_that_the_hungarian_match_hides():
    predicted = true = np.array([0, 0, 1, 1, 2, 2])
    swapped = anchored(predicted, true, names=np.array([1, 0, -1]), n_known=2)
    assert (swapped.old, swapped.new) == (0.0, 100.0)
    assert score(predicted, true, n_known=2, train_counts=[2, 2, 2]).all == 100.0


def test_a_named_cluster_keeps_its_name_though_a_novel_class_fills_it():
    result = anchored([0, 0, 0, 2], [0, 2, 2, 2], names={0: 0}, n_known=1)
    assert result.mapping == {0: 0, 2: 2}
    assert (result.old, result.new) == (100.0, pytest.approx(100 / 3))


@given(rows, st.integers(0, 4), st.lists(st.integers(-1, 3), min_size=5, max_size=5))
@settings(max_examples=60, deadline=None)
def test_anchored_accuracy_with_one_name_each_is_never_above_the_free_match(pair, n_known, names):
    named = {
        cluster: name
        for i, (cluster, name) in enumerate(zip([0, 3, 4, 1000, 10**12], names, strict=True))
        if 0 <= name < n_known and name not in names[:i]
    }
    result = anchored(*map(np.array, pair), names=named, n_known=n_known)
    assert result.all <= score(*pair, n_known=n_known, train_counts=[1] * 4).all + 1e-9


def test_anchored_accuracy_of_nothing_is_null():
    result = anchored([], [], names=np.array([0, -1]), n_known=1)
    assert (result.all, result.old, result.new) == (None, None, None)
    assert anchored([0], [0], names=np.array([0]), n_known=1).new is None


def test_a_cluster_without_a_labeled_image_of_the_first_class_is_not_named_after_it():
    names = name_clusters([1, 1, 1], [1, 1, -1], n_clusters=2, n_known=2)
    assert names.tolist() == [-1, 1]


@pytest.mark.parametrize("n_known", [0, 2])
def test_a_cluster_beyond_the_novel_classes_that_occur_is_matched_to_none(n_known):
    true = [n_known] * 3
    assert anchored([5, 5, 6], true, names={}, n_known=n_known).mapping == {5: n_known}


def test_two_novel_classes_beside_five_known_ones_have_no_third_rank():
    groups = frequency_groups([9, 8, 7, 6, 5, 4, 3], n_known=5, kind="released")
    novel = [groups[f"novel_{part}"].tolist() for part in ("many", "median", "few")]
    assert novel == [[5], [6], []]
