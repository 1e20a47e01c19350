"""How many images each class may have: guesses from clusters, labels and confusions.

`distribution` aligns clusters to classes; here stands what methods make of it and of labels.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.cluster import Clusters, Ids, kmeans
from bacon_gcd.distribution import class_counts_from_clusters
from bacon_gcd.losses import fill_empty
from bacon_gcd.pseudo_labels import rank_within

# Beyond so many images k-means starts from the clusters of so many of them, and takes so few
# rounds: as good a minimum in a tenth of the time, which then grows no faster than the images.
SAMPLED, ROUNDS = 20_000, 10


def clustered_counts(
    features: Tensor,
    labels: Ids,
    *,
    n_classes: int,
    n_known: int,
    rank_match: bool,
    cost: str = "share",
    restarts: int = 1,
) -> Tensor:
    """(C,) sizes of the clusters of all training images, aligned to classes. BaCon §4.1.

    Args:
        features: (N, D) of any length; their directions are clustered.
        labels: (N,) known class, -1 = unlabeled.
        n_classes: C.
        n_known: K.
        rank_match: as in `class_counts_from_clusters`.
        cost: likewise.
        restarts: of k-means.
    """
    found = clustered(F.normalize(features, dim=1), n_classes, restarts=restarts)
    return class_counts_from_clusters(
        found.labels,
        labels,
        n_classes=n_classes,
        n_known=n_known,
        rank_match=rank_match,
        cost=cost,
    )


def clustered(features: Tensor, n_clusters: int, *, restarts: int) -> Clusters:
    """k-means of all rows; of many, a few rounds from the clusters of a sample. Ours."""
    if len(features) <= SAMPLED:
        return kmeans(features, n_clusters, n_init=restarts, seed=0)
    rows = np.random.default_rng(0).choice(len(features), SAMPLED, replace=False)
    sample = features[torch.from_numpy(np.sort(rows)).to(features.device)]
    start = kmeans(sample, n_clusters, n_init=restarts, seed=0).centroids
    return kmeans(features, n_clusters, n_init=1, seed=0, start=start, max_iterations=ROUNDS)


def spread_counts(known: Tensor, n_classes: int, n_images: int) -> Tensor:
    """(C,) sizes: each class an equal share, known ones sharing theirs as `known` says. Ours."""
    shape = fill_empty(known)
    sizes = shape.new_ones(n_classes)
    sizes[: len(known)] = shape / shape.sum() * len(known)
    return sizes / n_classes * n_images


def without_labeled(counts: Tensor, labeled: Tensor, n_unlabeled: int) -> Tensor:
    """(C,) unlabeled images per class: all images less the labeled ones, at least none. Ours."""
    left = counts.float().clone()
    left[: len(labeled)] -= labeled
    left = left.clamp_min(0.0)
    return left * (n_unlabeled / left.sum().clamp_min(1.0))


def held_out(labels: Tensor, *, most: int) -> Tensor:
    """(N,) bool: the first labeled images of each class, `most` of them but at most half. DARP."""
    labeled = labels >= 0
    sizes = torch.bincount(labels[labeled], minlength=1)
    allowed = (sizes // 2).clamp_max(most)[labels.clamp_min(0)]
    return labeled & (rank_within(labels) < allowed)


@torch.no_grad()
def counts_from_confusion(
    held_out: Tensor, labels: Tensor, probabilities: Tensor, *, max_condition: float = 100.0
) -> Tensor | None:
    """(C,) class sizes that explain the predictions, from known confusions; None if unsure. DARP.

    Solves A M = sum of predictions, A[:, y] the mean prediction for held-out images of class y.
    Not defined for classes without labels: hand in the known classes' columns only.

    Args:
        held_out: (n, C) predictions for held-out labeled images.
        labels: (n,) their classes.
        probabilities: (N, C) predictions for unlabeled images.
        max_condition: largest condition number of A to be trusted.
    """
    n_classes = held_out.shape[1]
    hot = F.one_hot(labels, n_classes).double()
    if (hot.sum(dim=0) == 0).any():
        return None
    confusion = held_out.double().T @ (hot / hot.sum(dim=0))
    if not torch.linalg.cond(confusion) < max_condition:
        return None
    counts = torch.linalg.solve(confusion, probabilities.double().sum(dim=0))
    return counts if (counts >= 0).all() else None
