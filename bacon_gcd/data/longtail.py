"""How long the tail is, which classes are known, which images are labeled. BaCon App. C and E."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError, choose
from bacon_gcd.data.datasets import CIFAR10_RANKS as CIFAR10_RANKS
from bacon_gcd.data.datasets import CIFAR100_RANKS as CIFAR100_RANKS
from bacon_gcd.data.datasets import FOLDER, Dataset, EmbeddedFiles, find_dataset
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.split import Parts as Parts
from bacon_gcd.data.split import Split as Split
from bacon_gcd.data.split import join

IntArray = npt.NDArray[np.int64]
Value = TypeVar("Value")
RELEASED_SEED = 416  # of the labeled half of ImageNet-100-LT in the authors' code
ROUNDING = 1e-9  # what floating point may miss by; it must neither cost nor add an image

PROFILES: dict[str, set[str]] = {
    "exp": {"ratio", "labeled_ratio", "unlabeled_ratio", "n_max"},
    "pareto": {"n_max", "n_min"},
    "balanced": {"per_class"},
    "listed": set(),
}
"""Profile -> the settings that shape it. "listed" takes every image of the table."""


def long_tail_counts(n_max: int, n_classes: int, ratio: float) -> list[int]:
    """Images at rank i = 0..C-1: floor(n_max ratio^(-i/(C-1))). BaCon App. C.1, released code."""
    if not 1 <= ratio <= n_max:
        raise UserError(f"ratio {ratio:g} is out of range; choose from 1 to n_max = {n_max}")
    last = max(n_classes - 1, 1)
    return [math.floor(n_max * ratio ** (-i / last) + ROUNDING) for i in range(n_classes)]


def pareto_counts(n_max: int, n_min: int, n_classes: int) -> list[int]:
    """Images at rank i: n_max (i+1)^-a, with a such that the last class has n_min. Ours.

    The paper (App. C.1) says "Pareto" and gives the two ends; the form between is our choice.
    """
    if not 1 <= n_min <= n_max:
        raise UserError(f"n_min {n_min} is out of range; choose from 1 to n_max = {n_max}")
    power = math.log(n_max / n_min) / math.log(n_classes) if n_classes > 1 else 0.0
    counts = (math.floor(n_max * (i + 1) ** -power + ROUNDING) for i in range(n_classes))
    return [max(n_min, count) for count in counts]


def class_totals(counts: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """Images of each class id, when class `ranks[i]` stands at rank i. BaCon App. C.1."""
    if sorted(ranks) != list(range(len(counts))):
        raise ValueError(f"ranks must name each of the {len(counts)} classes once")
    totals = [0] * len(counts)
    for class_id, count in zip(ranks, counts, strict=True):
        totals[class_id] = count
    return totals


def draw_ranks(counts: Sequence[int], sizes: Sequence[int] | None, *, seed: int) -> list[int]:
    """Class id at each rank, by seed; a class too small for a rank stands back. Ours."""
    waiting: list[int] = np.random.default_rng(seed).permutation(len(counts)).tolist()
    ranks: list[int] = []
    for count in counts:
        fits = (c for c in waiting if sizes is None or sizes[c] >= count)
        ranks.append(next(fits, waiting[0]))
        waiting.remove(ranks[-1])
    return ranks


def labeled_count(n_images: int, share: float) -> int:
    """Labeled images of a known class: ceil(share n), at least one. BaCon App. C.2."""
    return min(n_images, max(1, math.ceil(share * n_images - ROUNDING)))


@dataclass(frozen=True)
class SplitSettings:
    """How a table is split. None means: the dataset's own value."""

    dataset: str = ""
    """Name of a dataset, folder:PATH, or empty for a table of one's own."""
    profile: str | None = None
    """exp, pareto, balanced or listed (every image of the table)."""
    ratio: float | None = None
    """Largest over smallest class of the exponential profile; 100 unless said."""
    labeled_ratio: float | None = None
    """Ratio of the labeled images where it differs (rho_l)."""
    unlabeled_ratio: float | None = None
    """Ratio of the unlabeled images where it differs (rho_u)."""
    n_max: int | None = None
    """Images of the largest class."""
    n_min: int | None = None
    """Images of the smallest class of the Pareto profile."""
    per_class: int | None = None
    """Images of every class of the balanced profile; 100 unless said."""
    known: int | float | tuple[int, ...] | None = None
    """How many classes are known (the first ids), their share (below 1), or which."""
    labeled_share: float = 0.5
    """Share of each known class that is labeled, over 0 and up to 1."""
    seed: int = 0
    """Decides which images are taken, and the ranks of classes the paper gives none for."""

    def complete(self, sizes: Sequence[int] | None = None) -> SplitSettings:
        """The same with every None that matters filled in. sizes: images per class, if known."""
        paper = find_dataset(self.dataset) if self.dataset else None
        if not 0 < self.labeled_share <= 1:
            raise UserError(f"labeled share {self.labeled_share:g} is not over 0 and at most 1")
        if self.seed < 0:
            raise UserError(f"seed {self.seed} is negative")
        shaped = any(getattr(self, name) is not None for name in PROFILES["exp"])
        own_profile = "exp" if paper is None and shaped else _own_profile(paper, sizes)
        profile = choose("profile", self.profile or own_profile, PROFILES)
        for name in sorted(set().union(*PROFILES.values()) - PROFILES[profile]):
            if getattr(self, name) is not None:
                raise UserError(f"{name} has no meaning for the profile {profile!r}")
        own = _own_values(profile, paper, sizes, self.ratio)
        filled = {name: value for name, value in own.items() if getattr(self, name) is None}
        known = _known_classes(self._known_default(), paper, _class_number(paper, sizes))
        return replace(self, profile=profile, known=known, **filled)

    def refuse_changes(self) -> None:
        """Refuse settings of a split that is fixed: they would have no effect."""
        plain = SplitSettings(dataset=self.dataset, seed=self.seed)
        changed = [name for name, value in asdict(plain).items() if getattr(self, name) != value]
        if changed:
            raise UserError(f"{self.dataset} has a fixed split; {', '.join(changed)} cannot change")

    def _known_default(self) -> int | float | tuple[int, ...] | None:
        is_folder = self.dataset.startswith(FOLDER)
        return 0.5 if self.known is None and is_folder else self.known


