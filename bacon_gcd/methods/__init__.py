"""Every method under its name. To add one: a file beside this one, and an entry here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from torch import Tensor

from bacon_gcd.config import UserError, choose, settings_from
from bacon_gcd.methods import abc, darp, fixmatch, gcd, kmeans, opencon, orca, simgcd, trssl
from bacon_gcd.methods.bacon import PAPER, RECOMMENDED, RELEASED, BaCon, orca_style
from bacon_gcd.methods.base import Method, MethodSettings, Recipe, TailSource, Task

COMMON = Recipe()
"""One recipe for all methods, so that they compare."""


@dataclass(frozen=True)
class OnDataset:
    """What a method's paper takes otherwise on one dataset."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A named, frozen way to run a method: its settings, and how it is optimized."""

    settings: MethodSettings
    recipe: Recipe = COMMON
    on: Mapping[str, OnDataset] = field(default_factory=dict)
    """Dataset -> what is taken otherwise there."""


@dataclass(frozen=True)
class Entry:
    """A method, its presets, and where it comes from."""

    method: type[Method]
    presets: Mapping[str, Preset]
    """The first is the default. Baselines: adapted (one recipe for all) and native (their own
    papers')."""
    summary: str
    paper: str


METHODS: dict[str, Entry] = {
    "bacon-s": Entry(
        BaCon,
        {
            "released": Preset(RELEASED),
            "paper": Preset(PAPER),
            "recommended": Preset(RECOMMENDED),
        },
        "two branches that advise each other; the classifier branch is SimGCD-style",
        "Bai et al., NeurIPS 2023, arXiv 2310.01376",
    ),
    "bacon-o": Entry(
        BaCon,
        {
            "released": Preset(orca_style(RELEASED)),
            "paper": Preset(orca_style(PAPER)),
            "recommended": Preset(orca_style(RECOMMENDED)),
        },
        "two branches that advise each other; the classifier branch is ORCA-style (reconstructed)",
        "Bai et al., NeurIPS 2023, arXiv 2310.01376",
    ),
    "gcd": Entry(
        gcd.GCD,
        {"adapted": Preset(gcd.ADAPTED), "native": Preset(gcd.ADAPTED, gcd.NATIVE)},
        "contrasts of images and of labels train the features, k-means finds the classes",
        "Vaze et al., CVPR 2022, arXiv 2201.02609",
    ),
    "simgcd": Entry(
        simgcd.SimGCD,
        {
            "adapted": Preset(simgcd.ADAPTED),
            "native": Preset(
                simgcd.ADAPTED,
                simgcd.NATIVE,
                on={"cifar100-lt": OnDataset(settings=simgcd.NATIVE_CIFAR100)},
            ),
        },
        "GCD's contrasts and a cosine classifier that teaches itself under a uniform prior",
        "Wen et al., ICCV 2023, arXiv 2211.11727",
    ),
    "orca": Entry(
        orca.ORCA,
        {
            "adapted": Preset(orca.ADAPTED),
            "native": Preset(
                orca.ADAPTED,
                orca.NATIVE,
                on={"imagenet100-lt": OnDataset(recipe=orca.NATIVE_IMAGENET)},
            ),
        },
        "nearest images agree; known classes are slowed by a margin while predictions are unsure",
        "Cao et al., ICLR 2022, arXiv 2102.03526",
    ),
    "opencon": Entry(
        opencon.OpenCon,
        {
            "adapted": Preset(opencon.ADAPTED),
            "native": Preset(
                opencon.ADAPTED,
                opencon.NATIVE,
                on={"imagenet100-lt": OnDataset(*opencon.NATIVE_IMAGENET)},
            ),
        },
        "three contrasts under pseudo-labels from moving prototypes",
        "Sun and Li, TMLR 2022, arXiv 2208.02764",
    ),
    "trssl": Entry(
        trssl.TRSSL,
        {
            "adapted": Preset(trssl.ADAPTED),
            "native": Preset(trssl.NATIVE_SETTINGS, trssl.NATIVE),
        },
        "Sinkhorn pseudo-labels under a class prior, mixed, with a temperature per image",
        "Rizve et al., ECCV 2022, arXiv 2207.02269",
    ),
    "abc": Entry(
        abc.ABC,
        {"adapted": Preset(abc.ADAPTED), "native": Preset(abc.NATIVE_SETTINGS, fixmatch.NATIVE)},
        "FixMatch with a second, balanced head; imbalanced semi-supervised learning",
        "Lee et al., NeurIPS 2021, arXiv 2110.10368",
    ),
    "darp": Entry(
        darp.DARP,
        {"adapted": Preset(darp.ADAPTED), "native": Preset(darp.NATIVE_SETTINGS, fixmatch.NATIVE)},
        "FixMatch whose pseudo-labels are aligned to class sizes; imbalanced semi-supervised",
        "Kim et al., NeurIPS 2020, arXiv 2007.08844",
    ),
    "kmeans": Entry(
        kmeans.KMeans,
        {"untrained": Preset(kmeans.PLAIN, kmeans.NO_TRAINING)},
        "k-means on the frozen backbone's features; labels only name the clusters",
        "Lloyd 1982; started by k-means++, Arthur and Vassilvitskii 2007",
    ),
    "anchored-kmeans": Entry(
        kmeans.KMeans,
        {"untrained": Preset(kmeans.ANCHORED, kmeans.NO_TRAINING)},
        "semi-supervised k-means on the frozen backbone's features; labels fix known classes",
        "Vaze et al., CVPR 2022, arXiv 2201.02609: the clustering alone",
    ),
}


