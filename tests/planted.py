"""Planted problems with a known answer: well separated clusters with a mild tail."""

from dataclasses import dataclass

import numpy as np

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.methods.base import Task
from bacon_gcd.training.loop import TrainingData


@dataclass(frozen=True)
class Planted:
    data: TrainingData
    task: Task
    backbone: Vectors
    true: np.ndarray
    """(N,) true class of every training image."""
    counts: np.ndarray
    """(C,) true class sizes."""
    test: ReadyTokens
    true_test: np.ndarray


def planted(
    *, n_classes=6, n_known=4, dim=16, spread=0.35, n_max=48, ratio=4.0, n_views=3, epochs=4, seed=0
):
    """Clusters on random directions; half of every known class is labeled."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, dim))
    centers *= 3 / np.linalg.norm(centers, axis=1, keepdims=True)
    ranks = rng.permutation(n_classes)
    counts = np.floor(n_max * ratio ** (-ranks / max(n_classes - 1, 1))).astype(int)
    true = np.repeat(np.arange(n_classes), counts)
    images = centers[true] + spread * rng.normal(size=(len(true), dim))
    views = [images] + [images + 0.1 * rng.normal(size=images.shape) for _ in range(n_views)]
    labels = true.copy()
    for c in range(n_classes):
        members = np.flatnonzero(true == c)
        labels[members[len(members) // 2 :] if c < n_known else members] = -1
    true_test = np.repeat(np.arange(n_classes), 10)
    test = centers[true_test] + spread * rng.normal(size=(len(true_test), dim))
    known = labels[labels >= 0]
    task = Task(
        n_classes=n_classes,
        n_known=n_known,
        labeled_counts=tuple(np.bincount(known, minlength=n_known).tolist()),
        n_images=len(true),
        n_epochs=epochs,
    )
    tokens = ReadyTokens(np.stack(views, axis=1), n_views=n_views)
    return Planted(
        TrainingData(tokens, labels), task, Vectors(dim), true, counts, ReadyTokens(test), true_test
    )