def _own_profile(paper: Dataset | None, sizes: Sequence[int] | None) -> str:
    """The dataset's profile; what is long-tailed already, as published lists, stays as it is."""
    if paper is None:
        return "listed"
    # In folders of ImageNet and Places the largest class is not even twice the smallest.
    long_tailed = sizes is not None and max(sizes) >= 10 * max(min(sizes), 1)
    return "listed" if paper.listed and long_tailed else paper.profile


def _own_values(
    profile: str, paper: Dataset | None, sizes: Sequence[int] | None, ratio: float | None
) -> dict[str, Any]:
    """What the settings of a profile are where the person says nothing."""
    if profile == "listed":
        return {}
    if profile == "balanced":
        return {"per_class": 100}  # D_b of BaCon Table 1
    if profile == "pareto":
        n_max = paper.n_max if paper else min(sizes or [0])
        return {"n_max": n_max, "n_min": (paper and paper.n_min) or 5}
    ratio = 100.0 if ratio is None else ratio
    n_max = paper.n_max if paper else largest_class(sizes or [0], ratio)
    return {"n_max": n_max, "ratio": ratio, "labeled_ratio": ratio, "unlabeled_ratio": ratio}


def largest_class(sizes: Sequence[int], ratio: float) -> int:
    """The largest n_max whose exponential profile classes of these sizes can fill. Ours."""
    ranked = sorted(sizes, reverse=True)

    def too_large(n_max: int) -> bool:
        counts = long_tail_counts(n_max, len(ranked), ratio)
        return any(size < count for size, count in zip(ranked, counts, strict=True))

    candidates = range(math.ceil(max(ratio, 1.0)), ranked[0] + 1)
    n_fitting = bisect_left(candidates, True, key=too_large)
    if n_fitting == 0:
        raise UserError(
            f"ratio {ratio:g} is too large for classes of {ranked[-1]} to {ranked[0]} images"
        )
    return candidates[n_fitting - 1]


def _class_number(paper: Dataset | None, sizes: Sequence[int] | None) -> int:
    if sizes is not None:
        return len(sizes)
    if paper is None:
        raise UserError("counts without images need one of the paper's datasets")
    return paper.n_classes


