"""A run: settings that say everything, a folder that holds everything, data made ready once."""

from __future__ import annotations

import dataclasses
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bacon_gcd import __version__
from bacon_gcd.backbone.bank import FreshTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.weights import full_name, load_backbone, own_image_size, trunk_dtype
from bacon_gcd.config import UserError, read_toml, settings_from, to_toml
from bacon_gcd.data.datasets import find_dataset, load_dataset
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.longtail import Split, SplitSettings, make_split
from bacon_gcd.data.views import ViewSettings, strong_settings
from bacon_gcd.methods import METHODS, preset_of, recipe_for, settings_for
from bacon_gcd.methods.base import Recipe
from bacon_gcd.system.files import write_atomic
from bacon_gcd.training.loop import Recorder, Trainer
from bacon_gcd.training.start import new_trainer

IntArray = npt.NDArray[np.int64]
PROTOCOL = "bacon-gcd protocol 1"
FRESH = "fresh"


@dataclass(frozen=True)
class RunSettings:
    """All that decides a run's numbers. Private paths are not part of it."""

    dataset: str = "cifar100-lt"
    method: str = "bacon-s"
    preset: str | None = None
    """None: the method's first; `resolve` puts its name here."""
    backbone: str = "resnet18.pypi_in1k"
    image_size: int | None = None
    """None: the backbone's own; `resolve` puts it here."""
    tuned: str = "block"
    trunk: str = "auto"
    """Precision of the frozen trunk: float32, bfloat16, or auto: bfloat16 where it is native."""
    views: str = "4"
    """Stored training views per image, or "fresh" for new ones at every step."""
    seed: int = 0
    bfloat16: bool = False
    evaluate_every: int = 0
    """Score the test set after this many epochs, for the curve in log.jsonl; 0: never."""
    split: SplitSettings = field(default_factory=SplitSettings)
    recipe: Recipe = field(default_factory=Recipe)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The method's own settings, all of them."""

    def to_toml(self) -> str:
        """As the text of config.toml."""
        return to_toml(dataclasses.asdict(self))

    @classmethod
    def from_toml(cls, path: Path) -> RunSettings:
        """From config.toml; unknown keys are errors that list the choices."""
        values = read_toml(path)
        values["split"] = settings_from(SplitSettings, values.get("split", {}), where=str(path))
        values["recipe"] = settings_from(Recipe, values.get("recipe", {}), where=str(path))
        return settings_from(cls, values, where=str(path))

    def flat(self) -> dict[str, Any]:
        """Every setting under one dotted name, e.g. recipe.epochs."""
        return _flat(dataclasses.asdict(self))

    def differences(self, other: RunSettings) -> list[str]:
        """Lines `name: ours -> theirs`, one for each setting that differs."""
        ours, theirs = self.flat(), other.flat()
        names = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
        return [f"{n}: {ours.get(n)} -> {theirs.get(n)}" for n in names]


def resolve(
    settings: RunSettings, *, changes: Mapping[str, Any], recipe: Mapping[str, Any]
) -> RunSettings:
    """Fill in the dataset's and the method's own values; explicit ones win."""
    dataset = find_dataset(settings.dataset)
    preset = preset_of(settings.method, settings.preset)
    own = settings_for(settings.method, preset=preset, changes=changes)
    if own.needs_fresh_views and settings.views != FRESH:
        raise UserError(f"views {settings.views!r}: {own.needs_fresh_views}")
    if preset == "released" and dataset is not None and dataset.learning_rate is not None:
        recipe = {"learning_rate": dataset.learning_rate} | {
            k: v for k, v in recipe.items() if v is not None
        }
    return dataclasses.replace(
        settings,
        preset=preset,
        backbone=full_name(settings.backbone),
        image_size=settings.image_size or own_image_size(settings.backbone),
        trunk=str(trunk_dtype(settings.trunk)).removeprefix("torch."),
        split=dataclasses.replace(settings.split, dataset=settings.dataset),
        recipe=recipe_for(settings.method, preset=preset, changes=recipe),
        settings=dataclasses.asdict(own),
    )


