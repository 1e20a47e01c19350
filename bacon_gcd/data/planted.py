"""A dataset of planted vectors: ten clusters, of which a trial of everything else can be made.

No image is behind a row and no network is needed; the rows still form a table with classes and
splits, so that splits, methods and scores treat it like any other dataset.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bacon_gcd.data.images import ImageTable, from_arrays

N_CLASSES, DIM = 10, 32
PER_CLASS = {"train": 120, "test": 30}
SPREAD = 1.6  # of a cluster in each direction; centers have length LENGTH
LENGTH = 6.0


def load() -> ImageTable:
    """Every row with its true class, train before test, class by class; pixels are all black."""
    labels = _labels()
    splits = np.repeat(list(PER_CLASS), [N_CLASSES * n for n in PER_CLASS.values()])
    names = [f"cluster {number}" for number in range(N_CLASSES)]
    pixels = np.zeros((len(labels), 1, 1, 3), dtype=np.uint8)
    return from_arrays(pixels, labels, names, splits=splits.tolist())


def vectors() -> npt.NDArray[np.float32]:
    """(N, DIM) vectors of the rows of `load`; always the same."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_CLASSES, DIM))
    centers *= LENGTH / np.linalg.norm(centers, axis=1, keepdims=True)
    labels = _labels()
    found: npt.NDArray[np.float32] = (
        centers[labels] + SPREAD * rng.normal(size=(len(labels), DIM))
    ).astype(np.float32)
    return found


def _labels() -> npt.NDArray[np.int64]:
    classes = np.arange(N_CLASSES)
    return np.concatenate([np.repeat(classes, n) for n in PER_CLASS.values()])
