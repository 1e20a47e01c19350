"""How far a confidence can be trusted: labels held out, a temperature, and what came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from torch import Tensor

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CENTROID_TEMPERATURE = 0.1  # ours: the classifier's temperature, so that confidences compare
SHARE = 0.2  # of a class's labels that are held out, but at least one
TEMPERATURES = np.geomspace(0.005, 0.5, 60)
N_BINS = 5


@dataclass(frozen=True)
class Bin:
    """Held-out images of about the same confidence."""

    confidence: float
    accuracy: float
    n_images: int


@dataclass(frozen=True)
class Reliability:
    """What held-out labels say of the answers on known classes; shares are 0 to 1."""

    temperature: float
    n_images: int
    accuracy: float
    interval: tuple[float, float]
    """95% (Wilson)."""
    error: float
    """Expected calibration error: mean gap between confidence and accuracy."""
    bins: tuple[Bin, ...]


def hold_out(
    labels: IntArray, groups: Sequence[str] | None, *, min_labels: int, seed: int
) -> BoolArray:
    """(N,) labeled rows to hide: about a fifth of each class, whole groups, never all of a class.

    A class with fewer than `min_labels` labels keeps them all.
    """
    held = np.zeros(len(labels), dtype=bool)
    labeled = np.flatnonzero(labels >= 0)
    totals = np.bincount(labels[labeled])
    most = np.where(totals >= min_labels, np.maximum(SHARE * totals, 1), 0).astype(np.int64)
    most = np.minimum(most, np.maximum(totals - 1, 0))
    units: dict[object, list[int]] = {}
    for row in labeled.tolist():
        units.setdefault(row if groups is None else groups[row], []).append(row)
    for name in _shuffled(list(units), seed):
        counts = np.bincount(labels[units[name]], minlength=len(most))
        if (counts <= most).all():
            most = most - counts
            held[units[name]] = True
    return held


def _shuffled(names: list[object], seed: int) -> list[object]:
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def measure(cosines: Tensor, true: IntArray) -> Reliability:
    """The temperature under which held-out labels are most likely, and what it achieves.

    Guo et al. 2017, on a grid.

    Args:
        cosines: (n, C) held-out rows against centroids that were placed without their labels.
        true: (n,) their classes.
    """
    target = torch.from_numpy(true)
    losses = [float(F.cross_entropy(cosines / t, target)) for t in TEMPERATURES]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    confidence, predicted = (part.numpy() for part in (cosines / temperature).softmax(1).max(1))
    right = predicted == true
    bins = tuple(_bins(confidence, right))
    gap = sum(b.n_images * abs(b.confidence - b.accuracy) for b in bins) / len(true)
    found = binomtest(int(right.sum()), len(true)).proportion_ci(method="wilson")
    interval = (float(found.low), float(found.high))
    return Reliability(temperature, len(true), float(right.mean()), interval, gap, bins)


def _bins(confidence: npt.NDArray[np.float32], right: BoolArray) -> list[Bin]:
    which = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return [
        Bin(float(confidence[which == b].mean()), float(right[which == b].mean()), int(n))
        for b, n in enumerate(np.bincount(which, minlength=N_BINS))
        if n
    ]
