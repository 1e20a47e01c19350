"""Profiles, known and novel classes, labeled and unlabeled images: counts, identity, files."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.config import UserError
from bacon_gcd.data.datasets import load_dataset
from bacon_gcd.data.images import from_arrays
from bacon_gcd.data.longtail import (
    CIFAR10_RANKS,
    CIFAR100_RANKS,
    Plan,
    Split,
    SplitSettings,
    class_totals,
    draw_ranks,
    hide_labels,
    labeled_count,
    long_tail_counts,
    make_split,
    pareto_counts,
    plan_counts,
)
from tests.reference.labeled_half import literal_halves

# Spec 1.1, checked there against the authors' 24 index files: D_l, D_u known, D_u novel, total,
# largest class, smallest class, steps per epoch at 256.
RELEASED = {
    ("cifar10-lt", 20): (5351, 5348, 4619, 15318, 4500, 225, 59),
    ("cifar10-lt", 50): (4802, 4801, 2993, 12596, 4500, 90, 49),
    ("cifar10-lt", 100): (4494, 4490, 2181, 11165, 4500, 45, 43),
    ("cifar10-lt", 150): (4339, 4337, 1820, 10496, 4500, 30, 41),
    ("cifar100-lt", 20): (5579, 5540, 3196, 14315, 450, 22, 55),
    ("cifar100-lt", 50): (4418, 4371, 2560, 11349, 450, 9, 44),
    ("cifar100-lt", 100): (3788, 3754, 2212, 9754, 450, 4, 38),
    ("cifar100-lt", 150): (3504, 3459, 2048, 9011, 450, 3, 35),
}
CIFAR10_TOTALS = {
    20: [4500, 437, 2312, 225, 3225, 1188, 851, 610, 1657, 313],
    50: [4500, 214, 1886, 90, 2913, 790, 512, 331, 1221, 139],
    100: [4500, 125, 1617, 45, 2697, 581, 348, 208, 969, 75],
    150: [4500, 91, 1477, 30, 2578, 485, 278, 159, 846, 52],
}


def tiny_table(sizes, *, n_test=2, shuffle=None):
    """One-pixel images, all different; class c has sizes[c] training and n_test test images."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    if shuffle is not None:
        labels = np.random.default_rng(shuffle).permutation(labels)
    labels = np.concatenate([labels, np.repeat(np.arange(len(sizes)), n_test)])
    pixels = np.arange(len(labels), dtype="<u4").view(np.uint8).reshape(-1, 1, 4)[:, :, :3]
    splits = ["train"] * sum(sizes) + ["test"] * (len(labels) - sum(sizes))
    names = [f"class {c}" for c in range(len(sizes))]
    return from_arrays(pixels.reshape(-1, 1, 1, 3).copy(), labels, names, splits=splits)


def sizes_of(split):
    return tuple(
        len(rows) for rows in (split.labeled, split.unlabeled_known, split.unlabeled_novel)
    )


# Counts


@pytest.mark.parametrize(("dataset", "ratio"), RELEASED)
def test_counts_of_cifar_are_the_released_ones(dataset, ratio):
    plan = plan_counts(SplitSettings(dataset=dataset, ratio=ratio))
    known = len(plan.known)
    assert known == {"cifar10-lt": 5, "cifar100-lt": 80}[dataset]
    assert (
        sum(plan.labeled),
        sum(plan.unlabeled[:known]),
        sum(plan.unlabeled[known:]),
        sum(plan.totals),
        max(plan.totals),
        min(plan.totals),
        sum(plan.totals) // 256,
    ) == RELEASED[dataset, ratio]


@pytest.mark.parametrize("ratio", CIFAR10_TOTALS)
def test_class_totals_of_cifar10_are_the_released_ones(ratio):
    assert class_totals(long_tail_counts(4500, 10, ratio), CIFAR10_RANKS) == CIFAR10_TOTALS[ratio]


def test_ranks_of_the_paper_name_every_class_once():
    assert sorted(CIFAR10_RANKS) == list(range(10))
    assert sorted(CIFAR100_RANKS) == list(range(100))


@given(st.integers(1, 500), st.integers(1, 60), st.floats(1, 500))
@settings(max_examples=60, deadline=None)
def test_the_exponential_profile_falls_from_n_max_to_its_ratio(n_max, n_classes, ratio):
    ratio = min(ratio, n_max)
    counts = long_tail_counts(n_max, n_classes, ratio)
    assert len(counts) == n_classes
    assert counts[0] == n_max
    assert counts == sorted(counts, reverse=True)
    assert min(counts) >= 1
    if n_classes > 1:
        assert counts[-1] == math.floor(n_max / ratio + 1e-9)


