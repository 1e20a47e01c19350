"""From features and labels to classes: the one place where a discovery asks `classes` for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.assign import Sorted, sort_by
from bacon_gcd.classes.count import ClassNumber, Range
from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.reliability import Expected
from bacon_gcd.classes.rules import RULES
from bacon_gcd.discovery.constrained import settle_under, sort_under
from bacon_gcd.discovery.corrected import Corrected, resized
from bacon_gcd.system.progress import working

IntArray = npt.NDArray[np.int64]


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
    expected: Expected | None
    """What hidden classes say of the answer; None: too little could be hidden."""
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
    suspecting: IntArray,
    constraints: Corrected | None = None,
) -> Answer:
    """Count the classes, find where they are, and sort every image into one.

    Args:
        features: (N, D) unit rows.
        labels: (N,) known class, -1 = unlabeled.
        groups: (N,) images of one group (a photo series) are hidden together.
        allowed: smallest and largest number of classes; equal ones are not counted.
        threshold: of the probability from which an image is known; None: the likeliest class.
        constraints: a person's corrections; known are then the classes that they call so.
        suspecting: (N, K) similar images by which labels are suspected.
    """
    # Small matrices and trees: classes are found on the CPU.
    with torch.device("cpu"), working("counting classes and sorting images"):
        found = find_classes(features, labels, seed=seed, allowed=allowed, groups=groups)
    suspecting = suspecting[:, : RULES.suspecting]
    if constraints is not None:
        with torch.device("cpu"):
            return _sort_under(
                features,
                found.number,
                found.expected,
                constraints,
                suspecting,
                threshold=threshold,
                seed=seed,
            )
    images = sort_by(
        found.probabilities,
        labels,
        suspecting,
        n_known=int(labels.max(initial=-1)) + 1,
        threshold=threshold,
    )
    images = replace(images, probabilities=found.probabilities)
    n_classes, centroids = found.number.estimate, found.centroids
    return Answer(found.number, n_classes, centroids, found.temperature, found.expected, images)


def _sort_under(
    features: Tensor,
    number: ClassNumber,
    expected: Expected | None,
    asked: Corrected,
    suspecting: IntArray,
    *,
    threshold: float | None,
    seed: int,
) -> Answer:
    """As many classes as were counted, but all that a person's corrections require."""
    wanted = max(number.estimate, int(asked.required.sum()))
    left = resized(asked, min(wanted, asked.most_classes))
    n_classes = len(left.classes)
    sure = expected.accuracy if expected else None
    found = settle_under(features, left, suspecting, sure=sure, seed=seed)
    images = sort_under(left, found, suspecting, threshold=threshold)
    filled = np.bincount(images.class_ids, minlength=n_classes) > 0
    if not filled.all():  # the ids of classes that are gone are not used again
        left, found = left.only(filled), found.only(filled)
        images = sort_under(left, found, suspecting, threshold=threshold)
    return Answer(number, n_classes, found.centroids, found.temperature, expected, images, left)
