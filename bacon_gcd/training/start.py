"""A trainer from settings and data; benchmark, discovery and estimator all start here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.sources import TokenSource
from bacon_gcd.methods import build_method
from bacon_gcd.methods.base import Recipe, TailSource, Task
from bacon_gcd.system.processes import n_processes
from bacon_gcd.training.distributed import SharedTails
from bacon_gcd.training.loop import Recorder, Trainer, TrainingData

IntArray = npt.NDArray[np.int64]


def new_trainer(
    name: str,
    settings: Any,
    recipe: Recipe,
    source: TokenSource,
    labels: IntArray,
    backbone: TailSource,
    *,
    n_classes: int,
    n_known: int,
    seed: int,
    oracle_counts: Tensor | None = None,
    bfloat16: bool = False,
    device: torch.device | None = None,
    recorder: Recorder | None = None,
) -> Trainer:
    """The method called `name` with fresh parameters, ready to train on the given images.

    Args:
        name: a name of METHODS.
        settings: the method's own, from `settings_for`.
        recipe: how it is optimized, from `recipe_for`.
        source: tokens of the N training images.
        labels: (N,) known class, -1 = unlabeled.
        backbone: gives the method its tails.
        n_classes: known and novel classes together.
        n_known: classes 0..n_known-1 are known, whether or not they have a label here.
        seed: decides the first parameters, batches and views.
        oracle_counts: (C,) true class sizes, for settings whose prior is an oracle.
        bfloat16: run the steps under autocast.
        device: where the method is trained; torch's default device unless given.
        recorder: is told of every step and epoch.
    """
    task = Task.from_labels(labels, n_classes=n_classes, n_known=n_known, n_epochs=recipe.epochs)
    # Parameters are drawn on the CPU and moved: the same first ones on every device.
    with torch.random.fork_rng(), torch.device("cpu"):
        torch.manual_seed(seed)
        tails = SharedTails(backbone) if n_processes() > 1 else backbone
        method = build_method(name, task, tails, settings, oracle_counts=oracle_counts)
    data = TrainingData(source, labels)
    return Trainer(
        method, data, recipe, seed=seed, bfloat16=bfloat16, device=device, recorder=recorder
    )