@dataclass(frozen=True)
class Workbench:
    """Everything a run works on, made from its settings."""

    settings: RunSettings
    table: ImageTable
    split: Split
    backbone: Backbone
    workers: int = 0
    banks: Path | None = None
    device: torch.device | None = None
    """Where methods are trained and scored; torch's default device unless given."""

    @cached_property
    def labels(self) -> IntArray:
        """(N,) visible labels of the training images, -1 = unlabeled."""
        return self.split.visible_labels(self.table)

    @cached_property
    def true_train(self) -> IntArray:
        """(N,) true classes of the training images: for scores only, never for a method."""
        return self.split.true_labels(self.table, self.split.train)

    @cached_property
    def true_test(self) -> IntArray:
        """True classes of the test images."""
        return self.split.true_labels(self.table, self.split.test)

    @cached_property
    def true_counts(self) -> IntArray:
        """(C,) true class sizes in training."""
        return np.bincount(self.true_train, minlength=self.split.n_classes)

    @cached_property
    def class_names(self) -> list[str]:
        """Names in the method's class order: known first."""
        return [self.table.class_names[c] for c in self.split.class_order]

    @cached_property
    def train_source(self) -> TokenSource:
        """Tokens of the training images: stored views, or new ones at every step."""
        views, size = self.settings.views, self.backbone.image_size
        rows, weak = self.split.train, ViewSettings(kind="weak", image_size=size)
        strong = "strong" in METHODS[self.settings.method].method.views
        if views == FRESH:
            return FreshTokens(
                self.table,
                rows,
                self.backbone,
                weak,
                strong=strong_settings(size) if strong else None,
                stored=self._bank(rows, n_views=0),  # test views never change
                seed=self.settings.seed,
                workers=self.workers,
            )
        count = _view_count(self.settings) if self.settings.recipe.epochs else 0
        return self._bank(rows, n_views=count, strong_views=count if strong else 0)

    @cached_property
    def test_source(self) -> TokenSource:
        """Tokens of the test images, test view only."""
        return self._bank(self.split.test, n_views=0)

    def _bank(self, rows: IntArray, *, n_views: int, strong_views: int = 0) -> TokenSource:
        return build_bank(
            self.table,
            rows,
            self.backbone,
            n_views=n_views,
            strong_views=strong_views,
            seed=self.settings.seed,
            workers=self.workers,
            folder=self.banks,
        )

    def new_trainer(self, recorder: Recorder | None = None) -> Trainer:
        """The method with fresh parameters drawn from the run's seed, ready to train."""
        s = self.settings
        own = settings_for(s.method, preset=s.preset, changes=s.settings)
        return new_trainer(
            s.method,
            own,
            s.recipe,
            self.train_source,
            self.labels,
            self.backbone,
            n_classes=self.split.n_classes,
            n_known=self.split.n_known,
            seed=s.seed,
            oracle_counts=torch.from_numpy(self.true_counts).float(),
            bfloat16=s.bfloat16,
            device=self.device,
            recorder=recorder,
        )

    def identity(self) -> dict[str, str]:
        """Hashes of what the numbers depend on; a resumed run must find the same."""
        return {
            "protocol": PROTOCOL,
            "table": self.table.fingerprint,
            "split": self.split.hash,
            "backbone": self.backbone.hash,
        }


def prepare(settings: RunSettings, *, data: Path | None, workers: int = 0) -> Workbench:
    """Find the data, draw the split, load the backbone."""
    table = load_dataset(settings.dataset, data)
    split = make_split(table, settings.split)
    backbone = load_backbone(
        settings.backbone,
        image_size=settings.image_size,
        tuned=settings.tuned,
        trunk_dtype=trunk_dtype(settings.trunk),
    )
    return Workbench(settings, table, split, backbone, workers=workers)


def versions() -> dict[str, str]:
    """Versions that a number may depend on."""
    import PIL

    return {
        "bacon_gcd": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
    }


def write_config(folder: Path, settings: RunSettings) -> None:
    """The resolved settings, readable and complete."""
    write_atomic(folder / "config.toml", settings.to_toml().encode())


def _view_count(settings: RunSettings) -> int:
    """How many stored views; two equal ones would teach nothing."""
    views, kinds = settings.views, METHODS[settings.method].method.views
    least = max(Counter(kinds).values())
    if not views.isdigit() or int(views) < least:
        raise UserError(
            f"views {views!r} is neither {FRESH!r} nor a number of at least {least}, "
            f"which {settings.method} compares of an image"
        )
    return int(views)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
