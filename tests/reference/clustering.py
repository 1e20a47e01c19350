"""Semi-supervised k-means and the class counts read off clusters, point by point in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def squared(a: Array, b: Array) -> float:
    return float(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def seed_centers(features: Array, labels: Ids, n_clusters: int, draw: Callable[[], float]) -> Array:
    """Labeled class means, then k-means++ over the unlabeled points, one uniform draw each."""
    n_known = int(labels.max()) + 1
    centers = [features[labels == c].mean(axis=0) for c in range(n_known)]
    unlabeled = features[labels < 0]
    while len(centers) < n_clusters:
        nearest = np.array([min(squared(x, c) for c in centers) for x in unlabeled])
        r, running = draw(), 0.0
        for x, probability in zip(unlabeled, nearest / nearest.sum(), strict=True):
            running += probability
            if running >= r:
                centers.append(x)
                break
    return np.array(centers)


def one_restart(
    features: Array, labels: Ids, centers: Array, rounds: int, tolerance: float = 1e-4
) -> tuple[float, Ids, Array]:
    """(inertia, labels, centers after the update) of the best round."""
    best = (np.inf, labels, centers)
    for _ in range(rounds):
        assigned = np.array(
            [
                label if label >= 0 else int(np.argmin([squared(x, c) for c in centers]))
                for x, label in zip(features, labels, strict=True)
            ]
        )
        inertia = sum(squared(x, centers[a]) for x, a in zip(features, assigned, strict=True))
        updated = np.array([features[assigned == c].mean(axis=0) for c in range(len(centers))])
        if inertia < best[0]:
            best = (inertia, assigned, updated)
        shift = sum(np.sqrt(squared(a, b)) for a, b in zip(updated, centers, strict=True))
        centers = updated
        if shift**2 < tolerance:
            break
    return best


def semi_supervised_kmeans(
    features: Array, labels: Ids, n_clusters: int, *, n_init: int, seed: int, rounds: int
) -> tuple[float, Ids, Array]:
    runs = []
    for restart in range(n_init):
        draw = np.random.default_rng((seed, restart)).random
        centers = seed_centers(features, labels, n_clusters, draw)
        runs.append(one_restart(features, labels, centers, rounds))
    return min(runs, key=lambda run: run[0])


def class_counts(
    clusters: Ids, labels: Ids, *, n_classes: int, n_known: int, rank_match: bool, share: bool
) -> list[int]:
    """BaCon §4.1 as released, trying every choice of clusters for the known classes."""
    sizes = [int((clusters == j).sum()) for j in range(n_classes)]

    def gain(j: int, c: int) -> float:
        hits = int(((clusters == j) & (labels == c)).sum())
        return hits / max(sizes[j], 1) if share else hits

    choices = permutations(range(n_classes), n_known)
    matched = max(choices, key=lambda chosen: sum(gain(j, c) for c, j in enumerate(chosen)))
    known = [max(sizes[j], 1) for j in matched]
    if rank_match:
        labeled = [int((labels == c).sum()) for c in range(n_known)]
        order = sorted(range(n_known), key=lambda c: labeled[c])
        for size, c in zip(sorted(known), order, strict=True):
            known[c] = size
    rest = [max(sizes[j], 1) for j in range(n_classes) if j not in matched]
    return known + sorted(rest, reverse=True)
