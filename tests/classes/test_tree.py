"""The tree of classes: cuts nest, known classes stay apart, names follow the core parts."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.classes import tree as trees
from bacon_gcd.classes.tree import (
    ClassTree,
    Join,
    grow_tree,
    join_classes,
    read_tree,
    split_classes,
)
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError
from tests.reference.linkage import average_linkage


def planted(sizes, *, dim=16, spread=0.3, seed=0):
    """Unit rows around one random direction per class."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(len(sizes), dim))
    class_ids = np.repeat(np.arange(len(sizes)), sizes)
    rows = centers[class_ids] + spread * rng.normal(size=(len(class_ids), dim))
    return unit(torch.from_numpy(rows).float()), class_ids


def grow(sizes, n_known=0, *, labeled=2, **changes):
    features, class_ids = planted(sizes, **changes)
    order = np.concatenate([np.arange(size) for size in sizes])
    fixed = (class_ids < n_known) & (order < labeled)
    tree = grow_tree(features, class_ids, fixed, n_known=n_known, n_classes=len(sizes), seed=0)
    return tree, class_ids, fixed


runs = st.tuples(
    st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(0, 7), st.integers(0, 99)
)


@settings(max_examples=40, deadline=None)
@given(runs)
def test_every_cut_lies_inside_the_next_coarser_one(run):
    sizes, n_known, seed = run
    n_known = min(n_known, len(sizes))
    tree, class_ids, fixed = grow(sizes, n_known, seed=seed)
    np.testing.assert_array_equal(tree.cut(len(sizes)), class_ids)
    assert tree.sizes().sum() == len(class_ids)
    finer = None
    for n_classes in range(tree.n_parts, tree.coarsest - 1, -1):
        cores = tree.cores(n_classes)
        assert len(np.unique(cores)) == n_classes
        assert (cores[np.unique(cores)] == np.unique(cores)).all()
        cut = tree.cut(n_classes)
        np.testing.assert_array_equal(cut[fixed], class_ids[fixed])
        np.testing.assert_array_equal(np.unique(cores[cores < n_known]), np.arange(n_known))
        if finer is not None:
            pairs = set(zip(finer.tolist(), cut.tolist(), strict=True))
            assert len(pairs) == len(set(finer.tolist()))
            assert len(set(finer.tolist()) - set(cut.tolist())) <= 1
        finer = cut


def test_a_coarser_cut_joins_novel_classes_only():
    tree, class_ids, _ = grow([9, 8, 7, 6, 5], n_known=2)
    assert tree.coarsest == 3
    cut = tree.cut(3)
    np.testing.assert_array_equal(cut[class_ids < 2], class_ids[class_ids < 2])
    assert set(cut[class_ids >= 2]) == {2}  # the largest of them keeps its name


def test_novel_classes_with_fixed_rows_stay_apart():
    features, class_ids = planted([6, 6, 6])
    fixed = (class_ids == 1) & (np.arange(18) == 6)
    tree = grow_tree(features, class_ids, fixed, n_known=0, n_classes=3, seed=0)
    assert tree.coarsest == 2
    assert (tree.cut(2)[class_ids == 1] == 1).all()


@pytest.mark.parametrize("sizes", [[5, 5], [5, 5, 5]])
def test_one_or_no_novel_class_leaves_nothing_to_join(sizes):
    tree, _, _ = grow(sizes, n_known=2)
    assert tree.coarsest == len(sizes)
    assert tree.n_parts > len(sizes)


def test_a_mixed_class_is_split_first_and_its_larger_half_keeps_the_name():
    features, kind = planted([20, 12, 20, 6], spread=0.05)
    class_ids = np.array([0, 1, 2, 1])[kind]  # class 1 holds two kinds
    members, splits = split_classes(
        features, class_ids, np.zeros(58, dtype=bool), n_classes=3, seed=0
    )
    assert (splits[0].kept, splits[0].gone) == (1, 3)
    joined = np.where(members >= 3, 3, members)[class_ids == 1]
    assert set(members[kind == 1]) & {1}
    assert (joined[kind[class_ids == 1] == 3] >= 3).all()


def test_what_is_split_off_from_a_known_class_holds_no_label():
    features, kind = planted([4, 30], spread=0.05)
    fixed = kind == 0  # few labels, and many images that are something else
    tree = grow_tree(features, np.zeros(34, dtype=int), fixed, n_known=1, n_classes=1, seed=0)
    np.testing.assert_array_equal(tree.cut(2), kind)


def test_no_part_is_a_single_image():
    tree, _, _ = grow([3, 4, 5, 30])
    assert (tree.sizes() >= 2).all()


