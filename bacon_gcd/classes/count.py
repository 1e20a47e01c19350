"""How many classes no label names: new images merge as far as images of known classes do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules, share_by_number
from bacon_gcd.classes.space import ClassSpace, clustered, sample
from bacon_gcd.cluster import unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Range = tuple[int, int]
Linkage = Literal["ward", "average"]
LEVELS = 40  # numbers of clusters of which the shapes are compared
MIN_IMAGES = 4  # of which a merge tree is made


@dataclass(frozen=True)
class ClassNumber:
    """How many classes there seem to be, known and new together."""

    estimate: int
    interval: Range
    beside: dict[str, int]
    """What each way of counting says."""


@dataclass(frozen=True, eq=False)
class Merges:
    """Parts of some images and the order in which they merge."""

    part_of: IntArray
    """(n,) part of each image."""
    tree: FloatArray
    """(M-1, 4) as scipy's linkage gives it."""

    @property
    def n_parts(self) -> int:
        """M, the finest cut."""
        return len(self.tree) + 1

    @property
    def heights(self) -> FloatArray:
        """(M-1,) of the merges, the last and largest first."""
        return np.asarray(self.tree[::-1, 2])

    def cut(self, n_clusters: int) -> IntArray:
        """(n,) cluster of each image when the tree is cut into this many, or one or two less."""
        groups = fcluster(self.tree, n_clusters, criterion="maxclust") - 1
        return np.asarray(groups[self.part_of], dtype=np.int64)


