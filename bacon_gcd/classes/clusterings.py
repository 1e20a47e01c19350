"""The class of every image where known classes have one or two labels: clusterings that agree.

So few labels do not say how far a known class reaches. All images are then merged as if none had a
label, several times. A cluster with a labeled image is that class, every other one is new; what
most clusterings say decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.count import Linkage, Merges, merges
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.cluster import unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Evidence = npt.NDArray[np.float32]
LINKAGES: tuple[Linkage, ...] = ("ward", "average")


def few_labels(labels: IntArray, rules: Rules = RULES) -> bool:
    """Whether known classes have too few labels to say how far they reach."""
    n_known = int(labels.max(initial=-1)) + 1
    return 0 < int((labels >= 0).sum()) <= rules.few_labels * n_known


def named_clusterings(
    points: Tensor, labels: IntArray, evidence: Evidence, *, n_new: int, seed: int, rules: Rules
) -> list[IntArray]:
    """Clusterings of all images by two linkages and several over-clusterings: (N,) classes each.

    Args:
        points: (N, d) unit positions.
        evidence: (N, K) of each known class.
    """
    n_classes, n_images = evidence.shape[1] + n_new, len(points)
    n_parts = min(max(n_images // rules.rows_per_part, 2 * n_classes), n_images)
    rules = replace(rules, most_parts=max(rules.most_parts, 2 * n_classes))
    found = []
    for draw in range(seed, seed + rules.counting_seeds):
        for by in LINKAGES:
            tree = merges(points, seed=draw, n_parts=n_parts, by=by, rules=rules)
            if tree is not None:
                found.append(named_clusters(tree, labels, evidence, n_new=n_new))
    return found


def named_clusters(tree: Merges, labels: IntArray, evidence: Evidence, *, n_new: int) -> IntArray:
    """(N,) the tree cut into all classes, and finer until enough clusters have no label.

    These are new classes, numbered from K on: as many as wanted or more, fewer where the tree has
    too few parts. An image of another cluster is of that class among its labels that has most
    evidence.
    """
    n_known, labeled = evidence.shape[1], labels >= 0
    clusters, free = _enough_free(tree, labeled, n_known, n_new)
    inside = np.zeros((int(clusters.max()) + 1, n_known), dtype=bool)
    inside[clusters[labeled], labels[labeled]] = True
    best = np.where(inside[clusters], evidence, -np.inf).argmax(axis=1)
    new = np.isin(clusters, free)
    return np.where(labeled, labels, np.where(new, n_known + np.searchsorted(free, clusters), best))


def _enough_free(
    tree: Merges, labeled: BoolArray, n_known: int, n_new: int
) -> tuple[IntArray, IntArray]:
    """(N,) clusters, and those without a labeled image: as many as there are new classes."""
    n_clusters = min(n_known + n_new, tree.n_parts)
    while True:
        clusters = tree.cut(n_clusters)
        free = np.setdiff1d(clusters, clusters[labeled])
        missing = n_new - len(free)  # of these each further cluster is one at most
        if missing <= 0 or n_clusters == tree.n_parts:
            return clusters, free
        n_clusters = min(n_clusters + missing, tree.n_parts)


def agreed(clusterings: Sequence[IntArray], evidence: Evidence) -> tuple[IntArray, FloatArray]:
    """(N,) the known class that most clusterings name, and the share of them that names any.

    evidence: (N, K) of each known class; it decides between equal votes.
    """
    votes = np.zeros(evidence.shape, dtype=np.int64)
    for class_ids in clusterings:
        known = np.flatnonzero(class_ids < evidence.shape[1])
        votes[known, class_ids[known]] += 1
    most = votes == votes.max(axis=1, keepdims=True)
    best = np.where(most, evidence, -np.inf).argmax(axis=1)
    return best, votes.sum(axis=1) / len(clusterings)


def positions(points: Tensor, clusterings: Sequence[IntArray]) -> Tensor:
    """(N, d) unit positions: the mean of the centers of the clusters that an image is in."""
    total = torch.zeros_like(points)
    for class_ids in clusterings:
        index = torch.from_numpy(class_ids)
        sums = torch.zeros(int(index.max()) + 1, points.shape[1]).index_add_(0, index, points)
        total += unit(sums)[index]
    return unit(total)