def _known_classes(
    known: int | float | tuple[int, ...] | None, paper: Dataset | None, n_classes: int
) -> tuple[int, ...]:
    if known is None:
        if paper is None:
            raise UserError("say how many classes are known, or which")
        known = paper.n_known
    if isinstance(known, float):
        if not 0 < known < 1:
            raise UserError(f"known share {known:g} is not between 0 and 1")
        known = max(1, round(known * n_classes))
    first = min(known, n_classes + 1) if isinstance(known, int) else 0  # no more can be right
    class_ids = tuple(range(first)) if isinstance(known, int) else tuple(sorted(set(known)))
    if not class_ids or class_ids[0] < 0 or class_ids[-1] >= n_classes:
        raise UserError(f"known classes {known} do not fit a dataset of {n_classes} classes")
    return class_ids


@dataclass(frozen=True)
class Plan:
    """How many images of each class a split takes. Indexed by the dataset's class ids."""

    labeled: tuple[int, ...]
    unlabeled: tuple[int, ...]
    known: tuple[int, ...]

    @property
    def totals(self) -> tuple[int, ...]:
        """Images of each class, labeled or not."""
        return tuple(map(sum, zip(self.labeled, self.unlabeled, strict=True)))

    @classmethod
    def of(cls, split: Split, table: ImageTable) -> Plan:
        """The counts that a split really has."""
        n_classes = len(table.class_names)
        unlabeled = join([split.unlabeled_known, split.unlabeled_novel])
        labeled, hidden = (
            tuple(np.bincount(table.labels[rows], minlength=n_classes).tolist())
            for rows in (split.labeled, unlabeled)
        )
        return cls(labeled, hidden, split.class_order[: split.n_known])


def plan_counts(settings: SplitSettings, sizes: Sequence[int] | None = None) -> Plan:
    """Counts of every class, without any image. sizes: training images there are of each class.

    Known classes: ceil(share n) labeled of n under the labeled ratio, the rest of n under the
    unlabeled ratio. Novel classes: n under the unlabeled ratio. BaCon App. C.2, E.
    """
    settings = settings.complete(sizes)
    known, share = _said(settings.known), settings.labeled_share
    assert isinstance(known, tuple)
    labeled, unlabeled = [], []
    for class_id, (first, second) in enumerate(_profile_totals(settings, sizes)):
        is_known = class_id in set(known)
        labeled.append(labeled_count(first, share) if is_known else 0)
        unlabeled.append(second - (labeled_count(second, share) if is_known else 0))
    return Plan(tuple(labeled), tuple(unlabeled), known)


def _profile_totals(settings: SplitSettings, sizes: Sequence[int] | None) -> list[tuple[int, int]]:
    """(images under the labeled ratio, under the unlabeled ratio) of each class id."""
    paper = find_dataset(settings.dataset) if settings.dataset else None
    n_classes = _class_number(paper, sizes)
    match settings.profile:
        case "listed":
            if sizes is None:
                raise UserError(f"{settings.dataset}: a listed profile is counted from its images")
            return [(size, size) for size in sizes]
        case "balanced":
            return [(_said(settings.per_class),) * 2] * n_classes
        case "pareto":
            first = second = pareto_counts(_said(settings.n_max), _said(settings.n_min), n_classes)
        case _:
            n_max = _said(settings.n_max)
            first = long_tail_counts(n_max, n_classes, _said(settings.labeled_ratio))
            second = long_tail_counts(n_max, n_classes, _said(settings.unlabeled_ratio))
    ranks = paper.ranks if paper and settings.profile == "exp" else ()
    ranks = ranks or tuple(draw_ranks(list(map(max, first, second)), sizes, seed=settings.seed))
    return list(zip(class_totals(first, ranks), class_totals(second, ranks), strict=True))


def _said(value: Value | None) -> Value:
    assert value is not None, "SplitSettings.complete fills what the profile needs"
    return value


def hide_labels(members: Mapping[int, IntArray], *, known: Collection[int], share: float) -> Parts:
    """Keep the labels of `share` of every known class; novel classes show none. BaCon App. C.2.

    members: class id -> rows of that class, already cut to the long tail and shuffled.
    """
    return _deal(members, {c: labeled_count(len(members.get(c, ())), share) for c in known})


