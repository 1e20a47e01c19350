"""How large each class seems to be, read off the clusters of the contrastive branch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bacon_gcd.cluster import Ids, IntArray, as_ids, contingency, pair_up
from bacon_gcd.config import UserError, choose

COSTS = ("share", "count")


def class_counts_from_clusters(
    clusters: Ids,
    labels: Ids,
    *,
    n_classes: int,
    n_known: int,
    rank_match: bool,
    cost: str = "share",
) -> Tensor:
    """Estimated images per class, BaCon §4.1: known classes 0..K-1, then novel, largest first.

    The paper gives a known class the size of its matched cluster. The released code lets the
    matching decide only which clusters are known, and deals their sizes out by the order of the
    labeled counts (`rank_match`). A known class without labels takes a cluster that
    is matched to no other; an empty cluster counts as 1, so that rates and powers of the counts
    stay finite.

    Args:
        clusters: (N,) cluster 0..C-1 of every training image, labeled or not.
        labels: (N,) known class 0..K-1, -1 = unlabeled.
        cost: match by labeled images as a share of the cluster (released), or by their count.

    Returns:
        (C,) counts, float32; they sum to N unless a cluster is empty.
    """
    choose("matching cost", cost, COSTS)
    clusters, labels = _checked(as_ids(clusters), as_ids(labels), n_classes, n_known)
    sizes = np.bincount(clusters, minlength=n_classes).clip(min=1)
    hits = _labeled_hits(clusters, labels, n_classes)
    class_of = pair_up(hits / sizes[:, None] if cost == "share" else hits)
    cluster_of = np.argsort(class_of)
    known, novel = sizes[cluster_of[:n_known]], sizes[cluster_of[n_known:]]
    if rank_match:
        known = _dealt_by_rank(known, hits.sum(axis=0)[:n_known])
    counts = np.concatenate([known, np.sort(novel)[::-1]])
    return torch.from_numpy(counts).float()


def _labeled_hits(clusters: IntArray, labels: IntArray, n_classes: int) -> IntArray:
    """(C, C) labeled images of each class in each cluster; columns of novel classes are zero."""
    seen = labels >= 0
    return contingency(clusters[seen], labels[seen], n_clusters=n_classes, n_classes=n_classes)


def _dealt_by_rank(sizes: IntArray, labeled_counts: IntArray) -> IntArray:
    """The smallest size to the class with the fewest labels, and so on; ties by class id."""
    dealt = np.empty_like(sizes)
    dealt[np.argsort(labeled_counts, kind="stable")] = np.sort(sizes)
    return dealt


def _checked(
    clusters: IntArray, labels: IntArray, n_classes: int, n_known: int
) -> tuple[IntArray, IntArray]:
    if len(clusters) != len(labels):
        raise UserError(f"{len(clusters)} clusters for {len(labels)} labels")
    if clusters.min(initial=0) < 0 or clusters.max(initial=0) >= n_classes:
        raise UserError(f"cluster ids must lie in 0..{n_classes - 1} for {n_classes} classes")
    if not 0 <= n_known <= n_classes or labels.max(initial=-1) >= n_known:
        raise UserError(
            f"labels go up to {labels.max(initial=-1)}, but {n_known} of {n_classes} are known"
        )
    return clusters, labels
