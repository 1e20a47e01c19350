"""Every image into a class: how sure that is, what fits nowhere, which labels look wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.rules import RULES
from bacon_gcd.cluster import unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sorted:
    """One entry per image."""

    class_ids: IntArray
    confidence: FloatArray
    """1 for labeled images: they never leave their class."""
    known_probability: FloatArray
    """How likely it is that the class is a known one; 1 for labeled images."""
    outlier: BoolArray
    suggested: IntArray
    """The class a labeled image looks like, if that is not its own; -1 otherwise."""
    second_choice: IntArray | None = None
    """The class that comes next; -1 = none."""
    nearest_known: IntArray | None = None
    """The likeliest known class; -1 = none."""
    probabilities: npt.NDArray[np.floating[Any]] | None = None
    """(N, C), where centroids and a temperature alone do not give them."""


def sort_by(
    probabilities: npt.NDArray[np.floating[Any]],
    labels: IntArray,
    neighbors: IntArray,
    *,
    n_known: int,
    threshold: float | None = None,
) -> Sorted:
    """The likeliest class for unlabeled images, their own class for labeled ones.

    Which of them are outliers is not asked here; see `classes.sorter`.

    Args:
        probabilities: (N, C), the known classes first.
        labels: (N,) known class, -1 = unlabeled.
        neighbors: (N, K) the most similar rows of each.
        threshold: see `choose_side`.
    """
    labeled = labels >= 0
    class_ids = np.where(labeled, labels, choose_side(probabilities, n_known, threshold))
    sure = probabilities[np.arange(len(labels)), class_ids]
    return Sorted(
        class_ids,
        np.where(labeled, 1.0, sure).astype(np.float64),
        np.where(labeled, 1.0, probability_known(probabilities, n_known)),
        np.zeros(len(labels), dtype=bool),
        suspects(labels, class_ids, neighbors),
        second_choice(probabilities, class_ids),
        best_known(probabilities, n_known),
    )


def second_choice(probabilities: npt.NDArray[np.floating[Any]], class_ids: IntArray) -> IntArray:
    """(N,) the likeliest class but the one that was chosen; -1 where there is no other."""
    if probabilities.shape[1] < 2:
        return np.full(len(class_ids), -1, dtype=np.int64)
    others = probabilities.copy()
    others[np.arange(len(class_ids)), class_ids] = -1
    return np.asarray(others.argmax(axis=1), dtype=np.int64)


def best_known(probabilities: npt.NDArray[np.floating[Any]], n_known: int) -> IntArray:
    """(N,) the likeliest of the known classes; -1 where there is none."""
    if n_known == 0:
        return np.full(len(probabilities), -1, dtype=np.int64)
    return np.asarray(probabilities[:, :n_known].argmax(axis=1), dtype=np.int64)


def probability_known(probabilities: npt.NDArray[np.floating[Any]], n_known: int) -> FloatArray:
    """(N,) summed over the known classes, which are the first of the (N, C) columns."""
    total: FloatArray = probabilities[:, :n_known].sum(axis=1, dtype=np.float64)
    return total.clip(0.0, 1.0)


def choose_side(
    probabilities: npt.NDArray[np.floating[Any]], n_known: int, threshold: float | None
) -> IntArray:
    """(N,) class ids: known or novel first, then the best class of that side. Ours.

    An image is known if its known classes together have at least `threshold` of the probability.
    Without a threshold, or where one side has no class, the best class of all is taken.

    probabilities: (N, C), the known classes first.
    """
    if threshold is None or not 0 < n_known < probabilities.shape[1]:
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    known = probability_known(probabilities, n_known) >= threshold
    best_known = probabilities[:, :n_known].argmax(axis=1)
    best_novel = n_known + probabilities[:, n_known:].argmax(axis=1)
    return np.asarray(np.where(known, best_known, best_novel), dtype=np.int64)


def distances(cosines: Tensor, class_ids: IntArray) -> FloatArray:
    """(N,) 1 - cosine of each row with the centroid of this class."""
    own = cosines.gather(1, torch.from_numpy(class_ids).to(cosines.device)[:, None])[:, 0]
    return 1 - own.double().numpy(force=True)


def class_radii(features: Tensor, labels: IntArray, centroids: Tensor) -> FloatArray:
    """(C,) radii of the classes of (N, D) unit features; labeled rows count in their own class."""
    cosines = features @ unit(centroids).T
    home = np.where(labels >= 0, labels, cosines.argmax(dim=1).numpy(force=True))
    return radii(distances(cosines, home), home, len(centroids))


def fits_nowhere(features: Tensor, centroids: Tensor, limits: FloatArray) -> BoolArray:
    """(N,) rows that lie outside the radius even of their nearest class."""
    cosines = features @ unit(centroids).T
    home = cosines.argmax(dim=1).numpy(force=True)
    return np.asarray(distances(cosines, home) > limits[home])


def radii(away: FloatArray, class_ids: IntArray, n_classes: int) -> FloatArray:
    """(C,) distance from its centroid beyond which an image of the class is an outlier. Ours.

    Median + 3.5 robust standard deviations; small classes use those of all images. A class is
    never taken to be tighter than half of the typical spread.
    """
    everyone, common = _middle_and_spread(away)
    limits = np.full(n_classes, everyone + RULES.outlier_spreads * common)
    for c in np.flatnonzero(np.bincount(class_ids, minlength=n_classes) >= RULES.own_statistics):
        middle, spread = _middle_and_spread(away[class_ids == c])
        limits[c] = middle + RULES.outlier_spreads * max(spread, common / 2)
    return limits.clip(min=1e-6)  # rounding is no distance


def _middle_and_spread(values: FloatArray) -> tuple[float, float]:
    middle = float(np.median(values))
    return middle, 1.4826 * float(np.median(np.abs(values - middle)))


def suspects(labels: IntArray, class_ids: IntArray, neighbors: IntArray) -> IntArray:
    """(N,) the class most neighbors of a labeled image are in, when none is in its own; else -1.

    A class too small to fill the neighbors of its members is left out: its
    members have neighbors of other classes because there are not enough of their own.
    """
    suggested = np.full(len(labels), -1, dtype=np.int64)
    large = np.bincount(class_ids) > neighbors.shape[1]
    rows = np.flatnonzero((labels >= 0) & large[class_ids])
    near = class_ids[neighbors[rows]]
    votes = (near[:, :, None] == near[:, None, :]).sum(axis=2)
    most = votes.max(axis=1, initial=0)
    # Of classes with as many votes, the one with the smallest id.
    likely = np.where(votes == most[:, None], near, len(large)).min(axis=1, initial=len(large))
    alien = ~(near == labels[rows, None]).any(axis=1)
    wrong = alien & (most >= RULES.suspect_votes * neighbors.shape[1]) & (most > 0)
    suggested[rows[wrong]] = likely[wrong]
    return suggested
