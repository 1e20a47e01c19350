"""How far an answer can be trusted, by known classes that were hidden as if they were new."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    called_known: BoolArray
    """(n,) images that were put into a known class."""
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
    precision: float | None
    """Right ones among images that are put into known classes."""
    precision_new: float | None
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
    and all shares are moved to the accuracy that this gives: what is told of known and of new
    classes adds up to what is told of all.

    known_share: of the unlabeled images, so that known and new ones weigh as they are mixed.
    """
    if not checks:
        return None
    rows, right, is_known, called = (
        np.concatenate([getattr(each, name) for each in checks])
        for name in ("rows", "right", "is_known", "called_known")
    )
    n_known = int(is_known.sum())
    if min(n_known, len(rows) - n_known) < MIN_CHECKED:
        return None
    share = float(np.clip(known_share, 0.05, 0.95))
    weights = np.where(is_known, share / n_known, (1 - share) / (len(rows) - n_known))
    found = np.where(is_known, 1.0, rules.new_ease) * right
    known = 1 - rules.still_missed * float(1 - right[is_known].mean())
    new = rules.new_ease * float(right[~is_known].mean())
    n_images, accuracy = len(np.unique(rows)), share * known + (1 - share) * new
    measured = Expected(
        n_images=n_images,
        n_classes=len(np.unique(np.concatenate([each.hidden for each in checks]))),
        accuracy=accuracy,
        interval=share_interval(accuracy, independent_images(n_images, rules)),
        known=known,
        new=new,
        precision=weighted_share(found, weights, called, rules),
        precision_new=weighted_share(found, weights, ~called, rules),
    )
    told = signs.accuracy(accuracy, rules)
    if told is None:
        return measured
    return replace(moved(measured, told, share, rules), halves=signs.halves)


def moved(measured: Expected, accuracy: float, known_share: float, rules: Rules) -> Expected:
    """The same with this accuracy, and the other shares moved so that they add up to it.

    The interval begins where that of hidden images alone does, if that is lower: answers also agree
    where features show something else than the classes, and only hidden images would tell.
    """
    shares = {"known": known_share, "new": 1 - known_share}
    shares |= {"precision": known_share, "precision_new": 1 - known_share}

    def to_accuracy(*names: str) -> dict[str, Any]:
        told = {name: getattr(measured, name) for name in names}
        told = {name: value for name, value in told.items() if value is not None}
        return dict(
            zip(told, shifted(told.values(), accuracy, [shares[n] for n in told]), strict=True)
        )

    low, high = share_interval(accuracy, round(rules.told_images))
    return replace(
        measured,
        accuracy=accuracy,
        interval=(min(low, measured.interval[0]), high),
        **to_accuracy("known", "new"),
        **to_accuracy("precision", "precision_new"),
    )


def shifted(values: Iterable[float], mean: float, weights: Sequence[float]) -> list[float]:
    """Shares moved by the same log-odds, so that their weighted mean is this."""
    odds = log_odds(np.array(list(values)))
    if not len(odds):
        return []
    found: list[float] = expit(odds + matching_shift(odds, mean, np.array(weights))).tolist()
    return found


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


def weighted_share(
    found: FloatArray, weights: FloatArray, chosen: BoolArray, rules: Rules = RULES
) -> float | None:
    """Weighted mean of the chosen; None when none is.

    At most what n independent images tell that are all right, (n + 1) / (n + 2): Laplace's rule.
    """
    if not chosen.any():
        return None
    n_images = independent_images(int(chosen.sum()), rules)
    share = float(np.average(found[chosen], weights=weights[chosen]))
    return min(share, (n_images + 1) / (n_images + 2))


def share_interval(share: float, n_images: int) -> tuple[float, float]:
    """95 % interval of a share seen in so many images."""
    found = binomtest(round(share * n_images), n_images).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)
