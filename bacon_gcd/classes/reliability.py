"""How far an answer can be trusted, by known classes that were hidden as if they were new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from scipy.stats import binomtest

from bacon_gcd.classes.calibration import log_odds, matching_shift
from bacon_gcd.classes.rules import RULES, Rules

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

CENTROID_TEMPERATURE = 0.1  # ours: the classifier's temperature, so that confidences compare
MIN_CHECKED = 5  # images of each kind


@dataclass(frozen=True, eq=False)
class Checked:
    """n hidden images, of known classes and of hidden ones, sorted without their labels."""

    rows: IntArray
    right: BoolArray
    is_known: BoolArray
    """(n,) images of classes that stayed known."""
    hidden: IntArray
    """The classes that were hidden."""


@dataclass(frozen=True)
class Signs:
    """How often answers agree, 0 to 1, which tells how many are right; None: not asked."""

    halves: float | None = None
    """Unlabeled images that half of the features puts into the same class; `classes.halves`."""
    neighbors: float | None = None
    """Neighbors of unlabeled images that are in the same class."""

    def accuracy(self, hidden: float, rules: Rules) -> float | None:
        """Unlabeled images that are right, where hidden ones say this; None: they say it alone."""
        if self.halves is None or self.neighbors is None:
            return None
        return told_share(rules.told, hidden, self.halves, self.neighbors)


NO_SIGNS = Signs()


def told_share(weights: Sequence[float], *shares: float) -> float:
    """The weighted sum of shares, and the last weight; never quite 0 or 1."""
    total = sum(w * each for w, each in zip(weights, shares, strict=False)) + weights[-1]
    return min(max(total, 0.05), 0.98)


@dataclass(frozen=True)
class Expected:
    """What hidden images say of the answer on unlabeled ones; shares are 0 to 1."""

    n_images: int
    """Labeled images it was measured on."""
    n_classes: int
    """Known classes that were hidden as if they were new."""
    accuracy: float
    """Unlabeled images that are right, known and new in the proportion that was found."""
    interval: tuple[float, float]
    """95 % (Wilson 1927), of `independent_images`; from the lower of two ends, see `moved`."""
    known: float
    """Images of known classes that are found again."""
    new: float
    """Images of new classes that are in the class that stands for theirs."""
    precision: float | None = None
    """Right ones among images that are put into known classes; None: there are none."""
    precision_new: float | None = None
    """Right ones among images that are put into new classes."""
    halves: float | None = None
    """Unlabeled images that half of the features puts into the same class; None: not asked."""


def expected(
    checks: Sequence[Checked],
    *,
    known_share: float,
    signs: Signs = NO_SIGNS,
    rules: Rules = RULES,
) -> Expected | None:
    """Pool the checks; None when too few images could be hidden.

    Hidden classes are found more easily than classes that nobody has seen, because their number is
    known; hidden images of known classes less easily than unlabeled ones, because there are fewer
    labels. `rules` says by how much. Where halves of the features were asked, they say more of it,
    and both shares are moved to the accuracy that this gives: what is told of known and of new
    classes adds up to what is told of all.

    known_share: of the unlabeled images, so that known and new ones weigh as they are mixed.
    """
    if not checks:
        return None
    rows, right, is_known = (
        np.concatenate([getattr(each, name) for each in checks])
        for name in ("rows", "right", "is_known")
    )
    n_known = int(is_known.sum())
    if min(n_known, len(rows) - n_known) < MIN_CHECKED:
        return None
    share = float(np.clip(known_share, 0.05, 0.95))
    known = 1 - rules.still_missed * float(1 - right[is_known].mean())
    new = rules.new_ease * float(right[~is_known].mean())
    n_images, accuracy = len(np.unique(rows)), share * known + (1 - share) * new
    measured = Expected(
        n_images=n_images,
        n_classes=len(np.unique(np.concatenate([each.hidden for each in checks]))),
        accuracy=accuracy,
        interval=share_interval(accuracy, independent_images(n_images, rules)),
        known=told_of_few(known, n_known, rules),
        new=told_of_few(new, len(rows) - n_known, rules),
    )
    told = signs.accuracy(accuracy, rules)
    if told is None:
        return measured
    return replace(moved(measured, told, share, rules), halves=signs.halves)


def moved(measured: Expected, accuracy: float, known_share: float, rules: Rules) -> Expected:
    """The same with this accuracy, known and new moved by the log-odds that it takes.

    The interval begins where that of hidden images alone does, if that is lower: answers also agree
    where features show something else than the classes, and only hidden images would tell.
    """
    sides = log_odds(np.array([measured.known, measured.new]))
    by = matching_shift(sides, accuracy, np.array([known_share, 1 - known_share]))
    known, new = expit(sides + by).tolist()
    low, high = share_interval(accuracy, round(rules.told_images))
    interval = (min(low, measured.interval[0]), high)
    return replace(measured, accuracy=accuracy, interval=interval, known=known, new=new)


def told_of_few(share: float, n_images: int, rules: Rules = RULES) -> float:
    """The share, at most what so many images tell that are all right: (n + 1) / (n + 2). Laplace.

    n: independent images, see `independent_images`.
    """
    n = independent_images(n_images, rules)
    return min(share, (n + 1) / (n + 2))


def with_precision(
    measured: Expected, confidence: npt.NDArray[np.float32], in_known: BoolArray
) -> Expected:
    """The same with the share of right ones among the images of each side: their mean confidence.

    Confidences are set so that their mean is the expected accuracy, so what is told of both sides,
    and of every class, adds up to what is told of all.

    Args:
        confidence: (n,) of the unlabeled images.
        in_known: (n,) those that were put into known classes.
    """
    precision, precision_new = (
        float(confidence[side].mean()) if side.any() else None for side in (in_known, ~in_known)
    )
    return replace(measured, precision=precision, precision_new=precision_new)


def regression_serves(checks: Sequence[tuple[BoolArray, BoolArray]]) -> bool:
    """Unless hidden images say more clearly than chance that the evidence alone is better.

    A sign test at two standard deviations over images that only one of the two has right.

    checks: of each fold, hidden images that are right by the evidence and by the regression.
    """
    lost = sum(int((evidence & ~regression).sum()) for evidence, regression in checks)
    gained = sum(int((regression & ~evidence).sum()) for evidence, regression in checks)
    return lost - gained <= 2 * math.sqrt(lost + gained)


def agreement_of_neighbors(
    class_ids: IntArray, neighbors: IntArray, unlabeled: BoolArray
) -> float | None:
    """Share of the (N, k) neighbors of unlabeled images that are in the same class."""
    rows = np.flatnonzero(unlabeled)
    if not len(rows):
        return None
    return float((class_ids[neighbors[rows]] == class_ids[rows, None]).mean())


def usual_accuracy(signs: Signs, rules: Rules = RULES) -> float:
    """Unlabeled images that are right where answers agree this often. Ours.

    Used where nothing can be hidden to measure it.
    """
    if signs.neighbors is None:
        return 1.0
    if signs.halves is None:
        return max(rules.agreement_slope * (signs.neighbors - rules.agreement_start), 0.1)
    return told_share(rules.told_without_hidden, signs.halves, signs.neighbors)


def independent_images(n_images: int, rules: Rules = RULES) -> int:
    """Images that would say as much as so many of one set do. Ours.

    Hidden classes are a few of the known ones and differ from new ones in the same way in every
    fold, so that more images of them do not make the estimate better without end.
    """
    return max(round(1 / (1 / n_images + 1 / rules.most_independent)), 1)


def share_interval(share: float, n_images: int) -> tuple[float, float]:
    """95 % interval of a share seen in so many images."""
    found = binomtest(round(share * n_images), n_images).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)
