"""The optimizer of a parameter group, and its learning rate at each epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from bacon_gcd.config import choose
from bacon_gcd.methods.base import Group, Recipe

FLOOR = 1e-3
"""The cosine schedule ends at this share of the learning rate, as in the released code."""


def optimizer_for(group: Group, recipe: Recipe) -> torch.optim.Optimizer:
    """SGD or Adam; vectors (biases, norms) are decayed only where the group says so."""
    matrices = [p for p in group.parameters if p.ndim > 1]
    vectors = [p for p in group.parameters if p.ndim <= 1]
    decay = recipe.weight_decay
    parts = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": decay if group.decay_vectors else 0.0},
    ]
    choose("optimizer", recipe.optimizer, ["sgd", "adam"])
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parts, lr=recipe.learning_rate, fused=True)
    # One pass over weights, gradients and momentum instead of four: memory is the limit here.
    return torch.optim.SGD(parts, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Rate of a 0-based epoch: cosine with a floor, steps at milestones, or constant."""
    choose("schedule", recipe.schedule, ["cosine", "step", "constant"])
    peak = recipe.learning_rate
    if recipe.schedule == "cosine":
        floor = peak * FLOOR
        return floor + (peak - floor) * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
    if recipe.schedule == "step":
        passed = sum(epoch >= share * recipe.epochs for share in recipe.milestones)
        return float(peak * 0.1**passed)
    return peak


def set_learning_rate(
    optimizers: Mapping[str, torch.optim.Optimizer], recipe: Recipe, epoch: int
) -> None:
    """Give every optimizer the epoch's rate."""
    for optimizer in optimizers.values():
        for part in optimizer.param_groups:
            part["lr"] = learning_rate(recipe, epoch)