def _deal(members: Mapping[int, IntArray], n_labeled: Mapping[int, int]) -> Parts:
    """Cut each known class (a key of `n_labeled`) behind its labeled rows."""
    if missing := sorted(c for c in n_labeled if len(members.get(c, ())) == 0):
        raise UserError(f"known classes {missing} have no images; classes are {sorted(members)}")
    known = {c: members[c] for c in sorted(n_labeled)}
    return Parts(
        join([rows[: n_labeled[c]] for c, rows in known.items()]),
        join([rows[n_labeled[c] :] for c, rows in known.items()]),
        join([rows for c, rows in sorted(members.items()) if c not in known]),
    )


def make_split(table: ImageTable, settings: SplitSettings) -> Split:
    """Cut a table to the profile, then hide labels. BaCon §3, App. C.2.

    Images inside a class are drawn by (seed, class): nested across ratios, and untouched by
    whatever happens to other classes. A dataset that comes with its split has no other.
    """
    dataset = find_dataset(settings.dataset) if settings.dataset else None
    if dataset is not None and isinstance(dataset.files, EmbeddedFiles):
        settings.refuse_changes()
        return dataset.files.split(table)
    rows = class_rows(table)
    sizes = [len(members) for members in rows.values()]
    settings = settings.complete(sizes)
    plan = plan_counts(settings, sizes)
    _check_sizes(plan, sizes, table)
    if _released(settings):
        parts = released_halves(rows, known=plan.known)
    else:
        members = {
            c: np.random.default_rng([settings.seed, c]).permutation(ids)[: plan.totals[c]]
            for c, ids in rows.items()
        }
        parts = _deal(members, {c: plan.labeled[c] for c in plan.known})
    return assemble(table, parts, known=plan.known, settings=asdict(settings))


def class_rows(table: ImageTable) -> dict[int, IntArray]:
    """Training rows of each class id, in table order."""
    labels = np.where(np.array(table.splits) == "train", table.labels, -1)
    return {c: np.flatnonzero(labels == c) for c in range(len(table.class_names))}


def _check_sizes(plan: Plan, sizes: Sequence[int], table: ImageTable) -> None:
    """Refuse a profile that asks a class for more images than there are; name the worst case."""
    lacking = [needed - present for needed, present in zip(plan.totals, sizes, strict=True)]
    worst = max(range(len(sizes)), key=lacking.__getitem__)
    if lacking[worst] > 0:
        raise UserError(
            f"class {worst} ({table.class_names[worst]}) needs {plan.totals[worst]} "
            f"training images, {sizes[worst]} are present"
        )


def _released(settings: SplitSettings) -> bool:
    """Whether the authors' own draw applies: a published list with half of it labeled."""
    paper = find_dataset(settings.dataset) if settings.dataset else None
    return (
        paper is not None
        and paper.listed
        and settings.profile == "listed"
        and settings.labeled_share == 0.5
    )


def released_halves(rows: Mapping[int, IntArray], *, known: Collection[int]) -> Parts:
    """The labeled half of a published list as the authors draw it, whatever the seed. App. C.2.

    Of each known class, ascending, floor(n/2) rows are drawn to be unlabeled and stay in draw
    order; the rest is labeled. numpy's legacy generator, without touching the global one.
    """
    legacy = np.random.RandomState(RELEASED_SEED)
    hidden = {c: legacy.choice(rows[c], len(rows[c]) // 2, replace=False) for c in sorted(known)}
    return Parts(
        join([np.setdiff1d(rows[c], drawn) for c, drawn in hidden.items()]),
        join(list(hidden.values())),
        join([rows[c] for c in sorted(rows) if c not in hidden]),
    )


def assemble(
    table: ImageTable, parts: Parts, *, known: Sequence[int], settings: Mapping[str, Any]
) -> Split:
    """A split from its training parts: class order, test rows and fingerprint added."""
    novel = (c for c in range(len(table.class_names)) if c not in set(known))
    test = table.rows("test")
    return Split(
        *parts,
        test=test[table.labels[test] >= 0],
        class_order=(*known, *novel),
        n_known=len(known),
        settings={k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        fingerprint=table.fingerprint,
    )
