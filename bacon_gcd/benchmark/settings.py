"""The settings of a run: everything that decides its numbers, as stored in config.toml."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bacon_gcd.backbone.catalogue import full_name, own_image_size
from bacon_gcd.backbone.weights import trunk_dtype
from bacon_gcd.config import MAX_VIEWS, UserError, read_toml, settings_from, to_toml
from bacon_gcd.data.datasets import find_dataset
from bacon_gcd.data.longtail import SplitSettings
from bacon_gcd.methods import METHODS, on_dataset, preset_of, recipe_for, settings_for
from bacon_gcd.methods.base import Recipe
from bacon_gcd.system.devices import Device
from bacon_gcd.system.files import write_atomic

FRESH = "fresh"
OF_DATASET = ("released", "recommended")  # presets that take the learning rate of the dataset


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

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], changes: Mapping[str, Any], *, device: Device = None
    ) -> RunSettings:
        """Resolved settings from options of `bacon train`, each under the name of its field.

        Args:
            options: of the run, the split and the recipe together; others are left out.
            changes: of the method's own settings.
            device: where the run is to be trained: decides what `trunk` auto means.
        """
        run, split, recipe = (_own(kind, options) for kind in (cls, SplitSettings, Recipe))
        asked = cls(**run, split=SplitSettings(**split))
        _refuse_no_training(asked, recipe.get("epochs"))
        return resolve(asked, changes=changes, recipe=recipe, device=device)

    def to_toml(self) -> str:
        """As the text of config.toml."""
        return to_toml(dataclasses.asdict(self))

    @classmethod
    def from_toml(cls, path: Path) -> RunSettings:
        """From config.toml; unknown keys are errors that list the choices."""
        values = read_toml(path)
        if "source" in values:
            raise UserError(f"{path.parent}: a run of bacon discover, not of bacon train")
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

    def refuse_others(
        self, folder: Path, options: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> None:
        """Refuse options, as in `from_options`, that say otherwise than these stored settings."""
        names = {name: dotted_name(name) for name in options}
        given = {dotted: options[name] for name, dotted in names.items() if dotted}
        own = settings_for(self.method, preset=self.preset, changes=changes)
        given |= {f"settings.{name}": getattr(own, name) for name in changes}
        stored, asked = self.flat(), _flat(given)
        changed = [f"{k}: {stored.get(k)} -> {v}" for k, v in asked.items() if stored.get(k) != v]
        if changed:
            raise UserError(f"{folder}: cannot resume, settings changed: {'; '.join(changed)}")

    @property
    def n_views(self) -> int:
        """Stored views of each kind; two equal ones would teach nothing."""
        least = max(Counter(METHODS[self.method].method.views).values())
        if not self.views.isdecimal() or not least <= int(self.views) <= MAX_VIEWS:
            raise UserError(
                f"views {self.views!r} is neither {FRESH!r} nor a number from {least}, which "
                f"{self.method} compares of an image, to {MAX_VIEWS}"
            )
        return int(self.views)


def resolve(
    settings: RunSettings,
    *,
    changes: Mapping[str, Any],
    recipe: Mapping[str, Any],
    device: Device = None,
) -> RunSettings:
    """Fill in the dataset's and the method's own values; explicit ones win."""
    dataset = find_dataset(settings.dataset)
    preset = preset_of(settings.method, settings.preset)
    there = on_dataset(settings.method, preset, settings.dataset)
    own = settings_for(settings.method, preset=preset, changes={**there.settings, **changes})
    recipe = {**there.recipe, **{k: v for k, v in recipe.items() if v is not None}}
    if own.needs_fresh_views and settings.views != FRESH:
        raise UserError(f"views {settings.views!r}: {own.needs_fresh_views}")
    if preset in OF_DATASET and dataset is not None and dataset.learning_rate is not None:
        recipe = {"learning_rate": dataset.learning_rate} | recipe
    resolved = dataclasses.replace(
        settings,
        preset=preset,
        backbone=full_name(settings.backbone),
        image_size=settings.image_size or own_image_size(settings.backbone),
        trunk=str(trunk_dtype(settings.trunk, device=device)).removeprefix("torch."),
        split=dataclasses.replace(settings.split, dataset=settings.dataset),
        recipe=recipe_for(settings.method, preset=preset, changes=recipe),
        settings=dataclasses.asdict(own),
    )
    if resolved.views != FRESH and resolved.recipe.epochs:
        assert resolved.n_views  # a wrong number is refused before a folder is made
    return resolved


def _refuse_no_training(asked: RunSettings, epochs: int | None) -> None:
    """Refuse 0 epochs of a method that learns: its scores would be of a random start."""
    if epochs == 0 and recipe_for(asked.method, preset=asked.preset, changes={}).epochs:
        untrained = [name for name in METHODS if not recipe_for(name, changes={}).epochs]
        raise UserError(
            f"--epochs 0: {asked.method} is trained, give at least 1; "
            f"methods without training: {', '.join(untrained)}"
        )


def start_folder(folder: Path, settings: RunSettings, *, resume: bool) -> None:
    """A new run folder with its config.toml, or the same one again with the same settings."""
    config = folder / "config.toml"
    if not resume:
        if config.exists():
            raise UserError(f"{folder}: already holds a run; add --resume or name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(config, settings.to_toml().encode())
        return
    if not config.exists():
        raise UserError(f"{folder}: no config.toml, so there is no run to resume")
    changed = RunSettings.from_toml(config).differences(settings)
    if changed:
        raise UserError(f"{folder}: cannot resume, settings changed: {'; '.join(changed)}")


def dotted_name(option: str) -> str | None:
    """The name under which config.toml keeps an option; None for one that decides no number."""
    kinds = {"": RunSettings, "split.": SplitSettings, "recipe.": Recipe}
    found = [prefix + option for prefix, kind in kinds.items() if _own(kind, {option: None})]
    return found[0] if found else None


def _own(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that are fields of a settings class."""
    return {f.name: options[f.name] for f in dataclasses.fields(kind) if f.name in options}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
