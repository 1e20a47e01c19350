"""Features, trained or as they are, and the classes in them: what `discover` and `fit` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.sources import TokenSource
from bacon_gcd.classes.neighbors import N_NEIGHBORS, nearest
from bacon_gcd.classes.rules import RULES
from bacon_gcd.discovery.corrected import Corrected
from bacon_gcd.discovery.settings import Range
from bacon_gcd.discovery.sorting import Answer, sort_features
from bacon_gcd.discovery.trial import Trial, try_training
from bacon_gcd.methods import recipe_for, settings_for
from bacon_gcd.methods.base import Method, Recipe
from bacon_gcd.model import CENTROID_METHOD
from bacon_gcd.training.embed import embed_views
from bacon_gcd.training.loop import Silent, Trainer
from bacon_gcd.training.start import new_trainer

IntArray = npt.NDArray[np.int64]
Note = Callable[..., None]
TRAINED = "bacon-s"
# Ours: a narrow projector and rare estimates of the class sizes are enough for a short training,
# and half of the way from the untrained weights keeps what new classes need.
SHORT_TRAINING = {"projector_width": 0, "interval": 20, "trained_share": 0.5}
SHORT_RECIPE = {"batch_size": 128, "learning_rate": 0.01}


@dataclass(frozen=True, eq=False)
class Samples:
    """N images or vectors with what is known of them."""

    tokens: TokenSource
    labels: IntArray
    """(N,) known class, -1 = unlabeled."""
    n_known: int
    backbone: Backbone
    groups: Sequence[str] | None = None
    """(N,) images of one group (a photo series) are hidden together."""
    n_views: int = 0
    """Training views over which features are averaged, besides the test view."""


@dataclass(frozen=True)
class Plan:
    """Which method trains the features, and how."""

    name: str
    settings: Any
    recipe: Recipe
    on_trial: bool = False
    """Whether trained features must prove better on hidden classes before they are used."""


def short_plan(
    epochs: int, *, settings: Mapping[str, Any] | None = None, **recipe: float | None
) -> Plan:
    """A short training, or none: then the features are those of the backbone.

    settings: changes to the method's settings.
    recipe: changes to how it is optimized; None leaves a value as it is.
    """
    if epochs == 0:
        own = settings_for(CENTROID_METHOD, changes={})
        return Plan(CENTROID_METHOD, own, recipe_for(CENTROID_METHOD, changes={}))
    given = {key: value for key, value in recipe.items() if value is not None}
    return Plan(
        TRAINED,
        settings_for(TRAINED, changes=SHORT_TRAINING | dict(settings or {})),
        recipe_for(TRAINED, changes=SHORT_RECIPE | {"epochs": epochs} | given),
    )


@dataclass(frozen=True, eq=False)
class Learned:
    """Features, and the classes that were found in them."""

    name: str
    """Of the method."""
    method: Method
    frozen: Tensor
    """(N, D) unit features of the untrained backbone."""
    features: Tensor
    """(N, D) unit features after training; without one, the frozen ones."""
    frozen_neighbors: IntArray
    """(N, K) in the frozen features: trained ones have learned the labels, also the wrong ones."""
    answer: Answer
    trial: Trial | None = None
    """What hidden classes said of the training; None: it was not tried, or they were too few."""


def learn(
    samples: Samples,
    plan: Plan,
    *,
    allowed: Range | None,
    threshold: float | None = None,
    seed: int,
    constraints: Corrected | None = None,
    device: torch.device | None = None,
    note: Note | None = None,
) -> Learned:
    """Count the classes, train the features, and sort every image by them.

    Args:
        allowed, threshold, constraints: see `sort_features`.
        device: of training and features; torch's default unless given.
        note: is told of the classes and of every epoch, for a log.
    """
    embed = partial(embed_views, source=samples.tokens, n_views=samples.n_views, device=device)
    frozen = embed(samples.backbone.new_tail())
    near = nearest(frozen, n_neighbors=RULES.neighbors)
    frozen = frozen.cpu()  # classes are found there, see `sort_features`
    sort = partial(
        sort_features,
        labels=samples.labels,
        groups=samples.groups,
        threshold=threshold,
        seed=seed,
        constraints=constraints,
        suspecting=near,
    )
    answer = sort(frozen, allowed=allowed)
    number, n_classes = answer.number, answer.n_classes
    note = note or _nothing
    note(kind="classes", estimate=n_classes, interval=number.interval, **number.beside)
    run = partial(train, n_classes=n_classes, seed=seed, device=device)
    trial = None
    if plan.on_trial and plan.recipe.epochs:
        trial = try_training(
            frozen,
            samples.labels,
            lambda *visible: embed(
                run(hiding(samples, *visible), plan, note=_nothing).features
            ).cpu(),
            n_classes=n_classes,
            groups=samples.groups,
            seed=seed,
        )
        note(kind="trial", **asdict(trial) if trial else {})
        plan = plan if trial and trial.pays else short_plan(0)
    method = run(samples, plan, note=note)
    shown = near[:, :N_NEIGHBORS]
    if plan.recipe.epochs == 0:
        return Learned(plan.name, method, frozen, frozen, shown, answer, trial)
    features = embed(method.features).cpu()
    # Trained features have learned the labels, also of classes that would be hidden to measure.
    trained = sort(features, allowed=(n_classes, n_classes))
    trained = replace(trained, number=number, expected=answer.expected)
    return Learned(plan.name, method, frozen, features, shown, trained, trial)


def hiding(samples: Samples, labels: IntArray, n_known: int) -> Samples:
    """The same images with other labels."""
    return replace(samples, labels=labels, n_known=n_known)


def train(
    samples: Samples,
    plan: Plan,
    *,
    n_classes: int,
    seed: int,
    device: torch.device | None,
    note: Note,
) -> Method:
    """The method after its epochs; interrupted, it is not kept."""
    recipe, labels = plan.recipe, samples.labels
    if not 0 < int((labels >= 0).sum()) < len(labels):
        recipe = replace(recipe, sampler="proportional")  # there are no two halves to draw from
    trainer = new_trainer(
        plan.name,
        plan.settings,
        recipe,
        samples.tokens,
        labels,
        samples.backbone,
        n_classes=n_classes,
        n_known=samples.n_known,
        seed=seed,
        device=device,
        recorder=_EpochLog(note),
    )
    if not trainer.run():
        raise KeyboardInterrupt
    return trainer.method.eval()


class _EpochLog(Silent):
    """The terms of each epoch, for the report's curves."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        self.note(kind="epoch", epoch=trainer.position.epoch, terms=dict(means))


def _nothing(**facts: Any) -> None:
    """Keep no log."""
