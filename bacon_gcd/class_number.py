"""How many classes there are: over-cluster, merge, and let known classes say where to stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import linkage
from torch import Tensor

from bacon_gcd.cluster import (
    Ids,
    IntArray,
    as_ids,
    assign,
    contingency,
    estimate_n_classes,
    kmeans,
    unit,
)
from bacon_gcd.config import UserError

FloatArray = npt.NDArray[np.float64]
Range = tuple[int, int]

SAMPLE = 20_000  # rows that are over-clustered; the others join the nearest over-cluster
JUDGED = 3_000  # rows that the silhouette and the search on labeled accuracy look at
MOST_PARTS = 600  # or twice the known classes
MOST_LEVELS = 80  # cuts of the tree that are looked at
FOLDS = 10
CLEAR = 0.5  # silhouette from which clusters are clear enough to be counted without labels
CLAIM = 0.6  # where known classes are too few to calibrate it
CLAIMS: tuple[float, ...] = tuple(np.linspace(0.2, 0.95, 16).tolist())
TIED = 0.005  # scores that differ by less do not decide
CLOSE = 0.02  # levels this near to the best score could be right as well
SLACK = 0.05  # of the estimate: folds of one tree agree more with each other than with the truth
MIN_MEMBERS = 2  # a part of one image is an outlier until someone says it is a class


@dataclass(frozen=True, eq=False)
class MergeTree:
    """Over-clusters and the order in which they merge: every coarser or finer cut of the images."""

    members: IntArray
    """(N,) over-cluster 0..M-1 of each row."""
    merges: FloatArray
    """(M-1, 4) two nodes, their distance, over-clusters below; node M+i is made by merge i."""

    @property
    def n_parts(self) -> int:
        """M, the finest cut."""
        return len(self.merges) + 1

    def cuts(self) -> Iterator[IntArray]:
        """(M,) part 0..k-1 of each over-cluster, for k = M, M-1, ..., 1."""
        nodes = np.arange(self.n_parts)
        yield nodes
        for made, (first, second) in enumerate(self.merges[:, :2].astype(np.int64)):
            nodes = np.where((nodes == first) | (nodes == second), self.n_parts + made, nodes)
            yield np.unique(nodes, return_inverse=True)[1].astype(np.int64)

    def cut(self, n_parts: int) -> IntArray:
        """(N,) part of each row when the tree is cut into this many."""
        if not 1 <= n_parts <= self.n_parts:
            raise UserError(f"{n_parts} parts: the tree can be cut into 1 to {self.n_parts}")
        part_of: IntArray = next(c for c in self.cuts() if int(c.max()) + 1 == n_parts)
        return part_of[self.members]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for tree.json."""
        merges = [[int(a), int(b), round(d, 6), int(n)] for a, b, d, n in self.merges.tolist()]
        return {"members": self.members.tolist(), "merges": merges}


@dataclass(frozen=True)
class ClassNumber:
    """How many classes there seem to be, known and novel together."""

    estimate: int
    interval: Range
    beside: dict[str, int]
    """What other ways of counting say: labels (Han et al. 2019), silhouette, agglomerative."""
    tree: MergeTree


@dataclass(frozen=True, eq=False)
class _Levels:
    """What is counted at L cuts of the tree, finest first."""

    n_parts: IntArray
    """(L,) parts of each cut."""
    hits: list[IntArray]
    """L tables (parts, K): labeled rows of each known class in each part."""
    sizes: list[IntArray]
    """L arrays: rows of each part."""
    shapes: FloatArray
    """(L,) silhouette."""

    def best(self, classes: IntArray) -> int:
        """How many parts suit these classes best; of equally good cuts, the best silhouette."""
        scores = np.array([pair_score(hits[:, classes]) for hits in self.hits])
        level = int(np.where(scores >= scores.max() - TIED, self.shapes, -np.inf).argmax())
        return int(self.n_parts[level])

    def near(self, n_parts: int) -> list[int]:
        """Cuts into this many parts and up to half as many more; at least one."""
        nearest = int(np.abs(self.n_parts - n_parts).argmin())
        inside = (self.n_parts >= n_parts) & (self.n_parts <= 1.5 * n_parts)
        return sorted({nearest, *np.flatnonzero(inside).tolist()})


def count_classes(
    features: Tensor, labels: Ids, *, seed: int, allowed: Range | None = None
) -> ClassNumber:
    """An estimate that survives long tails, its interval, and the tree it was read from. Ours.

    Labeled images choose the cut of the tree that keeps their classes together and apart. Parts
    with too few labels for a known class are novel; what is too few is calibrated by holding known
    classes out as if they were novel.

    Args:
        features: (N, D) unit rows.
        labels: (N,) known class, -1 = unlabeled.
        allowed: smallest and largest number that may be answered.
    """
    ids = as_ids(labels)
    n_known = int(ids.max(initial=-1)) + 1
    most = n_known + int((ids < 0).sum())
    low, high = allowed or (max(n_known, 1), most)
    centered = _centered(features)
    tree = merge_tree(centered, n_known=n_known, seed=seed)
    shapes = silhouettes(centered, tree, seed=seed)
    levels = _levels(tree, ids, n_known, shapes)
    found = _by_held_out(levels, n_known, seed=seed) if n_known > 1 else []
    beside = _beside(features, ids, tree, shapes, n_known=n_known, most=most, seed=seed)
    if found:
        center, slack = float(np.median(found)), SLACK
    else:  # no class has two labels: only the shape of the clusters can tell
        center, found = _by_shape(shapes, tree.n_parts)
        slack = 0.0 if center == 1 else 3 * SLACK
    limits = (max(low, n_known, 1), min(high, most))
    around = np.quantile([*found, center], [0.1, 0.9]) + np.array([-slack, slack]) * center
    first, middle, last = (int(np.clip(round(v), *limits)) for v in (around[0], center, around[1]))
    return ClassNumber(middle, (min(first, middle), max(last, middle)), beside, tree)


