"""How many classes there are: over-cluster, merge, and let known classes say where to stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import linkage
from torch import Tensor

from bacon_gcd.classes.parts import MIN_MEMBERS, novel_counts, parts_of
from bacon_gcd.cluster import (
    Ids,
    IntArray,
    as_ids,
    assign,
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
OVER_CLUSTERINGS = 3
LABELS_PER_PART = 3  # on average, at least
CLEAR = 0.5  # silhouette from which clusters are clear enough to be counted without labels
CLOSE = 0.02  # levels this near to the best score could be right as well
SLACK = 0.05  # of the estimate: folds of one tree agree more with each other than with the truth


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


@dataclass(frozen=True)
class ClassNumber:
    """How many classes there seem to be, known and novel together."""

    estimate: int
    interval: Range
    beside: dict[str, int]
    """What other ways of counting say: labels (Han et al. 2019), silhouette, agglomerative."""


def count_classes(
    features: Tensor, labels: Ids, *, seed: int, allowed: Range | None = None
) -> ClassNumber:
    """An estimate that survives long tails, and its interval. Ours.

    Known classes, and as many as the images that they do not claim make (`novel_parts`). Where no
    class has two labels, only the shape of the clusters can tell.

    Args:
        features: (N, D) unit rows.
        labels: (N,) known class, -1 = unlabeled.
        allowed: smallest and largest number that may be answered.
    """
    ids = as_ids(labels)
    n_known = int(ids.max(initial=-1)) + 1
    most = n_known + int((ids < 0).sum())
    low, high = allowed or (max(n_known, 1), most)
    centered = seen_from_mean(features)
    tree = merge_tree(centered, ids, seed=seed)
    shapes = silhouettes(centered, tree, seed=seed)
    novel, found = _novel(centered, ids, tree, n_known=n_known, seed=seed)
    beside = _beside(features, ids, tree, shapes, n_known=n_known, most=most, seed=seed)
    if found:
        center, slack = n_known + novel, SLACK
        found = [n_known + each for each in found]
    else:
        center, found = _by_shape(shapes, tree.n_parts)
        slack = 0.0 if center == 1 else 3 * SLACK
    limits = (max(low, n_known, 1), min(high, most))
    around = np.quantile([*found, center], [0.1, 0.9]) + np.array([-slack, slack]) * center
    first, middle, last = (int(np.clip(round(v), *limits)) for v in (around[0], center, around[1]))
    return ClassNumber(middle, (min(first, middle), max(last, middle)), beside)


def _novel(
    features: Tensor, labels: IntArray, tree: MergeTree, *, n_known: int, seed: int
) -> tuple[float, list[float]]:
    """The median over several over-clusterings, which differ more than folds of one of them do."""
    estimates, candidates = [], []
    for number in range(OVER_CLUSTERINGS):
        members = over_clusters(features, labels, seed=seed + number)[0] if number else tree.members
        parts = parts_of(features, members, labels, n_known=max(n_known, 1))
        novel, close = novel_counts(parts, seed=seed)
        if not close:
            break
        estimates.append(novel)
        candidates += close
    return float(np.median(estimates or [0.0])), candidates


def seen_from_mean(features: Tensor) -> Tensor:
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


def merge_tree(features: Tensor, labels: IntArray, *, seed: int) -> MergeTree:
    """More clusters than classes, and their merges by Ward's criterion (Ward 1963)."""
    members, centroids = over_clusters(features, labels, seed=seed)
    merges: FloatArray = np.empty((0, 4))
    if len(centroids) > 1:
        merges = linkage(centroids.double().numpy(), "ward")
    return MergeTree(members, merges)


def over_clusters(features: Tensor, labels: IntArray, *, seed: int) -> tuple[IntArray, Tensor]:
    """(N,) over-cluster of each row, and (M, D) their centroids.

    No more than labels can tell apart: a part too small to hold any says nothing by holding none.
    """
    n_rows, n_known, n_labeled = len(features), int(labels.max(initial=-1)) + 1, (labels >= 0).sum()
    rows = _sample(n_rows, SAMPLE, seed)
    wanted = int(np.ceil(2 * np.sqrt(n_rows)))
    if n_labeled:
        wanted = max(3 * n_known, min(wanted, int(n_labeled) // LABELS_PER_PART))
    n_parts = min(wanted, max(MOST_PARTS, 2 * n_known), max(len(rows) // 2, 1))
    found = kmeans(features[rows], n_parts, n_init=1, seed=seed)
    members = found.labels if len(rows) == n_rows else assign(features, found.centroids)
    return members, found.centroids


def _spaced(low: int, high: int, count: int) -> set[int]:
    """Whole numbers from low to high: all of them, or about `count` at equal ratios."""
    if high - low < count:
        return set(range(low, high + 1))
    return set(np.geomspace(low, high, count).round().astype(int).tolist())


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
