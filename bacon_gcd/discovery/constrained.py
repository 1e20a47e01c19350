"""Classes under a person's corrections: k-means that keeps to them, and images sorted by them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.assign import Sorted, probability_known, sort_images
from bacon_gcd.classes.reliability import matching_temperature
from bacon_gcd.cluster import add_centroids, constrained_kmeans, unit
from bacon_gcd.discovery.corrected import Corrected, best_allowed, without_barred

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# How many other images these count for in their class. Labels are a fair sample; corrections are
# made where the machine erred, and would drag their class there. On the demo set (quick effort),
# after 30 moves 72% of the other images are right; about 62% when all count the same, 55% before.
LABEL_WEIGHT = 10.0
CONFIRMED_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Clusters:
    """Where the classes are, and how far an answer can be trusted."""

    centroids: Tensor
    """(C, D) unit rows."""
    temperature: float
    """Of the softmax of the cosines with them that gives the confidence."""

    def only(self, keep: BoolArray) -> Clusters:
        """Without the other classes. keep: (C,)."""
        return replace(self, centroids=self.centroids[torch.from_numpy(keep)])


def settle_under(features: Tensor, left: Corrected, *, sure: float, seed: int) -> Clusters:
    """Clusters under the constraints, and as much confidence on average as was measured.

    sure: expected accuracy of the images that no person has looked at.
    """
    centroids = unit(cluster_under(features, left, seed=seed))
    free = torch.from_numpy(left.fixed < 0)
    cosines = without_barred(features @ centroids.T, left)[free]
    return Clusters(centroids, matching_temperature(cosines, sure))


def cluster_under(features: Tensor, left: Corrected, *, seed: int) -> Tensor:
    """(C, D) centroids; each class starts where the person left it, new ones far from the others.

    So a class is still itself after the refit, also one that no image was confirmed of.
    """
    members = [np.flatnonzero(left.class_ids == c) for c in range(len(left.classes))]
    start = torch.stack([features[rows].mean(dim=0) for rows in members if len(rows)])
    if len(start) < len(members):
        nowhere = left.barred_from_all(len(start))
        among = torch.from_numpy(nowhere if nowhere.any() else left.fixed < 0)
        start = add_centroids(features, start, len(members), among=among, seed=seed)
    found = constrained_kmeans(
        features, start, labels=left.fixed, barred=left.barred, weights=weights_of(left)
    )
    return found.centroids


def weights_of(left: Corrected) -> Tensor:
    """(N,) how much an image counts in its class."""
    labeled = left.labeled & (left.class_ids >= 0)
    weights = np.where(labeled, LABEL_WEIGHT, 1.0)
    return torch.from_numpy(np.where(left.confirmed, CONFIRMED_WEIGHT, weights)).float()


def sort_under(
    features: Tensor,
    left: Corrected,
    found: Clusters,
    neighbors: IntArray,
    *,
    threshold: float | None,
) -> Sorted:
    """Every image in its class; certain ones are sure, merged ones as sure as they look.

    neighbors: (N, K) the most similar rows of each.
    """
    cosines = features @ found.centroids.T
    ruled = left.fixed >= 0
    ruled[left.barred[:, 0]] = True
    images = sort_images(
        features,
        np.where(ruled, best_allowed(cosines, left), -1),
        found.centroids,
        neighbors,
        temperature=found.temperature,
        n_known=left.n_known,
        threshold=threshold,
    )
    shares = without_barred(cosines / found.temperature, left).softmax(dim=1).numpy()
    classes = images.class_ids
    sure = shares[np.arange(len(classes)), classes].astype(np.float64)
    known = probability_known(shares, left.n_known)
    return replace(
        images,
        confidence=np.where(left.certain, 1.0, sure),
        known_probability=np.where(left.certain, classes < left.n_known, known),
        outlier=images.outlier & ~left.confirmed,
        suggested=np.where(left.labeled & ~left.confirmed, images.suggested, -1),
    )
