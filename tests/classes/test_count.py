from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage

from bacon_gcd.classes import count
from bacon_gcd.classes.count import (
    Merges,
    by_evidence,
    by_heights,
    count_by_shape,
    count_new,
    crowded,
    merges,
    number_of,
    silhouette,
)
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import ClassSpace, clustered
from bacon_gcd.cluster import unit
from tests.reference.evidence import log_density


def planted(n_classes, each=40, d=24, spread=0.15, seed=0):
    """Unit rows around well separated directions, and their classes."""
    rng = np.random.default_rng(seed)
    means = unit(torch.from_numpy(rng.normal(size=(n_classes, d))).float())
    ids = np.repeat(np.arange(n_classes), each)
    noise = torch.from_numpy(rng.normal(size=(len(ids), d))).float() * spread / d**0.5 * 2
    return unit(means[torch.from_numpy(ids)] + noise), ids


@pytest.mark.parametrize("n_new", [3, 8])
def test_planted_new_classes_are_counted(n_new):
    rows, ids = planted(8 + n_new)
    space = ClassSpace(rows * 10, torch.full((rows.shape[1],), 20.0))
    new = ids >= 8
    found, ways = count_new(space, rows, new, n_known=8, seed=0)
    assert ways["heights"] == n_new
    assert found == pytest.approx(n_new, rel=0.4)


def test_heights_alone_count_clear_classes():
    rows, ids = planted(9)
    new = ids >= 4
    tree = merges(rows[torch.from_numpy(new)], seed=0)
    assert by_heights(rows, new, tree, n_known=4, seed=0) == 5


def test_evidence_alone_counts_clear_classes():
    rows, ids = planted(6, each=100)
    space = ClassSpace(rows * 30, torch.full((rows.shape[1],), 30.0))
    assert by_evidence(space, ids >= 0, merges(rows, seed=0)) == 6


@pytest.mark.parametrize(("n_known", "share"), [(9, 1 / 2), (18, 8 / 9)])
def test_the_evidence_counts_less_the_more_classes_are_known(n_known, share, monkeypatch):
    monkeypatch.setattr(count, "by_heights", lambda *args, **named: 4.0)
    monkeypatch.setattr(count, "by_evidence", lambda *args, **named: 16.0)
    rows, ids = planted(3)
    space = ClassSpace(rows, torch.ones(rows.shape[1]))
    found, _ = count_new(space, rows, ids >= 0, n_known=n_known, seed=0)
    assert np.log(found) == pytest.approx(share * np.log(4) + (1 - share) * np.log(16))


def test_average_linkage_leaves_a_small_class_its_own_cluster():
    rng = np.random.default_rng(0)
    middles = unit(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.9, 0.3]]))
    ids = np.repeat([0, 1, 2], [300, 300, 12])
    spread = torch.from_numpy(rng.normal(size=(len(ids), 3))).float() * 0.03
    tree = merges(unit(middles[torch.from_numpy(ids)] + spread), seed=0, by="average")
    found = tree.cut(3)
    assert {tuple(np.unique(found[ids == c])) for c in range(3)} == {(0,), (1,), (2,)}


def test_no_new_image_is_no_new_class():
    rows, ids = planted(3)
    space = ClassSpace(rows, torch.ones(rows.shape[1]))
    found, ways = count_new(space, rows, ids < 0, n_known=3, seed=0)
    assert found == 0.0
    assert ways == {"heights": 0.0, "evidence": 0.0}


def space_of(rows):
    return ClassSpace(rows * 10, torch.full((rows.shape[1],), 20.0))


def test_clear_clusters_are_counted_without_labels():
    rows, _ = planted(5, each=60)
    assert count_by_shape(space_of(rows), seed=0)[0] == 5


def test_clusters_that_are_not_clear_are_counted_by_the_evidence():
    rows, _ = planted(6, each=60, spread=0.9)
    middle, least, most = count_by_shape(space_of(rows), seed=0)
    assert least <= middle <= most
    assert 4 <= middle <= 15


def test_images_that_are_all_the_same_are_one_class():
    assert count_by_shape(space_of(unit(torch.ones(40, 6))), seed=0)[0] == 1.0
    assert merges(torch.ones(3, 2), seed=0) is None


