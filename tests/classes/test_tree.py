"""The tree of classes: cuts nest, known classes stay apart, names follow the core parts."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_the_hand_made_tree_is_cut_as_written():
    tree = ClassTree(np.array([0, 1, 2, 2]), 3, (Join(0, 2, 0.1), Join(0, 1, 0.4)))
    assert tree.cut(2).tolist() == [0, 1, 0, 0]
    assert tree.cut(1).tolist() == [0, 0, 0, 0]