def preset_of(name: str, preset: str | None = None) -> str:
    """The preset's own name, or that of the method's first one."""
    presets = METHODS[choose("method", name, METHODS)].presets
    return next(iter(presets)) if preset is None else choose(f"preset of {name}", preset, presets)


def on_dataset(name: str, preset: str | None, dataset: str) -> OnDataset:
    """What a preset takes otherwise on a dataset; nothing on most."""
    return METHODS[name].presets[preset_of(name, preset)].on.get(dataset, OnDataset())


def recipe_for(name: str, *, preset: str | None = None, changes: Mapping[str, Any]) -> Recipe:
    """A preset's recipe with some values changed; None leaves a value as it is."""
    preset = preset_of(name, preset)
    base = METHODS[name].presets[preset].recipe
    asked = {key: value for key, value in changes.items() if value is not None}
    if base.epochs == 0:  # there is nothing to train, however long one asks
        asked["epochs"] = 0
    return settings_from(Recipe, dataclasses.asdict(base) | asked, where="recipe")


def settings_for(name: str, *, preset: str | None = None, changes: Mapping[str, Any]) -> Any:
    """A method's settings: a preset with some values changed; unknown names list the choices."""
    preset = preset_of(name, preset)
    base = METHODS[name].presets[preset].settings
    hints = get_type_hints(type(base))
    kinds = {field.name: hints[field.name] for field in dataclasses.fields(base)}
    plain = {
        key: _parse(value, kinds[key], key) if key in kinds else value
        for key, value in changes.items()
    }
    return settings_from(type(base), dataclasses.asdict(base) | plain, where=f"--set for {name}")


def _parse(value: Any, kind: Any, name: str) -> Any:
    """A value from the command line, as the setting's own kind."""
    if not isinstance(value, str) or kind is str:
        return value
    if kind is bool:
        return choose(name, value.lower(), ("true", "false")) == "true"
    try:
        parsed = kind(value)
    except ValueError:
        raise UserError(f"{name}: {value!r} is not a {kind.__name__}") from None
    if isinstance(parsed, float) and not math.isfinite(parsed):
        raise UserError(f"{name}: {value!r} is not a finite number")
    return parsed


def describe_settings(settings: Any) -> dict[str, tuple[Any, str]]:
    """Setting -> (value, what it means), for help texts and model cards."""
    hints = get_type_hints(type(settings), include_extras=True)
    return {
        field.name: (
            getattr(settings, field.name),
            getattr(hints[field.name], "__metadata__", ("",))[0],
        )
        for field in dataclasses.fields(settings)
    }


def describe_entry(entry: Entry) -> dict[str, Any]:
    """What a method is, where it comes from, and how each preset is optimized."""
    recipes = {name: describe_recipe(preset.recipe) for name, preset in entry.presets.items()}
    return {"summary": entry.summary, "paper": entry.paper, "recipes": recipes}


def describe_recipe(recipe: Recipe) -> str:
    """The recipe in a line."""
    if recipe.epochs == 0:
        return "no training"
    steps = f" x 0.1 at {', '.join(f'{m:.0%}' for m in recipe.milestones)}"
    return (
        f"{recipe.optimizer} {recipe.learning_rate:g} {recipe.schedule}"
        f"{steps if recipe.milestones else ''}, weight decay {recipe.weight_decay:g}, "
        f"{recipe.epochs} epochs, batch {recipe.batch_size} {recipe.sampler}"
    )


def build_method(
    name: str,
    task: Task,
    backbone: TailSource,
    settings: MethodSettings,
    *,
    oracle_counts: Tensor | None = None,
) -> Method:
    """The method called `name`, ready to train; only a prior that asks for it gets the oracle.

    A stored model needs no oracle: it is built by `METHODS[name].method` itself.
    """
    method = METHODS[name].method(task, backbone, settings)
    if settings.needs_oracle:
        if oracle_counts is None:
            others = ", ".join(prior for prior in settings.priors if prior != "oracle")
            raise UserError(
                f"{name}: prior 'oracle' needs the true class counts, which are not known here; "
                f"choose from {others}"
            )
        method.oracle_counts = oracle_counts
    return method