def test_silhouette_prefers_the_true_clusters():
    rows, ids = planted(4)
    merged = np.where(ids == 3, 2, ids)
    split = ids * 2 + np.arange(len(ids)) % 2
    assert silhouette(rows, ids) > max(silhouette(rows, merged), silhouette(rows, split))


def test_the_interval_holds_the_estimate_and_keeps_to_the_limits():
    found = number_of(5, 4.0, {"heights": 2.0, "evidence": 9.0}, (5, 12))
    assert found.estimate == 9
    assert found.interval == (6, 12)
    assert found.beside == {"heights": 7, "evidence": 14}
    assert number_of(5, 0.0, {"heights": 0.0}, (5, 12)).interval == (5, 5)


def drawn(n, d=3, seed=0):
    return unit(torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).float())


@pytest.mark.parametrize(("n_rows", "n_parts"), [(4, 2), (15, 2), (24, 3), (79, 9)])
def test_a_merge_tree_has_a_part_of_eight_images(n_rows, n_parts):
    tree = merges(drawn(n_rows), seed=0)
    assert tree.n_parts == n_parts == len(np.unique(tree.part_of))


def test_a_merge_tree_is_that_of_the_means_of_the_parts():
    rows = drawn(60)
    parts = clustered(rows, 7, seed=3, rules=Rules())
    means = np.stack([rows[torch.from_numpy(parts == c)].double().mean(dim=0) for c in range(7)])
    tree = merges(rows, seed=3, n_parts=7, by="average")
    by_hand = linkage(means, "average")
    np.testing.assert_array_equal(tree.part_of, parts)
    np.testing.assert_allclose(tree.tree, by_hand, rtol=1e-5)
    np.testing.assert_allclose(tree.heights, sorted(by_hand[:, 2], reverse=True), rtol=1e-5)
    assert sorted(np.unique(tree.cut(4))) == [0, 1, 2, 3]


def test_images_of_one_place_have_no_merge_tree():
    assert merges(unit(torch.ones(9, 2)), seed=0, n_parts=1) is None


def test_a_count_is_the_median_of_three_draws_and_none_is_less_than_one(monkeypatch):
    heights, seen = {5: 9.0, 6: 1.0, 7: 4.0}, []

    def by_seed(*args, seed, **named):
        seen.append(seed)
        return heights[seed]

    monkeypatch.setattr(count, "by_heights", by_seed)
    monkeypatch.setattr(count, "by_evidence", lambda *args, **named: 0.0)
    rows, ids = planted(2, each=10)
    found, ways = count_new(space_of(rows), rows, ids >= 0, n_known=9, seed=5)
    assert seen == [5, 6, 7]
    assert ways == {"heights": 4.0, "evidence": 0.0}
    assert np.log(found) == pytest.approx(np.log(4) / 2 + np.log(1) / 2)


def tree_of(heights):
    """A merge tree with these heights, the largest first."""
    tree = np.zeros((len(heights), 4))
    tree[:, 2] = heights[::-1]
    return Merges(np.arange(len(heights) + 1), tree)


@pytest.mark.parametrize(
    ("n_known", "height"), [(1, 16), (2, 12), (3, 6), (4, 2), (5, 1), (6, 4), (9, 4)]
)
def test_the_height_lies_between_the_merges_around_the_known_number(n_known, height, monkeypatch):
    asked = []

    def known_tree(rows, **named):
        asked.append(len(rows))
        return tree_of([16.0, 9.0, 4.0, 1.0])

    monkeypatch.setattr(count, "merges", known_tree)
    new = np.arange(10) < 3
    new_tree = tree_of([height + 1.0, height + 0.01, float(height), height / 2])
    found = by_heights(torch.zeros(10, 2), new, new_tree, n_known=n_known, seed=0)
    assert found == 3
    assert asked == [7]


def test_too_few_known_or_new_images_for_a_tree_count_as_one_class():
    rows, new = drawn(20), np.arange(20) < 17
    tree = merges(rows[:17], seed=0)
    assert by_heights(rows, new, tree, n_known=2, seed=0) == 1.0
    assert by_heights(rows, ~new, None, n_known=2, seed=0) == 1.0
    assert by_heights(rows, np.zeros(20, dtype=bool), None, n_known=2, seed=0) == 0.0