def merges(
    rows: Tensor,
    *,
    seed: int,
    n_parts: int | None = None,
    by: Linkage = "ward",
    rules: Rules = RULES,
) -> Merges | None:
    """The merge tree of (n, d) unit rows; None when they are too few.

    by: Ward's criterion (Ward 1963), which prefers clusters of one size, or average linkage.
    """
    if len(rows) < MIN_IMAGES:
        return None
    wanted = max(len(rows) // rules.rows_per_part, 2) if n_parts is None else n_parts
    part_of = clustered(rows, wanted, seed=seed, rules=rules)
    _, part_of = np.unique(part_of, return_inverse=True)
    n_found = int(part_of.max()) + 1
    if n_found < 2:
        return None
    sums = torch.zeros(n_found, rows.shape[1]).index_add_(0, torch.from_numpy(part_of), rows)
    means = sums / torch.bincount(torch.from_numpy(part_of))[:, None]
    return Merges(part_of.astype(np.int64), linkage(means.double().numpy(), by))


def count_new(
    space: ClassSpace,
    rows: Tensor,
    new: BoolArray,
    *,
    n_known: int,
    seed: int,
    rules: Rules = RULES,
) -> tuple[float, dict[str, float]]:
    """The number of new classes, and what two ways of counting make of it. Ours.

    `heights`: known images are merged until as many clusters are left as there are known classes,
    and new images up to the same height. Few known classes are a poor measure; then `evidence`
    counts more: new images are merged as long as that makes them likelier.

    Args:
        rows: (N, d) unit positions by which images are merged.
        new: (N,) images that seem to be of no known class.
    """
    found: dict[str, list[float]] = {"heights": [], "evidence": []}
    if not new.any():
        return 0.0, dict.fromkeys(found, 0.0)
    for draw in range(seed, seed + rules.counting_seeds):
        tree = merges(rows[torch.from_numpy(new)], seed=draw, rules=rules)
        found["heights"].append(
            by_heights(rows, new, tree, n_known=n_known, seed=draw, rules=rules)
        )
        found["evidence"].append(by_evidence(space, new, tree, rules))
    ways = {name: float(np.median(counts)) for name, counts in found.items()}
    logs = {name: float(np.log(max(count, 1.0))) for name, count in ways.items()}
    share = measured_share(n_known, rules)
    return float(np.exp(share * logs["heights"] + (1 - share) * logs["evidence"])), ways


def measured_share(n_known: int, rules: Rules = RULES) -> float:
    """How much known classes say of the number of new ones; the evidence says the rest. Ours."""
    return share_by_number(n_known, rules.measuring_classes)


def crowded(
    n_new: float,
    new: BoolArray,
    *,
    n_known: int,
    n_unlabeled: int,
    lone: bool = False,
    rules: Rules = RULES,
) -> float:
    """The number of new classes, more of them where known ones measure too coarsely. Ours.

    Where most images are new, new classes are more than the known ones and lie closer together, so
    that what parts known classes merges new ones. Where no class has a second label, known classes
    hold many images of new ones. Every class keeps enough images to be told apart, and few known
    classes measure too little to be corrected.

    Args:
        new: (N,) images that seem to be of no known class.
        lone: no class has a second label.
    """
    n_images = int(new.sum())
    trusted = max(2 * measured_share(n_known, rules) - 1, 0.0)
    growth = rules.crowding * max(n_images / n_unlabeled - 0.5, 0.0) + rules.lone_growth * lone
    more = n_new * float(np.exp(trusted * growth))
    return max(n_new, min(more, n_images / rules.crowded_images))


def by_heights(
    rows: Tensor,
    new: BoolArray,
    new_tree: Merges | None,
    *,
    n_known: int,
    seed: int,
    rules: Rules = RULES,
) -> float:
    """Clusters of new images at the height at which known images make as many as known classes."""
    known_tree = merges(rows[torch.from_numpy(~new)], seed=seed, rules=rules)
    if known_tree is None or new_tree is None:
        return float(new.any())
    heights = known_tree.heights
    low = heights[min(n_known - 1, len(heights) - 1)]
    high = heights[n_known - 2] if 2 <= n_known <= len(heights) + 1 else heights[0]
    return 1.0 + float((new_tree.heights > np.sqrt(low * high)).sum())


def by_evidence(
    space: ClassSpace, new: BoolArray, tree: Merges | None, rules: Rules = RULES
) -> float:
    """Clusters of new images whose evidence under PLDA is the greatest of all cuts of the tree.

    The evidence of a cluster of n rows with sum f is the sum over the axes of
    (f^2 b / (1 + n b) - log(1 + n b)) / 2. Images are not independent: each counts a little.
    """
    if tree is None:
        return 1.0
    index, b = torch.from_numpy(tree.part_of), space.between.double().numpy()
    rows = space.rows[torch.from_numpy(new)]
    total = torch.zeros(tree.n_parts, rows.shape[1]).index_add_(0, index, rows)
    sums = list(rules.evidence_weight * total.double().numpy())
    counts = list(rules.evidence_weight * np.bincount(tree.part_of).astype(np.float64))
    gains = []
    values = [_evidence(n, f, b) for n, f in zip(counts, sums, strict=True)]
    for first, second in tree.tree[:, :2].astype(int):
        counts.append(counts[first] + counts[second])
        sums.append(sums[first] + sums[second])
        values.append(_evidence(counts[-1], sums[-1], b))
        gains.append(values[-1] - values[first] - values[second])
    curve = np.concatenate([[0.0], np.cumsum(gains)])
    return float(tree.n_parts - int(curve.argmax()))


def _evidence(count: float, total: FloatArray, between: FloatArray) -> float:
    spread = 1 + count * between
    return float((total**2 * between / spread - np.log(spread)).sum() / 2)


def count_by_shape(
    space: ClassSpace, *, seed: int, rules: Rules = RULES
) -> tuple[float, float, float]:
    """Estimate, least and most classes without any label. Ours.

    The silhouette (Rousseeuw 1987) where clusters are clear, the evidence where they are not. An
    image counts more in it than beside known classes: classes that are too fine are merged more
    easily than classes that are too coarse are split.
    """
    rows = space.directions
    tree = merges(rows, seed=seed, rules=rules)
    if tree is None:
        return 1.0, 1.0, 1.0
    levels = np.unique(np.geomspace(2, max(tree.n_parts - 1, 2), LEVELS).astype(int))
    chosen = sample(len(rows), 2000, seed)
    points = rows[torch.from_numpy(chosen)]
    shapes = {int(n): silhouette(points, tree.cut(int(n))[chosen], rules) for n in levels}
    best = max(shapes, key=lambda n: shapes[n])
    if shapes[best] <= 1e-3:
        return 1.0, 1.0, 1.0
    if shapes[best] >= rules.clear:
        near = [n for n, value in shapes.items() if value >= shapes[best] - 0.02]
        return float(best), float(min(near)), float(max(near))
    everyone = np.ones(len(rows), dtype=bool)
    weights = (rules.lone_evidence_weight * factor for factor in (1.0, 0.3, 2.5))
    middle, least, most = (
        by_evidence(space, everyone, tree, replace(rules, evidence_weight=w)) for w in weights
    )
    return middle, least, most


def silhouette(rows: Tensor, clusters: IntArray, rules: Rules = RULES) -> float:
    """Simplified silhouette of unit rows by cluster means, every cluster counting the same."""
    _, own = np.unique(clusters, return_inverse=True)
    n_clusters = int(own.max()) + 1
    if n_clusters < 2:
        return 0.0
    index = torch.from_numpy(own)
    sums = torch.zeros(n_clusters, rows.shape[1]).index_add_(0, index, rows)
    away = 1 - rows @ unit(sums).T
    others = sums[index] - rows  # a row is not near its cluster because it is in it
    inside = 1 - (rows * unit(others)).sum(dim=1)
    outside = away.scatter(1, index[:, None], torch.inf).min(dim=1).values
    value = ((outside - inside) / torch.maximum(outside, inside).clamp_min(1e-3)).numpy()
    sizes = np.bincount(own)
    means = np.bincount(own, value) / sizes
    return float(np.where(sizes >= rules.least, means, 0.0).mean())


def number_of(
    n_known: int, n_new: float, ways: dict[str, float], limits: Range, rules: Rules = RULES
) -> ClassNumber:
    """The estimate with its interval, inside the limits."""
    low, high = limits
    reach = float(np.exp(rules.spread_of_count))
    least = min([n_new, *ways.values()]) / reach
    most = max([n_new, *ways.values()]) * reach
    first, middle, last = (
        int(np.clip(round(n_known + each), low, high)) for each in (least, n_new, most)
    )
    beside = {name: int(n_known + round(count)) for name, count in ways.items()}
    return ClassNumber(middle, (min(first, middle), max(last, middle)), beside)
