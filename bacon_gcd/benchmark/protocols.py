"""How the cells of a table are run: frozen, each under a version that its results carry.

A change that changes scores gets a new version; results of two versions are never in one table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bacon_gcd.benchmark.experiments import Column, Row
from bacon_gcd.benchmark.settings import FRESH, RunSettings, resolve
from bacon_gcd.config import choose
from bacon_gcd.data.longtail import SplitSettings
from bacon_gcd.methods import METHODS, preset_of

SPLIT_SEED = 0  # one split for all seeds, as in the paper: a seed decides the training alone
PLANTED = "planted"


@dataclass(frozen=True)
class Protocol:
    """What is the same in all cells of a table."""

    name: str
    version: int
    summary: str
    tuned: str
    views: str
    epochs: int
    evaluate_every: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of a method's settings, where it has a setting of that name."""
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """As results carry it."""
        return f"{self.name} {self.version}"

    def settings(
        self,
        row: Row,
        column: Column,
        *,
        backbone: str,
        seed: int,
        epochs: int | None = None,
        image_size: int | None = None,
    ) -> RunSettings:
        """All that decides the numbers of one cell and seed."""
        preset = preset_of(row.method, row.preset)
        own = METHODS[row.method].presets[preset].settings
        names = {each.name for each in dataclasses.fields(own)}
        common = {name: value for name, value in self.changes.items() if name in names}
        split = SplitSettings(**{"seed": SPLIT_SEED, **column.split})
        asked = RunSettings(
            dataset=column.dataset,
            method=row.method,
            preset=preset,
            backbone=backbone,
            tuned=self.tuned,
            trunk="float32",
            views=self.views,
            seed=seed,
            image_size=image_size,
            evaluate_every=self.evaluate_every,
            split=split,
        )
        recipe = dict(self.recipe) | {"epochs": self.epochs if epochs is None else epochs}
        return resolve(asked, changes=common | dict(row.changes), recipe=recipe)


_ALL = (
    Protocol(
        name="paper",
        version=1,
        summary="the paper's own: last block tuned, new views at every step, 200 epochs",
        tuned="block",
        views=FRESH,
        epochs=200,
        evaluate_every=20,
    ),
    Protocol(
        name="tail",
        version=1,
        summary="stored tokens, last convolution of a ResNet tuned, 4 stored views, 30 epochs",
        tuned="conv",
        views="4",
        epochs=30,
        evaluate_every=10,
        changes={"projector_width": 0},
    ),
    Protocol(
        name="vectors",
        version=1,
        summary="pooled features of their own length, small tail tuned, 4 stored views, 30 epochs",
        tuned="vectors",
        views="4",
        epochs=30,
        evaluate_every=10,
        changes={"projector_width": 0},
    ),
    Protocol(
        name="quick",
        version=1,
        summary="a toy: planted vectors instead of images, 4 epochs; shows that everything runs",
        tuned="vectors",
        views="2",
        epochs=4,
        evaluate_every=2,
        changes={"projector_width": 0},
        recipe={"batch_size": 64},
    ),
)
PROTOCOLS = {protocol.name: protocol for protocol in _ALL}


def find_protocol(name: str) -> Protocol:
    """The protocol of this name; an unknown name lists the choices."""
    return PROTOCOLS[choose("protocol", name, PROTOCOLS)]