def test_equal_images_are_not_split():
    features = torch.ones(10, 4) / 2
    tree = grow_tree(
        features, np.zeros(10, dtype=int), np.zeros(10, dtype=bool), n_known=0, n_classes=1, seed=0
    )
    assert tree.n_parts == 1


@pytest.mark.parametrize("seed", range(3))
def test_classes_join_by_the_mean_distance_of_their_images(seed):
    features, class_ids = planted([7, 1, 4, 12, 3], spread=0.8, seed=seed)
    found = join_classes(features, class_ids, np.arange(5))
    expected = average_linkage(features.double().numpy(), class_ids)
    assert [(j.kept, j.gone) for j in found] == [(a, b) for a, b, _ in expected]
    np.testing.assert_allclose([j.distance for j in found], [d for *_, d in expected], atol=1e-6)


def test_an_empty_class_is_the_first_to_go():
    features, class_ids = planted([5, 5])
    joins = join_classes(features, 2 * class_ids, np.arange(3))
    assert joins[0].gone == 1
    assert all(np.isfinite(j.distance) for j in joins)


def test_a_renumbered_tree_cuts_the_same():
    tree, _, _ = grow([9, 8, 7, 6], n_known=1)
    cores = np.unique(tree.cores(3))
    again = tree.renumbered(cores)
    for n_classes in range(tree.coarsest, tree.n_parts + 1):
        both = set(zip(tree.cut(n_classes), again.cut(n_classes), strict=True))
        assert len(both) == n_classes
    np.testing.assert_array_equal(cores[again.cut(3)], tree.cut(3))


def test_a_number_outside_the_tree_names_the_range():
    tree, _, _ = grow([9, 8, 7], n_known=1)
    with pytest.raises(UserError, match=f"1 classes: this run can be cut into 2 to {tree.n_parts}"):
        tree.cut(1)


def test_what_is_stored_is_read_again(tmp_path):
    tree, class_ids, _ = grow([9, 8, 7], n_known=1)
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(tree.as_dict()))
    again = read_tree(path, n_rows=len(class_ids), n_classes=3)
    np.testing.assert_array_equal(again.members, tree.members)
    assert again.as_dict() == tree.as_dict()