def test_rounding_noise_costs_no_image():
    assert long_tail_counts(1000, 4, 1000) == [1000, 100, 10, 1]
    assert labeled_count(100, 0.07) == 7  # 0.07 * 100 is 7.000000000000001


@pytest.mark.parametrize("ratio", [0.5, 451, float("nan")])
def test_a_ratio_that_leaves_a_class_empty_is_refused(ratio):
    with pytest.raises(UserError, match="out of range; choose from 1 to n_max = 450"):
        long_tail_counts(450, 100, ratio)


@pytest.mark.parametrize(("n_max", "n_min", "n_classes"), [(1280, 5, 100), (4980, 5, 365)])
def test_the_pareto_profile_meets_both_ends_of_the_paper(n_max, n_min, n_classes):
    counts = pareto_counts(n_max, n_min, n_classes)
    assert (counts[0], counts[-1], len(counts)) == (n_max, n_min, n_classes)
    assert counts == sorted(counts, reverse=True)
    power = math.log(n_max / n_min) / math.log(n_classes)
    assert counts[1] == math.floor(n_max * 2**-power)
    assert counts[9] == math.floor(n_max * 10**-power)


def test_pareto_of_one_class_is_its_largest():
    assert pareto_counts(7, 2, 1) == [7]


def test_a_class_too_small_for_its_rank_stands_back():
    for seed in range(5):
        ranks = draw_ranks([9, 5, 2], [3, 9, 6], seed=seed)
        assert ranks == [1, 2, 0]
    assert len({tuple(draw_ranks([9, 5, 2], None, seed=seed)) for seed in range(20)}) > 1


@given(st.integers(1, 400), st.floats(0.001, 1.0))
@settings(max_examples=100, deadline=None)
def test_the_labeled_share_is_rounded_up_and_never_empty(n_images, share):
    n_labeled = labeled_count(n_images, share)
    assert 1 <= n_labeled <= n_images
    assert n_labeled - 1 < share * n_images + 1e-6
    assert n_labeled >= share * n_images - 1e-6
    assert labeled_count(n_images, 0.5) == n_images - n_images // 2


