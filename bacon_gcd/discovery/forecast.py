"""How long a discovery will take: measured on some of its own images before the work begins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.rendering import render_images, trunk_tokens
from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.cluster import kmeans
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.discovery.learn import short_plan
from bacon_gcd.discovery.settings import Effort
from bacon_gcd.methods.base import Task
from bacon_gcd.system.processes import alone, n_processes
from bacon_gcd.system.progress import working
from bacon_gcd.training.start import new_trainer

T = TypeVar("T")
TIMED_IMAGES = 8
TIMED_SECONDS = 0.3  # that each measurement goes on at least
# Of the k-means that tells how fast this machine sorts now. Its width is that of the space in which
# classes are found; how wide the features are counts for the way there and for neighbors only.
TIMED_ROWS, TIMED_DIM, TIMED_CLUSTERS = 2000, 128, 20
# Sorting takes as long as so many such k-means: always, for the root of the first 10,000 images,
# beyond which classes are counted on a sample, for every image, and for every value of one. Fitted
# by `python -m bench forecast`.
ALWAYS, OF_SAMPLE, OF_EACH, OF_VALUE = 165.0, 4.8, 0.021, 7.4e-5
SAMPLE = 10_000


@dataclass(frozen=True)
class Forecast:
    """Expected seconds of the parts of a discovery."""

    embedding: float
    training: float
    sorting: float
    """Counting, sorting, map and report."""
    epochs: int

    @property
    def total(self) -> float:
        """Of the whole command."""
        return self.embedding + self.training + self.sorting

    def line(self) -> str:
        """What is done with each image, and how long the whole command will take."""
        minutes = self.total / 60
        shown = f"{minutes:.0f} minutes" if minutes > 1.7 else f"{max(self.total, 1):.0f} s"
        training = f"{self.epochs} epochs of training, twice" if self.epochs else "no training"
        return f"{training}: about {shown} from here"


@torch.no_grad()
def forecast(
    table: ImageTable, backbone: Backbone, effort: Effort, *, n_missing: int, workers: int
) -> Forecast:
    """Expected seconds, from a few images, steps and clusters.

    n_missing: images whose tokens are not stored yet.
    """
    n_images, n_shares = len(table), n_processes()
    each = step = tail = 0.0
    with alone(), working("measuring how fast this machine is"):
        if n_missing or effort.epochs:
            tokens, each = _embedded(table, backbone, effort.views, workers)
        if effort.epochs:
            step, tail = _trained(tokens, backbone)
        clustered = _clustered()
    passes = 2 + _estimates(n_images, effort.epochs) if effort.epochs else 0
    return Forecast(
        embedding=each * n_missing / n_shares,
        # Twice: the first time on trial, with classes hidden.
        training=2 * (step * effort.epochs + tail * passes) * n_images / n_shares,
        sorting=clustered * sortings(n_images, backbone.feature_dim),
        epochs=effort.epochs,
    )


def sortings(n_images: int, dim: int) -> float:
    """How many small k-means the sorting of this many images takes as long as.

    dim: values of the features of one.
    """
    sampled: float = min(n_images, SAMPLE) ** 0.5
    return ALWAYS + OF_SAMPLE * sampled + (OF_EACH + OF_VALUE * dim) * n_images


def _embedded(
    table: ImageTable, backbone: Backbone, n_views: int, workers: int
) -> tuple[Tensor, float]:
    """Tokens of some images of the table, and the seconds that one image takes in all its views."""
    if isinstance(backbone, Vectors):
        shape = (TIMED_IMAGES, backbone.feature_dim)
        return torch.ones(shape, device=backbone.device), 0.0
    rows = np.linspace(0, len(table) - 1, min(TIMED_IMAGES, len(table))).astype(np.int64)
    weak = ViewSettings("weak", backbone.image_size)
    test = weak.for_test(uncropped=backbone.uncropped)
    wanted = [(test, 0), *((weak, view) for view in range(1, n_views + 1))]
    rendering, pixels = _seconds(lambda: render_images(table, rows, [wanted] * len(rows), seed=0))
    timed = pixels[0][: backbone.at_a_time]
    trunk_tokens(backbone, timed)  # the first call is slower
    trunk, tokens = _seconds(lambda: trunk_tokens(backbone, timed))
    at_once = max(1, min(workers, os.cpu_count() or 1))  # threads render while the trunk computes
    return tokens, trunk * len(wanted) / len(timed) + rendering / at_once / len(rows)


def _trained(tokens: Tensor, backbone: Backbone) -> tuple[float, float]:
    """Seconds per image of a training step, and of a pass through the tail."""
    plan = short_plan(1)
    n_rows = plan.recipe.batch_size
    many = tokens[torch.arange(n_rows, device=tokens.device) % len(tokens)]
    labels = np.where(np.arange(n_rows) % 2, -1, 0)
    trainer = new_trainer(
        plan.name,
        plan.settings,
        plan.recipe,
        ReadyTokens(many, noise=0.1),
        labels,
        backbone,
        n_classes=2,
        n_known=1,
        seed=0,
        device=backbone.device,
    )
    with torch.enable_grad():
        trainer.step(np.arange(n_rows))
        step, _ = _seconds(lambda: trainer.step(np.arange(n_rows)))
    tail, _ = _seconds(lambda: trainer.method.features(many))
    return step / n_rows, tail / n_rows


def _estimates(n_images: int, epochs: int) -> float:
    """How often the class sizes are estimated during training."""
    task = Task(2, 1, (1,), n_images, epochs)
    return epochs / task.scaled(short_plan(epochs).settings.interval)


def _clustered() -> float:
    """Seconds of a small k-means: how fast this machine sorts, with all that it does besides."""
    rows = small_rows()
    cluster(rows)  # the first call is slower
    return _seconds(lambda: cluster(rows))[0]


def small_rows() -> Tensor:
    """Rows of a small set."""
    shape = TIMED_ROWS, TIMED_DIM
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape)).float()


def cluster(rows: Tensor) -> None:
    """The small k-means that is the unit of time of the sorting."""
    kmeans(rows, TIMED_CLUSTERS, n_init=1, seed=0, max_iterations=5)


def _seconds(work: Callable[[], T]) -> tuple[float, T]:
    """How long it takes on average, and what it gave.

    Repeated for a while: on a busy machine a short piece of work is either not interrupted at all
    or waits for several others.
    """
    start, n_times = time.perf_counter(), 0
    while True:
        made, n_times = work(), n_times + 1
        taken = time.perf_counter() - start
        if taken >= TIMED_SECONDS:
            return taken / n_times, made
