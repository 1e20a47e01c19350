"""A tree of classes: every coarser and finer cut of a finished run, each inside the next."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import centered
from bacon_gcd.cluster import assign, kmeans
from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

MOST_SPLITS = 20  # finer cuts that are offered, or as many as there are classes
SAMPLE = 5_000  # images of a class that say where it splits; the others follow
LEAST_GAIN = 1e-6  # rounding is no reason to split


class Join(NamedTuple):
    """One step to a coarser cut: the part `gone` goes on as a piece of the part `kept`."""

    kept: int
    gone: int
    distance: float
    """Mean cosine distance between the images of one and those of the other, centered."""


@dataclass(frozen=True, eq=False)
class ClassTree:
    """P parts and the order in which they join, from the finest cut to the coarsest.

    Part c < C is the core part of class c of the run, where C is the run's number of classes; the
    parts from C on are split off from them by finer cuts. A class is named after its core part.
    """

    members: IntArray
    """(N,) part 0..P-1 of each row."""
    n_parts: int
    joins: tuple[Join, ...]

    @property
    def coarsest(self) -> int:
        """The smallest number of classes: those that never join, and one of all others."""
        return self.n_parts - len(self.joins)

    def cores(self, n_classes: int) -> IntArray:
        """(P,) the core part of the class that each part belongs to, when cut into this many.

        (scipy's `cut_tree` needs one tree; these are several, because known classes never join.)
        """
        if not self.coarsest <= n_classes <= self.n_parts:
            raise UserError(
                f"{n_classes} classes: this run can be cut into {self.coarsest} to {self.n_parts}"
            )
        core = np.arange(self.n_parts)
        for join in self.joins[: self.n_parts - n_classes]:
            core[core == join.gone] = join.kept
        return core

    def cut(self, n_classes: int) -> IntArray:
        """(N,) the core part of each row's class."""
        return self.cores(n_classes)[self.members]

    def sizes(self) -> IntArray:
        """(P,) rows of each part."""
        return np.bincount(self.members, minlength=self.n_parts)

    def renumbered(self, cores: IntArray) -> ClassTree:
        """The same tree for a run whose class c has the core part `cores[c]`."""
        others = np.setdiff1d(np.arange(self.n_parts), cores)
        new = np.argsort(np.concatenate([cores, others]))
        joins = tuple(Join(int(new[j.kept]), int(new[j.gone]), j.distance) for j in self.joins)
        return ClassTree(new[self.members], self.n_parts, joins)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for tree.json."""
        joins = [[j.kept, j.gone, round(j.distance, 6)] for j in self.joins]
        return {"n_parts": self.n_parts, "joins": joins, "members": self.members.tolist()}


def read_tree(path: Path, *, n_rows: int, n_classes: int) -> ClassTree:
    """tree.json of a run with this many images and classes."""
    try:
        stored = read_json(path)
        members = np.array(stored["members"], dtype=np.int64)
        joins = tuple(Join(int(a), int(b), float(d)) for a, b, d in stored["joins"])
        tree = ClassTree(members, int(stored["n_parts"]), joins)
        whole = _is_whole(tree, n_rows=n_rows, n_classes=n_classes)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; sort the images anew: bacon discover") from None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not the tree of a run: {reason}") from None
    if not whole:
        raise UserError(f"{path}: does not fit the {n_rows} images and {n_classes} classes")
    return tree


def _is_whole(tree: ClassTree, *, n_rows: int, n_classes: int) -> bool:
    """Every join leaves one class less, and the first C parts are the classes of the run.

    Parts beyond the classes have images, so a larger number is not even counted to.
    """
    ends = {*tree.members.tolist(), *(part for join in tree.joins for part in join[:2])}
    return (
        len(tree.members) == n_rows
        and tree.n_parts <= n_classes + n_rows
        and all(0 <= part < tree.n_parts for part in ends)
        and len(np.unique(tree.cores(tree.coarsest))) == tree.coarsest
        and np.array_equal(np.unique(tree.cores(n_classes)), np.arange(n_classes))
    )


def grow_tree(
    features: Tensor,
    class_ids: IntArray,
    fixed: BoolArray,
    *,
    n_known: int,
    n_classes: int,
    seed: int,
) -> ClassTree:
    """Classes split until there are about twice as many, and joined until one novel is left. Ours.

    Known classes never join, nor do classes with fixed rows; a part that is split off from a known
    class is novel.

    Args:
        features: (N, D) unit rows.
        class_ids: (N,) class of each row, known classes first.
        fixed: (N,) rows that never leave their class.
    """
    rows = centered(features)
    members, splits = split_classes(rows, class_ids, fixed, n_classes=n_classes, seed=seed)
    stays = np.arange(n_classes) < n_known
    stays[class_ids[fixed]] = True
    joins = join_classes(rows, class_ids, np.flatnonzero(~stays))
    return ClassTree(members, n_classes + len(splits), (*reversed(splits), *joins))


# Finer


class _Split(NamedTuple):
    """A part in two; sorted by what k-means would gain, the largest gain first."""

    loss: float
    part: int
    leaving: IntArray
    distance: float


def split_classes(
    features: Tensor, class_ids: IntArray, fixed: BoolArray, *, n_classes: int, seed: int
) -> tuple[IntArray, list[Join]]:
    """Finest part of each row and the splits in their order. Bisecting k-means, Steinbach 2000.

    Always the split that lowers the sum of squares most. The larger half keeps the name, or the
    one with the fixed rows.
    """
    members = class_ids.copy()
    splits: list[Join] = []
    waiting = list(_halves(features, members, fixed, range(n_classes), seed))
    heapq.heapify(waiting)
    while waiting and len(splits) < max(MOST_SPLITS, n_classes):
        best = heapq.heappop(waiting)
        new = n_classes + len(splits)
        members[best.leaving] = new
        splits.append(Join(best.part, new, best.distance))
        for half in _halves(features, members, fixed, (best.part, new), seed):
            heapq.heappush(waiting, half)
    return members, splits


def _halves(
    features: Tensor, members: IntArray, fixed: BoolArray, parts: Iterable[int], seed: int
) -> Iterator[_Split]:
    """The best split of each part, where there is one that leaves no image alone."""
    for part in parts:
        rows = np.flatnonzero(members == part)
        split = _in_two(features, rows, fixed[rows], seed) if len(rows) >= 2 * RULES.least else None
        if split is None:
            continue
        staying, leaving = split
        here, there = (features[torch.from_numpy(r)].double().mean(dim=0) for r in split)
        gain = len(staying) * len(leaving) / len(rows) * float((here - there).square().sum())
        if gain > LEAST_GAIN:
            yield _Split(-gain, int(part), leaving, 1 - float(here @ there))


def _in_two(
    features: Tensor, rows: IntArray, fixed: BoolArray, seed: int
) -> tuple[IntArray, IntArray] | None:
    """Rows that stay and rows that leave; fixed rows stay."""
    if int((~fixed).sum()) < RULES.least:
        return None
    chosen = np.linspace(0, len(rows), min(SAMPLE, len(rows)), endpoint=False).astype(np.int64)
    # Someone must be able to leave, also where nearly all are fixed.
    chosen = np.union1d(chosen, np.flatnonzero(~fixed)[: RULES.least])
    anchors = np.where(fixed[chosen], 0, -1) if fixed.any() else None
    points = features[torch.from_numpy(rows)]
    found = kmeans(points[chosen], 2, labels=anchors, n_init=2, seed=seed, max_iterations=30)
    side = np.where(fixed, 0, assign(points, found.centroids))
    if not fixed.any() and side.sum() > len(side) / 2:
        side = 1 - side
    staying, leaving = rows[side == 0], rows[side == 1]
    return (staying, leaving) if min(len(staying), len(leaving)) >= RULES.least else None


# Coarser


def join_classes(features: Tensor, class_ids: IntArray, classes: IntArray) -> list[Join]:
    """These classes joined until one is left. Average linkage (Sokal and Michener 1958).

    Ward's criterion would join the rarest classes first, whatever they look like. The joined class
    is named after the largest of its classes.
    """
    means, sizes = _means(features, class_ids, classes)
    distance = 1 - means @ means.T
    distance[sizes == 0] = distance[:, sizes == 0] = 0.0  # nothing is lost with an empty class
    np.fill_diagonal(distance, np.inf)
    weight = sizes.astype(np.float64)
    joins: list[Join] = []
    for _ in range(len(classes) - 1):
        first, second = divmod(int(distance.argmin()), len(classes))
        kept, gone = sorted((first, second), key=lambda c: (-sizes[c], c))
        joins.append(Join(int(classes[kept]), int(classes[gone]), float(distance[kept, gone])))
        share = weight[gone] / max(weight[kept] + weight[gone], 1.0)
        distance[kept] += share * (_finite(distance[gone]) - _finite(distance[kept]))
        distance[:, kept] = distance[kept]
        distance[gone] = distance[:, gone] = distance[kept, kept] = np.inf
        weight[kept] += weight[gone]
    return joins


def _means(features: Tensor, class_ids: IntArray, classes: IntArray) -> tuple[FloatArray, IntArray]:
    """(n, D) mean of the rows of each class, not of length 1: rows count, not centroids."""
    sizes = np.zeros(len(classes), dtype=np.int64)
    means = np.zeros((len(classes), features.shape[1]))
    for row, number in enumerate(classes):
        members = class_ids == number
        sizes[row] = members.sum()
        if sizes[row]:
            means[row] = features[torch.from_numpy(members)].double().mean(dim=0).numpy()
    return means, sizes


def _finite(distances: FloatArray) -> FloatArray:
    return np.where(np.isfinite(distances), distances, 0.0)