class FakeTree:
    """Cuts the first half of 400 images into as many clusters as asked; the others are one."""

    def __init__(self, n_parts):
        self.n_parts, self.levels = n_parts, []

    def cut(self, level):
        self.levels.append(int(level))
        images = np.arange(400)
        return np.where(images < 200, images % level, level)


@pytest.mark.parametrize("n", [1, 3])
def test_the_evidence_of_a_cluster_is_the_density_of_one_class_over_that_of_no_spread(n):
    rows, between = np.random.default_rng(n).normal(size=(n, 2)), np.array([3.0, 0.5])
    by_hand = log_density(rows, between) - log_density(rows, np.zeros(2))
    assert count._evidence(n, rows.sum(axis=0), between) == pytest.approx(by_hand)


@pytest.mark.parametrize("weight", [1e-4, 0.01, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_by_evidence_tries_every_cut_of_the_tree(weight, seed):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(60, 3)) * 3).float()
    space, new = ClassSpace(rows, torch.tensor([5.0, 2.0, 0.3])), rng.uniform(size=60) < 0.7
    among = rows[torch.from_numpy(new)].double().numpy()
    tree = merges(unit(rows[torch.from_numpy(new)]), seed=0, n_parts=9)
    clusters = {part: np.flatnonzero(tree.part_of == part) for part in range(9)}
    totals = {}
    for step in range(9):
        if step:
            first, second = tree.tree[step - 1, :2].astype(int)
            clusters[8 + step] = np.union1d(clusters.pop(first), clusters.pop(second))
        totals[len(clusters)] = sum(
            count._evidence(weight * len(c), weight * among[c].sum(axis=0), np.array([5.0, 2, 0.3]))
            for c in clusters.values()
        )
    best = max(totals, key=lambda n: totals[n])
    assert by_evidence(space, new, tree, Rules(evidence_weight=weight)) == best
    assert by_evidence(space, new, None) == 1.0


def shaped(monkeypatch, values, n_rows=400, n_parts=6):
    """What count_by_shape makes of silhouettes of 2, 3, ... clusters; weights of the evidence."""
    tree, weights, n_points = FakeTree(n_parts), [], []

    def shape(points, clusters, rules):
        n_points.append((len(points), len(clusters)))
        return values[tree.levels[-1] - 2]

    def by_weight(space, new, tree, rules):
        assert new.all()
        weights.append(rules.evidence_weight)
        return float(len(weights))

    monkeypatch.setattr(count, "merges", lambda *args, **named: tree)
    monkeypatch.setattr(count, "silhouette", shape)
    monkeypatch.setattr(count, "by_evidence", by_weight)
    space = ClassSpace(torch.ones(n_rows, 2), torch.ones(2))
    return count_by_shape(space, seed=0), tree.levels, weights, n_points


def test_clear_shapes_give_the_best_number_and_all_that_are_nearly_as_good(monkeypatch):
    found, levels, weights, _ = shaped(monkeypatch, [0.5, 0.87, 0.89, 0.9])
    assert levels == [2, 3, 4, 5]
    assert (found, weights) == ((5.0, 4.0, 5.0), [])
    assert shaped(monkeypatch, [0.1, 0.75, 0.1, 0.1])[0] == (3.0, 3.0, 3.0)
    just_as_good = 0.9 - 0.02
    assert shaped(monkeypatch, [0.5, just_as_good, 0.9, 0.5])[0] == (4.0, 3.0, 4.0)


def test_shapes_that_are_not_clear_leave_the_number_to_three_weights_of_the_evidence(monkeypatch):
    for values in ([0.1, 0.74, 0.1, 0.1], [0.0, 0.0015, 0.0, 0.0]):
        found, _, weights, _ = shaped(monkeypatch, values)
        assert found == (1.0, 2.0, 3.0)
        assert weights == pytest.approx([0.1, 0.03, 0.25])


def test_no_shape_at_all_is_one_class(monkeypatch):
    assert shaped(monkeypatch, [0.0, 0.001, 0.0, 0.0])[0] == (1.0, 1.0, 1.0)


def test_three_images_without_a_label_are_one_class():
    assert count_by_shape(space_of(drawn(3)), seed=0) == (1.0, 1.0, 1.0)


