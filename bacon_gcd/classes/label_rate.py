"""How many labels lie around an image: fewer than around its class where it is new.

Of a class with labels some images are labeled, and about as many of them wherever its images lie. A
dense group of images without a label is a class of its own the more surely, the larger the labeled
part of the images around labels is. Where labels are rare this says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bacon_gcd.classes.question import labels_per_class
from bacon_gcd.classes.rules import RULES, Rules

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
LEAST_RATE, MOST_RATE = 1e-4, 0.98


def number_around(labels: IntArray, rules: Rules = RULES) -> int:
    """How many images around one are looked at; of few images, fewer, and none for few labels."""
    if labels_per_class(labels) < rules.many_labels:
        return 0
    return max(1, min(rules.around, len(labels) // rules.rows_per_neighbor))


@dataclass(frozen=True, eq=False)
class LabelRates:
    """Which part of the images around labeled images is labeled, too."""

    of_class: FloatArray
    """(K,)"""
    mean: float
    """Of all labeled images."""
    n_around: int
    """Images around each that were looked at."""

    def evidence(self, around: IntArray, classes: IntArray, rules: Rules = RULES) -> FloatArray:
        """(n,) log-odds of so many labels around an image of a class, not of a new class. Ours.

        Binomial: around an image of a class with labels its own rate is expected, around one of a
        new class a part of it. In units in which it does not grow with the number of labels.

        Args:
            around: (n,) labels around each image.
            classes: (n,) the known class that fits it best.
        """
        if not self.n_around:
            return np.zeros(len(around))
        rate, part = self.of_class[classes], rules.rate_of_new
        with_label = around * -np.log(part)
        without = (self.n_around - around) * np.log((1 - rate) / (1 - part * rate))
        return np.asarray((with_label + without) * rules.neighbors / (self.n_around * self.mean))


def labels_around(labels: IntArray, neighbors: IntArray) -> IntArray:
    """(n,) labeled ones of the (n, k) neighbors."""
    found: IntArray = (labels[neighbors] >= 0).sum(axis=1)
    return found


def fit_label_rates(
    around: IntArray, classes: IntArray, n_around: int, *, n_known: int, rules: Rules = RULES
) -> LabelRates:
    """The rates of known classes; a class of few labels has about that of all.

    Args:
        around: (n,) labels around labeled images, without themselves.
        classes: (n,) their classes.
        n_around: images around each that were looked at.
    """
    if not n_around or not len(around):
        return LabelRates(np.full(n_known, MOST_RATE), MOST_RATE, 0)
    mean = float(np.clip(around.mean() / n_around, LEAST_RATE, MOST_RATE))
    labeled = np.bincount(classes, around, n_known) + rules.rate_images * mean
    looked_at = np.bincount(classes, minlength=n_known) * n_around + rules.rate_images
    return LabelRates(np.clip(labeled / looked_at, LEAST_RATE, MOST_RATE), mean, n_around)