def _centered(features: Tensor) -> Tensor:
    """(N, D) unit rows seen from their mean, which all images have in common."""
    away = features - features.mean(dim=0)
    return unit(away) if float(away.norm(dim=1).max()) > 1e-4 else features


def _by_shape(shapes: dict[int, float], n_parts: int) -> tuple[float, list[float]]:
    """Estimate and candidates without labels: the best silhouette where clusters are clear.

    Where they are not, a quarter of the over-clusters, because classes that are too fine are merged
    more easily than classes that are too coarse are split.
    """
    best = _roundest(shapes)
    if best == 1:
        return 1.0, [1.0]
    if shapes[best] < CLEAR:
        return max(n_parts / 4, best), [float(best), float(n_parts)]
    return float(best), [float(k) for k, v in shapes.items() if v >= shapes[best] - CLOSE]


def merge_tree(features: Tensor, *, n_known: int, seed: int) -> MergeTree:
    """More clusters than classes, and their merges by Ward's criterion (Ward 1963)."""
    n_rows = len(features)
    rows = _sample(n_rows, SAMPLE, seed)
    wanted = max(3 * n_known, int(np.ceil(2 * np.sqrt(n_rows))))
    n_parts = min(wanted, max(MOST_PARTS, 2 * n_known), max(len(rows) // 2, 1))
    found = kmeans(features[rows], n_parts, n_init=1, seed=seed)
    members = found.labels if len(rows) == n_rows else assign(features, found.centroids)
    merges: FloatArray = np.empty((0, 4))
    if n_parts > 1:
        merges = linkage(found.centroids.double().numpy(), "ward")
    return MergeTree(members, merges)


def pair_score(hits: IntArray) -> float:
    """F1 of pairs of labeled rows that share a part, every class counting the same. Ours.

    hits: (parts, C) labeled rows of each class in each part. Classes of one row have no pairs of
    their own and can only be mixed with others.
    """
    totals = hits.sum(axis=0)
    pairs = totals * (totals - 1)
    kept = float(((hits * (hits - 1)).sum(axis=0) / np.maximum(pairs, 1)).sum())
    share = hits / np.maximum(totals, 1)
    mixed = float((share.sum(axis=1) ** 2).sum() - (share**2).sum())
    n_judges = int((pairs > 0).sum())
    return 2 * kept / max(2 * kept + mixed + n_judges - kept, 1e-12)


def _levels(tree: MergeTree, labels: IntArray, n_known: int, shapes: dict[int, float]) -> _Levels:
    seen = labels >= 0
    fine = contingency(
        tree.members[seen], labels[seen], n_clusters=tree.n_parts, n_classes=max(n_known, 1)
    )
    sizes = np.bincount(tree.members, minlength=tree.n_parts)
    wanted = _spaced(1, tree.n_parts, MOST_LEVELS)
    cuts = [part_of for part_of in tree.cuts() if int(part_of.max()) + 1 in wanted]
    n_parts = np.array([int(part_of.max()) + 1 for part_of in cuts])
    measured = {1: 0.0} | shapes  # one part has no silhouette
    return _Levels(
        n_parts,
        [_gathered(fine, part_of) for part_of in cuts],
        [_gathered(sizes, part_of) for part_of in cuts],
        np.interp(n_parts, list(measured), list(measured.values())),
    )


def _spaced(low: int, high: int, count: int) -> set[int]:
    """Whole numbers from low to high: all of them, or about `count` at equal ratios."""
    if high - low < count:
        return set(range(low, high + 1))
    return set(np.geomspace(low, high, count).round().astype(int).tolist())


def _gathered(values: IntArray, part_of: IntArray) -> IntArray:
    """Sums over the over-clusters of each part."""
    total = np.zeros((int(part_of.max()) + 1, *values.shape[1:]), dtype=np.int64)
    np.add.at(total, part_of, values)
    return total


def _by_held_out(levels: _Levels, n_known: int, *, seed: int) -> list[float]:
    """Class numbers at several cuts and thresholds; [] if no two classes have two labels."""
    judges = np.flatnonzero(levels.hits[0].sum(axis=0) >= 2)
    if len(judges) < 2:
        return []
    numbers = levels.near(max(levels.best(judges), n_known))
    thresholds = [CLAIM]
    if len(judges) >= 4:
        rng = np.random.default_rng(seed)
        thresholds = [_threshold(levels, numbers, rng.permutation(judges)) for _ in range(FOLDS)]
    return [
        n_known * _parts_per_claimed(levels.hits[level].sum(axis=1), levels.sizes[level], claim)
        for level in numbers
        for claim in thresholds
    ]


def _threshold(levels: _Levels, numbers: list[int], judges: IntArray) -> float:
    """The claim under which half of these classes, held out as if novel, are counted right."""
    known, _ = np.array_split(judges, 2)

    def error(claim: float) -> float:
        logs = []
        for level in numbers:
            everyone = levels.hits[level][:, judges].sum(axis=1)
            visible = levels.hits[level][:, known].sum(axis=1)
            ratio = _parts_per_claimed(visible, everyone, claim)
            logs.append(np.log(len(known) * ratio / len(judges)))
        return abs(float(np.mean(logs)))

    return min(CLAIMS, key=error)


def _parts_per_claimed(visible: IntArray, sizes: IntArray, claim: float) -> float:
    """All parts over those of known classes. Ours.

    A known class claims a part when the share of labeled rows in it is at least `claim` x the
    share that a labeled row meets on average: impure parts of novel classes hold some, too. If
    novel classes split and merge as known ones do, this is all classes over known ones.
    """
    large = sizes >= MIN_MEMBERS
    share = visible / np.maximum(sizes, 1)
    typical = float((share * visible).sum() / max(visible.sum(), 1))
    claimed = int((large & (share >= claim * typical)).sum())
    return float(large.sum()) / claimed if claimed else 1.0


def silhouettes(features: Tensor, tree: MergeTree, *, seed: int) -> dict[int, float]:
    """Number of parts -> simplified silhouette, every part counting the same. Rousseeuw 1987.

    A row's own and second nearest part are told by centroids; a part of one row counts 0.
    """
    rows = _sample(len(features), JUDGED, seed)
    total = features.new_zeros(tree.n_parts, features.shape[1])
    sums = total.index_add_(0, torch.from_numpy(tree.members), features).double().numpy()
    cosines = features[rows].double().numpy() @ sums.T
    wanted = _spaced(2, max(tree.n_parts - 1, 2), 40)
    found = {}
    for part_of in tree.cuts():
        n_parts = int(part_of.max()) + 1
        if n_parts in wanted and 2 <= n_parts < len(features):
            found[n_parts] = _silhouette(cosines, sums, part_of, part_of[tree.members[rows]])
    return dict(sorted(found.items()))


def _silhouette(cosines: FloatArray, sums: FloatArray, part_of: IntArray, own: IntArray) -> float:
    n_parts = int(part_of.max()) + 1
    total = np.zeros((n_parts, sums.shape[1]))
    np.add.at(total, part_of, sums)
    to_part = np.zeros((n_parts, len(cosines)))
    np.add.at(to_part, part_of, cosines.T)
    lengths = np.linalg.norm(total, axis=1)
    away = 1 - to_part.T / np.maximum(lengths, 1e-12)
    row = np.arange(len(own))
    with_it = to_part.T[row, own]
    without = np.sqrt(np.maximum(lengths[own] ** 2 - 2 * with_it + 1, 1e-12))
    inside = 1 - (with_it - 1) / without  # a row is not near its part because it is in it
    away[row, own] = np.inf
    outside = away.min(axis=1)
    value = (outside - inside) / np.maximum(np.maximum(outside, inside), 1e-5)
    sizes = np.bincount(own, minlength=n_parts)
    means = np.bincount(own, value, minlength=n_parts) / np.maximum(sizes, 1)
    return float(np.where(sizes >= MIN_MEMBERS, means, 0.0)[sizes > 0].mean())


def _roundest(shapes: dict[int, float]) -> int:
    """The number of parts with the best silhouette; 1 when no cut separates anything."""
    best = max(shapes, key=lambda k: shapes[k], default=1)
    return best if shapes.get(best, 0.0) > 1e-3 else 1


def _beside(
    features: Tensor,
    labels: IntArray,
    tree: MergeTree,
    shapes: dict[int, float],
    *,
    n_known: int,
    most: int,
    seed: int,
) -> dict[str, int]:
    """The other ways of counting."""
    heights = tree.merges[:, 2]
    leap = int(np.argmax(np.diff(heights))) if len(heights) > 1 else len(heights) - 1
    beside = {
        "silhouette": _roundest(shapes),
        "agglomerative": max(tree.n_parts - 1 - leap, 1),
    }
    rows = _sample(len(features), JUDGED, seed)
    high = min(len(rows), most, max(4 * n_known, n_known + 10))
    if n_known > 1 and n_known <= high and (labels[rows] >= 0).any():
        search = estimate_n_classes(features[rows], labels[rows], low=n_known, high=high, seed=seed)
        beside["labels"] = search.n_classes
    return beside


def _sample(n_rows: int, limit: int, seed: int) -> IntArray:
    """(n,) all rows in order, or `limit` of them."""
    if n_rows <= limit:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng((seed, n_rows)).choice(n_rows, limit, replace=False))
