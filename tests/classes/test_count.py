import numpy as np
import pytest
import torch

from bacon_gcd.classes import count
from bacon_gcd.classes.count import (
    by_evidence,
    by_heights,
    by_pairs,
    count_by_shape,
    count_new,
    merges,
    number_of,
    pair_score,
    silhouette,
)
from bacon_gcd.classes.space import ClassSpace
from bacon_gcd.cluster import unit


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
    found, ways = count_new(space, rows, np.minimum(ids, 7), new, n_known=8, seed=0)
    assert ways["heights"] == ways["pairs"] == n_new
    assert found == pytest.approx(n_new, rel=0.4)


def test_heights_and_pairs_count_without_the_third_way():
    rows, ids = planted(9)
    new = ids >= 4
    tree = merges(rows[torch.from_numpy(new)], seed=0)
    assert by_heights(rows, new, tree, n_known=4, seed=0) == 5
    assert by_pairs(rows, np.minimum(ids, 3), new, n_known=4, seed=0) in (5, 6)


def test_evidence_alone_counts_clear_classes():
    rows, ids = planted(6, each=100)
    space = ClassSpace(rows * 30, torch.full((rows.shape[1],), 30.0))
    assert by_evidence(space, ids >= 0, merges(rows, seed=0)) == 6


@pytest.mark.parametrize(("n_known", "share"), [(9, 1 / 2), (18, 8 / 9)])
def test_the_evidence_counts_less_the_more_classes_are_known(n_known, share, monkeypatch):
    monkeypatch.setattr(count, "by_heights", lambda *args, **named: 4.0)
    monkeypatch.setattr(count, "by_pairs", lambda *args, **named: 4.0)
    monkeypatch.setattr(count, "by_evidence", lambda *args, **named: 16.0)
    rows, ids = planted(3)
    space = ClassSpace(rows, torch.ones(rows.shape[1]))
    found, _ = count_new(space, rows, ids, ids >= 0, n_known=n_known, seed=0)
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
    assert count_new(space, rows, ids, ids < 0, n_known=3, seed=0)[0] == 0.0


def test_pair_score_is_one_only_for_the_classes_themselves():
    classes = np.array([0, 0, 0, 1, 1, 2, 2])
    assert pair_score(classes + 5, classes) == pytest.approx(1.0)
    assert pair_score(np.zeros(7, dtype=np.int64), classes) < 0.7
    assert pair_score(np.arange(7), classes) == 0.0


def test_a_large_class_weighs_as_much_as_a_small_one():
    small = np.array([0] * 100 + [1] * 4)
    broken_large = np.concatenate([np.arange(100), [200] * 4])
    broken_small = np.concatenate([[200] * 100, np.arange(4)])
    assert pair_score(broken_large, small) == pytest.approx(pair_score(broken_small, small))


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
    found = number_of(5, 4.0, {"heights": 2.0, "pairs": 9.0}, (5, 12))
    assert found.estimate == 9
    assert found.interval == (6, 12)
    assert found.beside == {"heights": 7, "pairs": 14}
    assert number_of(5, 0.0, {"heights": 0.0}, (5, 12)).interval == (5, 5)
