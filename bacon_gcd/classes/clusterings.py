"""Clusterings of all images: further opinions on their classes where labels are few.

One or two labels say little of where a class ends. k-means does not ask where known classes end at
all, and errs in other ways than the evidence does, so that both together are more often right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import sample
from bacon_gcd.cluster import assign, contingency, kmeans, pair_up

IntArray = npt.NDArray[np.int64]


def labels_per_class(labels: IntArray) -> float:
    """Labeled images of a known class, on average; 0: there is no label."""
    n_known = int(labels.max(initial=-1)) + 1
    return float((labels >= 0).sum()) / max(n_known, 1)


def clusterings(
    points: Tensor,
    labels: IntArray,
    class_ids: IntArray,
    *,
    n_classes: int,
    seed: int,
    rules: Rules = RULES,
) -> list[IntArray]:
    """(N,) classes of all images by each of several clusterings; none where labels are many.

    GCD's semi-supervised k-means from several starts, new clusters named after `class_ids`.

    Args:
        points: (N, d) unit rows.
        labels: (N,) known class, -1 = unlabeled.
        class_ids: (N,) the answer by the evidence.
    """
    n_known = int(labels.max(initial=-1)) + 1
    if not 0 < labels_per_class(labels) < rules.many_labels or n_classes <= 1:
        return []
    found = [
        one_clustering(points, labels, n_classes, seed=each, rules=rules)
        for each in range(seed, seed + rules.clusterings)
    ]
    return [named_after(each, class_ids, n_known, n_classes) for each in found]


def one_clustering(
    points: Tensor, labels: IntArray, n_clusters: int, *, seed: int, rules: Rules = RULES
) -> IntArray:
    """(N,) cluster of each image; labeled images stay in theirs. Of many images a sample decides.

    n_clusters: known classes come first.
    """
    some = np.union1d(sample(len(labels), rules.sample, seed), np.flatnonzero(labels >= 0))
    if len(some) < n_clusters:
        some = np.arange(len(labels))
    chosen = points[torch.from_numpy(some)]
    found = kmeans(chosen, n_clusters, labels=labels[some], n_init=1, seed=seed)
    clusters = found.labels if len(some) == len(labels) else assign(points, found.centroids)
    return np.where(labels >= 0, labels, clusters)


def named_after(clusters: IntArray, class_ids: IntArray, n_known: int, n_classes: int) -> IntArray:
    """(N,) the clusters, each new one as the new class that it shares most images with, one to one.

    A cluster that shares none says nothing: its images stay in their class.
    """
    n_new = n_classes - n_known
    both = (clusters >= n_known) & (class_ids >= n_known)
    shared = contingency(
        clusters[both] - n_known, class_ids[both] - n_known, n_clusters=n_new, n_classes=n_new
    )
    names = pair_up(shared)
    alike = shared[np.arange(n_new), names] > 0
    names = np.append(np.arange(n_known), np.where(alike, names + n_known, -1))[clusters]
    return np.where(names < 0, class_ids, names)
