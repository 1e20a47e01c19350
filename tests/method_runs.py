"""Small runs of any method on planted problems."""

from dataclasses import fields, replace

import numpy as np
import torch

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods import METHODS, build_method, recipe_for, settings_for
from bacon_gcd.methods.base import Task
from bacon_gcd.training.loop import Trainer, TrainingData
from tests.planted import planted

# Quick, and short enough that everything that waits for an epoch or a step happens in a few.
QUICK = {"projector_width": 64, "warmup": 1, "interval": 2}


def small_settings(name, preset=None, **changes):
    plain = {f.name for f in fields(settings_for(name, preset=preset, changes={}))}
    quick = {key: value for key, value in QUICK.items() if key in plain}
    return settings_for(name, preset=preset, changes=quick | changes)


def trainer_for(
    name,
    problem=None,
    *,
    preset=None,
    epochs=2,
    batch_size=32,
    learning_rate=0.05,
    oracle_counts=None,
    **changes,
):
    problem = problem or planted(epochs=epochs)
    asked = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    recipe = recipe_for(name, preset=preset, changes=asked)
    torch.manual_seed(0)
    method = build_method(
        name,
        problem.task,
        problem.backbone,
        small_settings(name, preset, **changes),
        oracle_counts=oracle_counts,
    )
    return Trainer(method, problem.data, recipe, seed=0)


def batch_of(name, problem, positions=None, labels=None, *, seed=0, **where):
    positions = np.arange(0, len(problem.true), 3) if positions is None else np.asarray(positions)
    tokens = problem.data.source.batch(positions, METHODS[name].method.views, seed=seed, step=0)
    labels = problem.data.labels[positions] if labels is None else np.asarray(labels)
    return Batch(tokens, torch.from_numpy(labels), torch.from_numpy(positions), seed=seed, **where)


def only(problem, rows, labels=None):
    """The same problem with some of its images."""
    source = problem.data.source
    labels = (problem.data.labels if labels is None else labels)[rows]
    counts = np.bincount(labels[labels >= 0], minlength=problem.task.n_known)
    task = Task(
        n_classes=problem.task.n_classes,
        n_known=problem.task.n_known,
        labeled_counts=tuple(counts.tolist()),
        n_images=len(labels),
        n_epochs=problem.task.n_epochs,
    )
    tokens = ReadyTokens(source._tokens[torch.as_tensor(rows)], n_views=source.n_views)
    return replace(problem, data=TrainingData(tokens, labels), task=task, true=problem.true[rows])


class NewViews:
    """Fresh views at every step: no two steps see the same tokens of an image."""

    n_views = 4

    def __init__(self, source):
        self.source, self.token_shape = source, source.token_shape

    def __len__(self):
        return len(self.source)

    def test(self, positions):
        return self.source.test(positions)

    def stored_view(self, positions, view):
        return self._noisy(self.source.test(positions), (view,))

    def batch(self, positions, kinds, *, seed, step):
        tokens = self.source.test(positions)
        return torch.cat([self._noisy(tokens, (seed, step, v)) for v in range(len(kinds))])

    def _noisy(self, tokens, key):
        noise = np.random.default_rng(key).normal(size=tuple(tokens.shape))
        return tokens + 0.1 * torch.from_numpy(noise).float()
