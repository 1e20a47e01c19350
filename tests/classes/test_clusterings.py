"""Clusterings of all images that agree, where known classes have one or two labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage

from bacon_gcd.classes.clusterings import (
    agreed,
    few_labels,
    named_clusterings,
    named_clusters,
    positions,
)
from bacon_gcd.classes.count import Merges
from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.membership import by_clusterings, grouped, nearest_known, view_of
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import reduced
from bacon_gcd.cluster import unit
from tests.classes.planted_features import agreement, planted, some_labels

# Three pairs and a triple on a line, far from each other.
LINE = np.array([0.0, 0.1, 5.0, 5.12, 10.0, 10.14, 20.0, 20.16, 20.5])


def tree_of(line, by="average"):
    return Merges(np.arange(len(line)), linkage(line[:, None], by))


def labels_at(n, **classes):
    labels = np.full(n, -1)
    for row, number in classes.items():
        labels[int(row[1:])] = number
    return labels


@pytest.mark.parametrize(
    ("counts", "few"),
    [
        ((1,), True),
        ((1, 1), True),
        ((1, 2), True),
        ((1, 3), False),
        ((2, 2), False),
        ((9,), False),
        ((), False),
    ],
)
def test_labels_are_few_up_to_three_of_two_classes(counts, few):
    labels = np.repeat([*range(len(counts)), -1], [*counts, 5])
    assert few_labels(labels) is few


def test_a_cluster_with_a_label_is_that_class_and_the_others_are_new():
    labels = labels_at(9, r2=0, r7=1)
    found = named_clusters(tree_of(LINE), labels, np.zeros((9, 2), np.float32), n_new=2)
    assert found.tolist()[2:4] == [0, 0]
    assert found.tolist()[6:] == [1, 1, 1]
    assert sorted({*found[:2]} | {*found[4:6]}) == [2, 3]
    assert found[0] == found[1] != found[4] == found[5]


def test_labels_that_fall_into_one_cluster_make_the_cut_finer():
    labels = labels_at(9, r0=0, r1=1)  # five clusters: three pairs, a pair and one alone
    found = named_clusters(tree_of(LINE), labels, np.zeros((9, 2), np.float32), n_new=3)
    assert found[:2].tolist() == [0, 1]
    assert found[[2, 4, 6]].tolist() == found[[3, 5, 7]].tolist()
    assert set(found[2:]) == {2, 3, 4, 5}
    found = named_clusters(tree_of(LINE), labels, np.zeros((9, 2), np.float32), n_new=5)
    assert found[:2].tolist() == [0, 1]
    assert found[2] == found[3]  # the next tightest pair stays together
    assert len(set(found[4:])) == 5


def test_an_image_beside_two_labels_is_of_the_class_with_more_evidence():
    labels = labels_at(9, r6=0, r8=1)
    for better in (0, 1):
        evidence = np.zeros((9, 2), np.float32)
        evidence[7, better] = 0.5
        found = named_clusters(tree_of(LINE), labels, evidence, n_new=1)
        assert found[6:].tolist() == [0, better, 1]


def test_a_tree_with_too_few_parts_gives_fewer_new_classes():
    labels = labels_at(9, r0=0)
    found = named_clusters(tree_of(LINE), labels, np.zeros((9, 1), np.float32), n_new=20)
    assert sorted(found) == list(range(9))
    everywhere = named_clusters(tree_of(LINE), np.arange(9), np.zeros((9, 9), np.float32), n_new=3)
    assert everywhere.tolist() == list(range(9))


def test_the_known_class_is_the_one_that_most_clusterings_name():
    clusterings = [np.array([0, 0, 1, 5]), np.array([0, 1, 3, 4]), np.array([1, 2, 3, 0])]
    evidence = np.array([[0, 9, 0], [0, 1, 2], [0, 0, 9], [-3, -2, -1]], dtype=np.float32)
    best, share = agreed(clusterings, evidence)
    assert best.tolist() == [0, 2, 1, 0]
    assert share.tolist() == [1, 1, 1 / 3, 1 / 3]


def test_half_of_six_votes_is_exactly_half():
    ids = [np.array([0])] * 3 + [np.array([1])] * 3
    assert agreed(ids, np.zeros((1, 1), np.float32))[1][0] == 0.5


def test_positions_are_means_of_the_centers_of_clusters():
    rng = np.random.default_rng(0)
    points = unit(torch.from_numpy(rng.normal(size=(12, 4))).float())
    clusterings = [rng.integers(0, n, 12) for n in (2, 3, 5)]
    by_hand = torch.zeros(12, 4)
    for row in range(12):
        for ids in clusterings:
            center = points[torch.from_numpy(ids == ids[row])].sum(dim=0)
            by_hand[row] += center / center.norm()
    by_hand /= by_hand.norm(dim=1, keepdim=True)
    torch.testing.assert_close(positions(points, clusterings), by_hand)


def test_clusterings_differ_in_linkage_and_in_their_parts():
    features, ids = planted(12, each=30, spread=2.0)
    labels = some_labels(ids, 6, 1)
    points = unit(features)
    evidence = np.zeros((len(ids), 6), np.float32)
    found = named_clusterings(points, labels, evidence, n_new=6, seed=0, rules=RULES)
    assert len(found) == 2 * RULES.counting_seeds
    assert len({each.tobytes() for each in found}) == len(found)
    again = named_clusterings(points, labels, evidence, n_new=6, seed=0, rules=RULES)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("most_parts", [3, RULES.most_parts])
def test_a_tree_has_parts_enough_for_all_classes_of_few_images(most_parts):
    features, ids = planted(20, each=3, spread=0.3)
    labels, rules = some_labels(ids, 10, 1), replace(RULES, most_parts=most_parts)
    evidence = np.zeros((len(ids), 10), np.float32)
    found = named_clusterings(features, labels, evidence, n_new=10, seed=0, rules=rules)
    assert all(set(each) == set(range(20)) for each in found)


def test_images_that_cannot_be_clustered_are_sorted_as_with_many_labels():
    features, labels = torch.eye(3)[[0, 0, 1]], np.array([0, -1, -1])
    rows = reduced(features, labels, seed=0, rules=RULES)
    view = view_of(rows, labels, seed=0, few_labels=True)
    guess, score = nearest_known(view, labels)
    same = by_clusterings(view, labels, guess, score, 0.1, n_new=1)
    assert same == (view, guess, score, 0.1)


@pytest.mark.parametrize("images", [torch.ones(6, 4), torch.eye(4)[[0, 0, 0, 1, 1, 1]]])
def test_one_label_of_images_that_are_all_alike(images):
    found = find_classes(unit(images), np.array([0, -1, -1, -1, -1, -1]), seed=0, allowed=(2, 2))
    assert found.class_ids[0] == 0
    assert set(found.class_ids) == {0, 1}


def test_one_label_of_each_class_is_enough_where_classes_are_clear():
    features, ids = planted(10, each=40, spread=1.0)
    labels = some_labels(ids, 5, 1)
    found = find_classes(features, labels, seed=0)
    assert agreement(found.class_ids, ids, 5) > 0.95
    assert abs(found.number.estimate - 10) <= 2


def test_with_few_labels_what_is_beside_a_label_is_of_its_class():
    features, ids = planted(6, each=20, spread=0.8)
    labels = some_labels(ids, 3, 1)
    rows = reduced(features, labels, seed=0, rules=RULES)
    view = view_of(rows, labels, seed=0, few_labels=True)
    guess, score = np.zeros(len(ids), dtype=np.int64), np.full(len(ids), -9.0)  # all new, were it
    found = grouped(view, labels, guess, score, 0.0, n_new=3)
    assert agreement(found, ids, 3) == 1
    without = grouped(replace(view, few_labels=False), labels, guess, score, 0.0, n_new=3)
    assert (without[labels < 0] >= 3).all()
