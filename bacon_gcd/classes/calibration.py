"""Scores as probabilities that are as sure as the answer is expected to be right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit, logit
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

TEMPERATURES = np.geomspace(0.005, 10_000, 300)
MOST_COMPARED = 2000  # images from which a temperature is read
SURELY = 1e-6  # the share from which on log-odds are finite
EVEN = 0.99  # of the way to classes that are all as likely


def with_known_evidence(
    scores: Tensor, above: FloatArray, unlabeled: BoolArray, n_known: int, rules: Rules = RULES
) -> Tensor:
    """(N, C) scores in which the evidence of any known class counts, too. Ours.

    That evidence tells known and new images apart better than the regression does, and which class
    it is less well. So it moves known classes up or down together, never past the best new one: the
    class of an image stays.

    above: (N,) evidence of a known class beyond the threshold.
    """
    if not 0 < n_known < scores.shape[1] or not unlabeled.any():
        return scores
    ahead = scores[:, :n_known].amax(dim=1) - scores[:, n_known:].amax(dim=1)
    evidence, free = torch.from_numpy(above).to(scores.dtype), torch.from_numpy(unlabeled)
    spread = float(evidence[free].std(correction=0))
    if not spread > 0:
        return scores
    by = rules.evidence_share * float(ahead[free].std(correction=0)) / spread * evidence
    by = torch.where(ahead > 0, by.maximum(-ahead), by.minimum(-ahead))
    return torch.cat([scores[:, :n_known] + by[:, None], scores[:, n_known:]], dim=1)


def calibrated(probabilities: Tensor, counted: Tensor, sure: float, rules: Rules) -> Tensor:
    """(n, C) probabilities that are as sure as this on average, and less far apart. Ours.

    A softmax whose mean is right is too sure of the sure images and too little of the others: the
    log-odds of the best class are multiplied by `rules.confidence_slope` and moved together. What
    this adds or takes, all other classes give or get; the best class stays the best.

    counted: (n,) rows whose mean counts.
    """
    n_classes = probabilities.shape[1]
    if n_classes < 2 or not counted.any():
        return probabilities
    top, best = probabilities.max(dim=1)
    odds = rules.confidence_slope * log_odds(top.double().numpy())
    some = odds[counted.numpy()][:: max(int(counted.sum()) // MOST_COMPARED, 1)]
    wanted = torch.from_numpy(expit(odds + matching_shift(some, sure))).to(top.dtype)
    more = ((wanted - top) / (1 - top).clamp_min(1e-6)).clamp(0, 1)[:, None]
    less = ((top - wanted) / (top - 1 / n_classes).clamp_min(1e-6)).clamp(0, EVEN)[:, None]
    surer = torch.zeros_like(probabilities).scatter_(1, best[:, None], 1.0)
    return (1 - more - less) * probabilities + more * surer + less / n_classes


def matching_temperature(scores: Tensor, sure: float) -> float:
    """The temperature at which the softmax of (n, C) scores is as sure as this on average."""
    if not len(scores) or scores.shape[1] < 2:
        return 1.0
    some = scores[:: max(len(scores) // MOST_COMPARED, 1)]
    low, high = 0, len(TEMPERATURES) - 1
    while low < high:  # the hotter, the less sure
        middle = (low + high) // 2
        top = float((some / TEMPERATURES[middle]).softmax(dim=1).amax(dim=1).mean())
        low, high = (middle + 1, high) if top > sure else (low, middle)
    return float(TEMPERATURES[low])


def log_odds(shares: FloatArray) -> FloatArray:
    """Of shares from 0 to 1, both of which are finite here."""
    return np.asarray(logit(np.clip(shares, SURELY, 1 - SURELY)))


def matching_shift(odds: FloatArray, mean: float, weights: FloatArray | None = None) -> float:
    """What has to be added to log-odds so that the mean of the shares is this.

    weights: how much each counts; all the same unless given.
    """
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        above = float(np.average(expit(odds + middle), weights=weights)) > mean
        low, high = (low, middle) if above else (middle, high)
    return (low + high) / 2