def test_two_or_three_parts_are_cut_into_two_and_many_into_forty_numbers(monkeypatch):
    assert shaped(monkeypatch, [0.9], n_parts=2)[1] == [2]
    assert shaped(monkeypatch, [0.9], n_parts=3)[1] == [2]
    levels = shaped(monkeypatch, [0.9] * 200, n_parts=200)[1]
    assert levels == sorted({int(n + 1e-9) for n in np.geomspace(2, 199, 40)})


def test_shapes_are_seen_by_2000_images(monkeypatch):
    monkeypatch.setattr(FakeTree, "cut", lambda self, n: self.levels.append(n) or np.zeros(2100))
    assert set(shaped(monkeypatch, [0.9] * 4, n_rows=2100)[3]) == {(2000, 2000)}


def test_silhouette_is_that_of_each_row_without_itself():
    rows, clusters = drawn(12, d=2), np.array([0, 0, 0, 0, 2, 2, 2, 5, 5, 5, 5, 7])
    exact, of_cluster = rows.double().numpy(), {c: [] for c in np.unique(clusters)}
    for row, c in enumerate(clusters[:-1]):
        away = {}
        for other in np.unique(clusters):
            mean = exact[(clusters == other) & (np.arange(12) != row)].mean(axis=0)
            away[other] = 1 - exact[row] @ mean / np.linalg.norm(mean)
        inside = away.pop(c)
        outside = min(away.values())
        of_cluster[c].append((outside - inside) / max(outside, inside))
    by_hand = np.mean([np.mean(values) if values else 0.0 for values in of_cluster.values()])
    assert silhouette(rows, clusters) == pytest.approx(by_hand, abs=1e-5)


def test_silhouette_of_two_rows_of_each_cluster_counts_and_of_one_cluster_does_not():
    rows = unit(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    assert silhouette(rows, np.array([0, 0, 1, 1])) == pytest.approx(1.0)
    assert silhouette(rows, np.zeros(4, dtype=np.int64)) == 0.0


def test_clusters_less_than_a_thousandth_apart_have_a_small_silhouette():
    angle = np.arccos(1 - 5e-4)
    rows = torch.tensor([[1.0, 0.0]] * 2 + [[np.cos(angle), np.sin(angle)]] * 2).float()
    assert silhouette(rows, np.array([0, 0, 1, 1])) == pytest.approx(0.5, abs=1e-2)


def test_the_interval_reaches_as_far_as_the_ways_of_counting_and_more():
    found = number_of(
        5, 4.0, {"heights": 2.6, "evidence": 9.0}, (5, 99), Rules(spread_of_count=0.5)
    )
    assert found.interval == (round(5 + 2.6 / np.exp(0.5)), round(5 + 9 * np.exp(0.5)))
    assert found.beside == {"heights": 8, "evidence": 14}


def test_new_classes_are_more_where_most_images_are_new_and_known_classes_measure_well():
    def found(share, n_known=30, n_new=4.0, n=1000, **changed):
        rules = replace(RULES, crowding=4.0, measuring_classes=10.0, **changed)
        new = np.arange(n) < share * n
        return crowded(n_new, new, n_known=n_known, n_unlabeled=n, rules=rules)

    assert [found(share) for share in (0.0, 0.3, 0.5)] == [4.0, 4.0, 4.0]
    trusted = 2 * 27 / 28 - 1
    assert found(0.75) == pytest.approx(4 * np.exp(4 * trusted * 0.25))
    assert [found(0.9, n_known=n_known) for n_known in (1, 5, 10)] == [4.0, 4.0, 4.0]
    assert found(0.8, crowded_images=160.0) == 5.0  # 800 new images
    assert found(0.8, crowded_images=1000.0) == 4.0  # never fewer than were counted


@pytest.mark.parametrize("share", [0.2, 0.75])
def test_new_classes_are_more_where_no_class_has_a_second_label(share):
    rules = replace(RULES, crowding=4.0, measuring_classes=10.0, lone_growth=0.7)
    new = np.arange(1000) < share * 1000

    def found(n_known, lone):
        return crowded(4.0, new, n_known=n_known, n_unlabeled=1000, lone=lone, rules=rules)

    trusted = 2 * 27 / 28 - 1
    assert found(30, True) == pytest.approx(found(30, False) * np.exp(0.7 * trusted))
    assert found(10, True) == found(10, False) == 4.0
