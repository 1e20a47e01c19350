"""Where the classes are: two ways of placing their centroids, between which held-out labels choose.

k-means likes clusters of one size: with many labels and a long tail the second way is far better,
with few labels the first one often is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.assign import by_size
from bacon_gcd.classes.calibration import CENTROID_TEMPERATURE, Reliability, measure
from bacon_gcd.classes.number import over_clusters, seen_from_mean
from bacon_gcd.classes.parts import best_claim, novel_groups, parts_of
from bacon_gcd.cluster import add_centroids, kmeans, unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Places:
    """Where the classes are, and how far an answer can be trusted."""

    centroids: Tensor
    """(C, D) unit rows: known classes, then novel ones by size."""
    reliability: Reliability | None

    @property
    def temperature(self) -> float:
        """Chosen by held-out labels where there are any."""
        return self.reliability.temperature if self.reliability else CENTROID_TEMPERATURE

    def sharpened(self) -> Tensor:
        """Centroids for a predictor, which divides by one temperature: their length is ours."""
        return self.centroids * (CENTROID_TEMPERATURE / self.temperature)


def settle(
    features: Tensor, labels: IntArray, held: BoolArray, *, n_classes: int, seed: int
) -> Places:
    """Centroids by the better way: once without the held-out labels to measure, then with all."""
    way, reliability = better_way(features, labels, held, n_classes=n_classes, seed=seed)
    centroids = way(features, labels, n_classes, seed)
    n_known = int(labels.max(initial=-1)) + 1
    return Places(by_size(features, labels, centroids, n_known=n_known), reliability)


def by_clusters(features: Tensor, labels: IntArray, n_classes: int, seed: int) -> Tensor:
    """(C, D) the semi-supervised k-means of GCD."""
    return kmeans(features, n_classes, labels=labels, n_init=10, seed=seed).centroids


def by_parts(features: Tensor, labels: IntArray, n_classes: int, seed: int) -> Tensor:
    """(C, D) means of the labeled images, and of groups of parts that no known class claims. Ours.

    Where there are fewer groups than novel classes, images far from all of them open the rest.
    """
    n_known, unlabeled = int(labels.max(initial=-1)) + 1, labels < 0
    centered = seen_from_mean(features)
    members, _ = over_clusters(centered, labels, seed=seed)
    parts = parts_of(centered, members, labels, n_known=n_known)
    group_of = novel_groups(parts, best_claim(parts, seed=seed), n_classes - n_known)[members]
    of_known = [features[torch.from_numpy(labels == c)].mean(dim=0) for c in range(n_known)]
    of_novel = [
        features[torch.from_numpy(rows)].mean(dim=0)
        for group in range(n_classes - n_known)
        if (rows := (group_of == group) & unlabeled).any()
    ]
    centroids = torch.stack([*of_known, *of_novel])
    if len(centroids) == n_classes:
        return centroids
    among = torch.from_numpy(unlabeled)
    return add_centroids(features, centroids, n_classes, among=among, seed=seed)


Way = Callable[[Tensor, IntArray, int, int], Tensor]
WAYS: tuple[Way, ...] = (by_parts, by_clusters)
# Held-out labels are few and say nothing of novel classes, which parts find better.
CLEARLY = 0.05


def better_way(
    features: Tensor, labels: IntArray, held: BoolArray, *, n_classes: int, seed: int
) -> tuple[Way, Reliability | None]:
    """By parts, unless k-means is right about clearly more held-out labels; and what they say."""
    if not held.any():
        return by_clusters, None
    visible, rows = np.where(held, -1, labels), torch.from_numpy(held)
    found = [unit(way(features, visible, n_classes, seed)) for way in WAYS]
    parts, clusters = (measure(features[rows] @ each.T, labels[held]) for each in found)
    if clusters.accuracy > parts.accuracy + CLEARLY:
        return by_clusters, clusters
    return by_parts, parts