def test_different_ratios_shape_labeled_and_unlabeled_images():
    """Spec 1.14: labeled ceil(n_l / 2), unlabeled-known floor(n_u / 2), novel n_u."""
    plan = plan_counts(
        SplitSettings(dataset="cifar10-lt", ratio=7, labeled_ratio=20, unlabeled_ratio=150)
    )
    first, second = CIFAR10_TOTALS[20], CIFAR10_TOTALS[150]
    assert list(plan.labeled) == [-(-n // 2) for n in first[:5]] + [0] * 5
    assert list(plan.unlabeled) == [n // 2 for n in second[:5]] + second[5:]


def test_the_balanced_counterpart_has_100_of_every_class():
    plan = plan_counts(SplitSettings(dataset="cifar100-lt", profile="balanced"))
    assert set(plan.totals) == {100}
    assert set(plan.labeled[:80]) == {50}
    assert plan.labeled[80:] == (0,) * 20


@pytest.mark.parametrize(("share", "expected"), [(0.1, 45), (0.3, 135)])
def test_fewer_labels_take_from_the_labeled_part_only(share, expected):
    half = plan_counts(SplitSettings(dataset="cifar100-lt"))
    fewer = plan_counts(SplitSettings(dataset="cifar100-lt", labeled_share=share))
    assert fewer.totals == half.totals
    assert fewer.labeled[5] == expected
    assert min(fewer.labeled[:80]) == {0.1: 1, 0.3: 2}[share]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dataset": "cifar"}, "dataset 'cifar' is not known; choose from cifar10-lt"),
        ({"profile": "flat"}, "profile 'flat' is not known; choose from exp, pareto"),
        ({"profile": "balanced", "ratio": 10}, "ratio has no meaning for the profile 'balanced'"),
        ({"n_min": 3}, "n_min has no meaning for the profile 'exp'"),
        ({"labeled_share": 0}, "labeled share 0"),
        ({"labeled_share": 1.1}, "labeled share 1.1"),
        ({"known": 0}, "known classes 0 do not fit a dataset of 10"),
        ({"known": (2, 10)}, r"known classes \(2, 10\) do not fit a dataset of 10"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"profile": "listed"}, "counted from its images"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(wrong, message):
    with pytest.raises(UserError, match=message) as error:
        plan_counts(SplitSettings(**{"dataset": "cifar10-lt"} | wrong))
    assert "\n" not in str(error.value)


# Splits


def settings_of_own(**changes):
    return SplitSettings(**{"profile": "exp", "ratio": 5, "n_max": 10, "known": 3} | changes)


@st.composite
def any_settings(draw):
    n_classes = draw(st.integers(2, 6))
    profile = draw(st.sampled_from(["exp", "pareto", "balanced", "listed"]))
    shape = {
        "exp": {"n_max": 12, "labeled_ratio": draw(st.floats(1, 12)), "ratio": 6},
        "pareto": {"n_max": 12, "n_min": draw(st.integers(1, 12))},
        "balanced": {"per_class": draw(st.integers(1, 12))},
        "listed": {},
    }[profile]
    known = draw(st.sets(st.integers(0, n_classes - 1), min_size=1))
    share = draw(st.floats(0.01, 1))
    return n_classes, SplitSettings(
        profile=profile,
        known=tuple(known),
        labeled_share=share,
        seed=draw(st.integers(0, 9)),
        **shape,
    )


@given(any_settings(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_every_split_is_disjoint_has_the_planned_counts_and_hides_novel_classes(drawn, shuffle):
    n_classes, chosen = drawn
    table = tiny_table([12] * n_classes, shuffle=shuffle)
    split = make_split(table, chosen)
    plan = plan_counts(chosen, [12] * n_classes)
    assert Plan.of(split, table) == plan
    rows = np.concatenate([split.train, split.test])
    assert len(np.unique(rows)) == len(rows)
    assert {table.splits[row] for row in split.train} == {"train"}
    assert {table.splits[row] for row in split.test} == {"test"}
    known = set(chosen.known)
    assert set(table.labels[split.labeled]) == known
    assert set(table.labels[split.unlabeled_known]) <= known
    assert not set(table.labels[split.unlabeled_novel]) & known
    assert all(plan.labeled[c] >= 1 for c in known)
    assert sorted(split.class_order) == list(range(n_classes))
    assert split.class_order[: split.n_known] == tuple(sorted(known))
    assert make_split(table, chosen).hash == split.hash


@given(st.integers(0, 50), st.integers(51, 99))
@settings(max_examples=15, deadline=None)
def test_the_seed_changes_identities_but_not_counts(seed, other):
    table = tiny_table([30, 30, 30])
    chosen = settings_of_own(profile="balanced", ratio=None, n_max=None, per_class=10, known=2)
    first, second = (
        make_split(table, SplitSettings(**vars(chosen) | {"seed": s})) for s in (seed, other)
    )
    assert Plan.of(first, table) == Plan.of(second, table)
    assert set(first.train) != set(second.train)
    assert first.hash != second.hash


def test_images_of_a_class_do_not_depend_on_other_classes():
    together, apart = tiny_table([20, 20, 20], shuffle=1), tiny_table([20, 20, 20], shuffle=2)
    chosen = settings_of_own(profile="balanced", ratio=None, n_max=None, per_class=5, known=2)
    for class_id in range(3):
        places = []
        for table in (together, apart):
            mine = np.flatnonzero((table.labels == class_id) & (np.array(table.splits) == "train"))
            taken = [row for row in make_split(table, chosen).train if row in set(mine)]
            places.append(np.searchsorted(mine, taken).tolist())
        assert places[0] == places[1]


def test_classes_are_drawn_independently_of_each_other():
    split = make_split(tiny_table([20, 20]), SplitSettings(known=(0,), seed=4))
    first = np.concatenate([split.labeled, split.unlabeled_known])
    assert first.tolist() != (split.unlabeled_novel - 20).tolist()


@pytest.mark.parametrize("known", [101, 10**9, 10**20])
def test_more_known_classes_than_there_are_is_refused_without_counting_to_it(known):
    with pytest.raises(UserError, match=f"known classes {known} do not fit a dataset of 100"):
        plan_counts(SplitSettings(dataset="cifar100-lt", known=known))


def test_known_classes_may_be_named_in_any_order():
    plan = plan_counts(SplitSettings(dataset="cifar100-lt", known=(80, 3, 80)))
    assert plan.known == (3, 80)
    assert [c for c, n in enumerate(plan.labeled) if n] == [3, 80]


def test_a_shorter_tail_contains_the_longer_one():
    table = tiny_table([40, 40, 40], shuffle=3)
    images = [set(make_split(table, settings_of_own(n_max=40, ratio=r)).train) for r in (10, 4, 2)]
    assert images[0] < images[1] < images[2]


def test_too_few_images_name_the_class_what_it_needs_and_what_is_there():
    table = tiny_table([10] * 9 + [3])
    chosen = SplitSettings(dataset="cifar10-lt", n_max=10, ratio=2)
    with pytest.raises(UserError, match=r"class 9 \(class 9\) needs 5 training images, 3 are"):
        make_split(table, chosen)


def test_a_table_of_ones_own_is_taken_whole_and_must_say_what_is_known():
    table = tiny_table([5, 1, 2])
    split = make_split(table, SplitSettings(known=(0, 1)))
    assert sizes_of(split) == (4, 2, 2)  # 3 + 1 labeled: a single image is labeled
    assert not np.array_equal(
        split.train, make_split(table, SplitSettings(known=(0, 1), seed=1)).train
    )
    with pytest.raises(UserError, match="say how many classes are known"):
        make_split(table, SplitSettings())


def test_images_without_a_label_are_in_no_part():
    whole = tiny_table([4, 4])
    labels = whole.labels.copy()
    labels[[0, 9]] = -1  # one training image, one test image
    table = from_arrays(
        np.zeros((12, 1, 1, 3), dtype=np.uint8), labels, whole.class_names, splits=whole.splits
    )
    split = make_split(table, SplitSettings(known=1))
    assert sorted([*split.train, *split.test]) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert split.true_labels(table, np.array([0, 7, 9])).tolist() == [-1, 1, -1]


def test_labels_are_numbered_known_first():
    table = tiny_table([6, 6, 6])
    split = make_split(table, SplitSettings(known=(2,), labeled_share=0.5))
    assert split.class_order == (2, 0, 1)
    assert (split.n_known, split.n_classes) == (1, 3)
    assert split.visible_labels(table).tolist() == [0] * 3 + [-1] * 15
    assert split.true_labels(table, split.train).tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert split.train_counts(table).tolist() == [6, 6, 6]
    assert split.train.tolist() == [
        *split.labeled, *split.unlabeled_known, *split.unlabeled_novel
    ]  # fmt: skip


def test_hide_labels_keeps_the_first_half_rounded_up_and_shows_no_novel_class():
    members = {1: np.array([7, 5, 6]), 0: np.array([1, 2, 3]), 4: np.array([9])}
    parts = hide_labels(members, known=[0, 4], share=0.5)
    assert parts.labeled.tolist() == [1, 2, 9]
    assert parts.unlabeled_known.tolist() == [3]
    assert parts.unlabeled_novel.tolist() == [7, 5, 6]
    with pytest.raises(UserError, match=r"known classes \[3\] have no images"):
        hide_labels(members, known=[0, 3], share=0.5)


@pytest.mark.parametrize(
    ("dataset", "n_classes", "n_known"), [("imagenet100-lt", 100, 50), ("places-lt", 365, 182)]
)
def test_a_published_list_is_split_by_the_authors_draw(dataset, n_classes, n_known):
    sizes = [300 // (c + 1) + 2 for c in range(n_classes)]
    table = tiny_table(sizes, n_test=1, shuffle=5)
    split = make_split(table, SplitSettings(dataset=dataset, seed=7))  # whatever the seed
    state = np.random.get_state()  # noqa: NPY002 (the literal version seeds the global one)
    try:
        lines = table.labels[: sum(sizes)].tolist()
        labeled, hidden, novel = literal_halves(lines, set(range(n_known)))
    finally:
        np.random.set_state(state)  # noqa: NPY002
    assert split.labeled.tolist() == labeled
    assert split.unlabeled_known.tolist() == hidden
    assert split.unlabeled_novel.tolist() == novel
    assert split.settings["profile"] == "listed"
    other = make_split(table, SplitSettings(dataset=dataset, labeled_share=0.2))
    assert len(other.labeled) < len(split.labeled)


def test_the_authors_draw_leaves_the_global_generator_alone():
    table = tiny_table([50 - 5 * c for c in range(10)] * 10, n_test=1)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make_split(table, SplitSettings(dataset="imagenet100-lt"))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_flat_folders_of_a_listed_dataset_get_the_pareto_profile():
    table = tiny_table([14 + c % 7 for c in range(100)], n_test=1)
    split = make_split(table, SplitSettings(dataset="imagenet100-lt", n_max=20, n_min=2))
    assert split.settings["profile"] == "pareto"
    assert sorted(split.train_counts(table), reverse=True) == pareto_counts(20, 2, 100)
    assert split.n_known == 50


# Files


@pytest.mark.parametrize("name", ["split.json", "split.npz"])
def test_a_saved_split_comes_back_equal(tmp_path, name):
    table = tiny_table([9, 8, 7])
    split = make_split(table, settings_of_own(n_max=7))
    split.save(tmp_path / name)
    again = Split.load(tmp_path / name)
    assert again.hash == split.hash
    assert again.settings == split.settings
    assert again.class_order == split.class_order
    assert again.labeled.dtype == np.int64
    assert np.array_equal(again.train, split.train)
    again.check(table)
    with pytest.raises(UserError, match="these have"):
        again.check(tiny_table([9, 8, 8]))


@pytest.mark.parametrize("field", ["labeled", "test", "class_order", "n_known", "fingerprint"])
def test_an_edited_split_is_refused_in_one_line(tmp_path, field):
    path = tmp_path / "split.json"
    make_split(tiny_table([9, 8, 7]), settings_of_own(n_max=7)).save(path)
    stored = json.loads(path.read_text())
    value = stored[field]
    stored[field] = value[::-1] if isinstance(value, list | str) else value - 1
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"split\.json: changed since it was saved"):
        Split.load(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"not json", b'{"hash": "x", "more": 1}'])
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_file_that_is_no_split_is_refused_in_one_line(tmp_path, content, suffix):
    path = tmp_path / f"wrong{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a split file") as error:
        Split.load(path)
    assert "\n" not in str(error.value)


def test_missing_files_and_other_suffixes_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        Split.load(tmp_path / "none.json")
    split = make_split(tiny_table([3, 3]), SplitSettings(known=1))
    with pytest.raises(UserError, match=r"'\.pkl' is not known; choose from \.json, \.npz"):
        split.save(tmp_path / "split.pkl")


def test_the_hash_sees_rows_order_known_classes_and_table():
    rows = {"labeled": [0], "unlabeled_known": [1], "unlabeled_novel": [2], "test": [3]}
    base = {k: np.array(v) for k, v in rows.items()} | {"class_order": (0, 1), "n_known": 1}
    changes = [{}, {"n_known": 2}, {"class_order": (1, 0)}, {"fingerprint": "x"}]
    changes += [{name: np.array([9])} for name in rows]
    hashes = {Split(**base | change).hash for change in changes}
    assert len(hashes) == len(changes)
    assert Split(**base, settings={"seed": 3}).hash == Split(**base).hash


# Real images


@pytest.mark.shared
@pytest.mark.parametrize(
    ("dataset", "ratio"), [("cifar10-lt", 100)] + [("cifar100-lt", r) for r in (20, 50, 100, 150)]
)
def test_splits_of_the_real_images_have_the_released_counts(dataset, ratio):
    table = real_table(dataset)
    split = make_split(table, SplitSettings(dataset=dataset, ratio=ratio))
    assert (*sizes_of(split), len(split.train)) == RELEASED[dataset, ratio][:4]
    assert len(split.test) == 10_000
    assert split.n_known == {"cifar10-lt": 5, "cifar100-lt": 80}[dataset]


@pytest.mark.shared
def test_the_real_balanced_counterpart_has_100_of_every_class():
    table = real_table("cifar100-lt")
    split = make_split(table, SplitSettings(dataset="cifar100-lt", profile="balanced"))
    assert sizes_of(split) == (4000, 4000, 2000)


TABLES = {}


def real_table(dataset):
    folder = Path(os.environ.get("BACON_DATA") or Path(__file__).parents[3] / "shared" / "data")
    stem = dataset.removesuffix("-lt")
    if not list(folder.glob(f"{stem}*")):
        pytest.skip(f"no {stem} in BACON_DATA or ../shared/data")
    if dataset not in TABLES:
        TABLES[dataset] = load_dataset(dataset, folder)
    return TABLES[dataset]