TWO = {"n_parts": 2, "joins": [[0, 1, 0.5]], "members": [0, 1]}
DAMAGED = {
    "no json": "{",
    "an old form": {"members": [0, 1], "merges": []},
    "too few images": TWO | {"members": [0]},
    "a part that is not there": TWO | {"members": [0, 7]},
    "no such cut": TWO | {"joins": [[0, 1, 0.5], [1, 0, 0.5]]},
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_tree_is_one_line(tmp_path, damage):
    path = tmp_path / "tree.json"
    path.write_text(damage if isinstance(damage, str) else json.dumps(damage))
    with pytest.raises(UserError, match=r"tree\.json") as caught:
        read_tree(path, n_rows=2, n_classes=2)
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        read_tree(path, n_rows=2, n_classes=2)


def test_a_number_of_parts_that_no_run_has_takes_no_memory(tmp_path):
    path = tmp_path / "tree.json"
    for n_parts in (5, 3_000_000, 10**30):
        path.write_text(json.dumps({"n_parts": n_parts, "joins": [], "members": [0, 1]}))
        tracemalloc.start()
        with pytest.raises(UserError, match=r"does not fit the 2 images and 2 classes"):
            read_tree(path, n_rows=2, n_classes=2)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1_000_000


def test_the_hand_made_tree_is_cut_as_written():
    tree = ClassTree(np.array([0, 1, 2, 2]), 3, (Join(0, 2, 0.1), Join(0, 1, 0.4)))
    assert tree.cut(2).tolist() == [0, 1, 0, 0]
    assert tree.cut(1).tolist() == [0, 0, 0, 0]


def test_distances_are_stored_with_six_digits():
    tree = ClassTree(np.array([0, 1]), 2, (Join(0, 1, 0.1234567),))
    assert tree.as_dict()["joins"] == [[0, 1, 0.123457]]


@pytest.mark.parametrize(("n_classes", "n_parts"), [(1, 21), (20, 40), (22, 44)])
def test_there_are_twenty_finer_cuts_or_as_many_as_classes(n_classes, n_parts):
    class_ids = np.arange(22 * 6) % n_classes
    features, _ = planted([22 * 6], spread=1.0)
    _, splits = split_classes(
        features, class_ids, np.zeros(22 * 6, dtype=bool), n_classes=n_classes, seed=0
    )
    assert n_classes + len(splits) == n_parts


def halves(features, fixed=None):
    """The only split of these rows: what it gains, what leaves, and how far that lies."""
    fixed = np.zeros(len(features), dtype=bool) if fixed is None else fixed
    members = np.zeros(len(features), dtype=np.int64)
    (found,) = trees._halves(features, members, fixed, [0], 0)
    return -found.loss, found.leaving.tolist(), found.distance


def at_degrees(*angles):
    angle = torch.tensor(angles, dtype=torch.float32).deg2rad()
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def test_a_split_gains_what_it_takes_from_the_sum_of_squares():
    rows = at_degrees(0, 8, 20, 90, 97)
    gain, leaving, distance = halves(rows)
    exact = rows.double().numpy()
    squares = [((r - r.mean(axis=0)) ** 2).sum() for r in (exact, exact[:3], exact[3:])]
    assert leaving == [3, 4]
    assert gain == pytest.approx(squares[0] - squares[1] - squares[2])
    assert distance == pytest.approx(np.mean(1 - exact[:3] @ exact[3:].T))


def test_four_images_are_split_in_pairs_and_three_stay():
    assert len(halves(at_degrees(0, 1, 90, 91))[1]) == 2
    three = at_degrees(0, 1, 90)
    assert not [*trees._halves(three, np.zeros(3, dtype=int), np.zeros(3, dtype=bool), [0], 0)]


@pytest.mark.parametrize(("apart", "n_splits"), [(1e-5, 0), (0.9e-3, 0), (1.3e-3, 1)])
def test_rounding_is_no_reason_to_split(apart, n_splits):
    rows = torch.tensor([[1.0, 0], [1, 0], [1, apart], [1, apart]])
    found = [*trees._halves(rows, np.zeros(4, dtype=int), np.zeros(4, dtype=bool), [0], 0)]
    assert len(found) == n_splits  # the gain of two pairs is their squared distance


def test_two_free_images_leave_the_fixed_ones_and_one_does_not():
    rows = at_degrees(0, 1, 2, 90, 91)
    assert halves(rows, np.arange(5) < 3)[1] == [3, 4]
    four = np.arange(5) < 4
    assert not [*trees._halves(rows, np.zeros(5, dtype=int), four, [0], 0)]


def test_free_images_that_are_like_the_fixed_ones_stay():
    rows = at_degrees(*[0] * 4, *[25] * 10, *[90] * 4)
    assert halves(rows, np.arange(18) < 4)[1] == [14, 15, 16, 17]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_larger_half_stays(seed, turned):
    rows = at_degrees(*[0] * 4, *[90] * 6)
    expected = [0, 1, 2, 3]
    if turned:
        rows, expected = rows.flip(0), [6, 7, 8, 9]
    none = np.zeros(10, dtype=bool)
    _, leaving = trees._in_two(rows, np.arange(10), none, seed)
    assert leaving.tolist() == expected


@pytest.mark.parametrize("first", [0, 1])
def test_the_larger_half_stays_whichever_cluster_it_is(monkeypatch, first):
    ends = at_degrees(0, 90)[[first, 1 - first]]
    monkeypatch.setattr(trees, "kmeans", lambda *_, **__: SimpleNamespace(centroids=ends))
    rows = at_degrees(*[0] * 4, *[90] * 6)
    _, leaving = trees._in_two(rows, np.arange(10), np.zeros(10, dtype=bool), 0)
    assert leaving.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("first", [0, 1])
def test_of_equal_halves_the_first_cluster_stays(monkeypatch, first):
    ends = at_degrees(0, 90)[[first, 1 - first]]
    monkeypatch.setattr(trees, "kmeans", lambda *_, **__: SimpleNamespace(centroids=ends))
    rows = at_degrees(*[0] * 3, *[90] * 3)
    staying, _ = trees._in_two(rows, np.arange(6), np.zeros(6, dtype=bool), 0)
    assert staying.tolist() == ([0, 1, 2], [3, 4, 5])[first]


def rows_looked_at(monkeypatch, n, fixed):
    given = []

    def recorded(rows, *_, **__):
        given.extend(rows[:, 0].tolist())
        return SimpleNamespace(centroids=torch.tensor([[0.0], [n]]))

    monkeypatch.setattr(trees, "kmeans", recorded)
    rows = torch.arange(n, dtype=torch.float32)[:, None]
    trees._in_two(rows, np.arange(n), np.isin(np.arange(n), fixed), 0)
    return given


def test_up_to_5000_images_say_where_a_class_splits(monkeypatch):
    assert rows_looked_at(monkeypatch, 12, []) == list(range(12))
    assert rows_looked_at(monkeypatch, 10_000, [1]) == list(range(0, 10_000, 2))


def test_free_images_are_looked_at_where_nearly_all_are_fixed(monkeypatch):
    monkeypatch.setattr(trees, "SAMPLE", 2)
    fixed = [row for row in range(10) if row not in (3, 7, 8)]
    assert rows_looked_at(monkeypatch, 10, fixed) == [0, 3, 5, 7]
