"""From features and labels to classes: the one place where a discovery asks `classes` for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bacon_gcd.classes.assign import Sorted, sort_images
from bacon_gcd.classes.calibration import Reliability, hold_out
from bacon_gcd.classes.centroids import settle
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.number import ClassNumber, Range, count_classes
from bacon_gcd.discovery.constrained import settle_under, sort_under
from bacon_gcd.discovery.corrected import Corrected, resized

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
MIN_LABELS = 2  # of a class, from which on some are hidden to measure with
MIN_LABELS_TRAINED = 5  # the same for labels that training does not see


@dataclass(frozen=True, eq=False)
class Answer:
    """C classes, known ones first, and N images sorted into them."""

    number: ClassNumber
    """How many classes there seem to be."""
    n_classes: int
    """How many were looked for; without an image in one that is new, it is not in the answer."""
    centroids: Tensor
    """(C, D) unit rows."""
    temperature: float
    """Of the softmax of the cosines with the centroids that gives the confidence."""
    reliability: Reliability | None
    """What hidden labels say of the answer; None: none could be hidden."""
    images: Sorted
    corrections: Corrected | None = None
    """The classes of the answer, where a person's corrections decide on them."""


def sort_features(
    features: Tensor,
    labels: IntArray,
    groups: Sequence[str] | None,
    *,
    allowed: Range | None,
    threshold: float | None,
    seed: int,
    constraints: Corrected | None = None,
    hidden: BoolArray | None = None,
    neighbors: IntArray | None = None,
) -> Answer:
    """Count the classes, find where they are, and sort every image into one.

    Args:
        features: (N, D) unit rows.
        labels: (N,) known class, -1 = unlabeled.
        groups: (N,) images of one group (a photo series) are hidden together.
        allowed: smallest and largest number of classes; equal ones are not counted.
        threshold: of the probability from which an image is known; None: the likeliest class.
        constraints: a person's corrections; known are then the classes that they call so.
        hidden: (N,) labels to measure with, which training did not see; chosen here unless given.
        neighbors: (N, K) similar images, by which labels are suspected; of `features` unless given.
    """
    number = count(features, labels, allowed=allowed, seed=seed)
    near = nearest(features) if neighbors is None else neighbors
    if constraints is not None:
        return _sort_under(
            features, groups, number, constraints, hidden, near, threshold=threshold, seed=seed
        )
    if hidden is None:
        hidden = hidden_labels(labels, groups, trained=False, seed=seed)
    found = settle(features, labels, hidden, n_classes=number.estimate, seed=seed)
    images = sort_images(
        features,
        labels,
        found.centroids,
        near,
        temperature=found.temperature,
        threshold=threshold,
    )
    return Answer(
        number, number.estimate, found.centroids, found.temperature, found.reliability, images
    )


def count(features: Tensor, labels: IntArray, *, allowed: Range | None, seed: int) -> ClassNumber:
    """How many classes there are; a number that is given is not counted."""
    if allowed is not None and allowed[0] == allowed[1]:
        return ClassNumber(allowed[0], allowed, {})
    return count_classes(features, labels, seed=seed, allowed=allowed)


def hidden_labels(
    labels: IntArray, groups: Sequence[str] | None, *, trained: bool, seed: int
) -> BoolArray:
    """(N,) labels to measure with; training must not see them, so it gives up fewer."""
    few = MIN_LABELS_TRAINED if trained else MIN_LABELS
    return hold_out(labels, groups, min_labels=few, seed=seed)


def _sort_under(
    features: Tensor,
    groups: Sequence[str] | None,
    number: ClassNumber,
    asked: Corrected,
    hidden: BoolArray | None,
    neighbors: IntArray,
    *,
    threshold: float | None,
    seed: int,
) -> Answer:
    """As many classes as were counted, but all that a person's corrections require."""
    left = resized(asked, max(number.estimate, int(asked.required.sum())))
    n_classes = len(left.classes)
    if hidden is None:
        hidden = hidden_labels(left.given, groups, trained=False, seed=seed)
    found = settle_under(features, left, hidden, seed=seed)
    images = sort_under(features, left, found, neighbors, threshold=threshold)
    filled = np.bincount(images.class_ids, minlength=n_classes) > 0
    if not filled.all():  # the ids of classes that are gone are not used again
        left, found = left.only(filled), found.only(filled)
        images = sort_under(features, left, found, neighbors, threshold=threshold)
    return Answer(
        number, n_classes, found.centroids, found.temperature, found.reliability, images, left
    )
