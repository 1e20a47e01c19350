"""`bacon discover`: a person's images in, a folder with every image sorted into a class out."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from bacon_gcd.backbone.weights import find as find_weights
from bacon_gcd.classes.assign import sort_images
from bacon_gcd.classes.calibration import hold_out
from bacon_gcd.classes.centroids import settle
from bacon_gcd.classes.map import project
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.number import Range, count_classes
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.duplicates import find_duplicates
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.inputs import joined, tables_of, vectors_of
from bacon_gcd.discovery.material import (
    AUTO,
    Effort,
    Material,
    better_backbone,
    effort_for,
    expected_seconds,
    from_features,
    from_images,
    open_backbone,
    pick_backbone,
)
from bacon_gcd.discovery.result import DiscoverSettings, Found, fresh_numbers, write_run
from bacon_gcd.methods import build_method, recipe_for, settings_for
from bacon_gcd.methods.base import Method, Task
from bacon_gcd.system.files import append_line, replacing_folder
from bacon_gcd.system.text import command
from bacon_gcd.training.loop import Silent, Trainer, TrainingData, TrainProbe

IntArray = npt.NDArray[np.int64]
Tell = Callable[[str], None]


class Discovery:
    """A finished discover run; shows itself in a notebook."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def run(self) -> DiscoverRun:
        """The folder's contents as objects."""
        return DiscoverRun.load(self.folder)

    @property
    def table(self) -> pa.Table:
        """One row per image, as in predictions.parquet; `.to_pandas()` gives a data frame."""
        return pq.read_table(self.folder / "predictions.parquet")

    def report(self) -> Path:
        """The page to look at."""
        return self.folder / "report.html"

    def export(self, to: str | Path, *, how: str = "copy", dry_run: bool = False) -> dict[str, Any]:
        """Folders per class, as `bacon export` makes them."""
        from bacon_gcd.discovery.export import export, plan_export, summary

        plan = plan_export(self.run, how=how)
        if dry_run:
            return summary(plan, Path(to))
        return export(plan, Path(to), roots=self.run.roots)

    def facts(self) -> dict[str, Any]:
        """The result in numbers."""
        classes = {each.name: int(each.count) for each in self.run.classes}
        return {
            "images": len(self.run.rows),
            "known": sum(each.known for each in self.run.classes),
            "novel": sum(not each.known for each in self.run.classes),
            "classes": classes,
            "outliers": sum(row.outlier for row in self.run.rows),
            "suspected": sum(row.suspected for row in self.run.rows),
            "report": str(self.report()),
        }

    def text(self) -> str:
        """The result in words, and what to do next."""
        facts = self.facts()
        sizes = ", ".join(f"{name} {count}" for name, count in facts["classes"].items())
        return (
            f"{facts['images']} images in {facts['known']} known and {facts['novel']} new "
            f"classes: {sizes}\n"
            f"{facts['outliers']} outliers, {facts['suspected']} suspected label errors\n"
            f"Report: {facts['report']}\n"
            f"Next: open it in a browser; correct it with: "
            f"{command('bacon', 'review', self.folder)}; sort new images with: "
            f"{command('bacon', 'predict', self.folder, 'IMAGES')}"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(c.name)}</td><td>{'known' if c.known else 'novel'}</td>"
            f"<td>{c.labeled}</td><td>{c.count:.0f}</td></tr>"
            for c in self.run.classes
        )
        head = "<tr><th>class</th><th></th><th>labeled</th><th>images</th></tr>"
        where = html.escape(str(self.report()))
        return f"<p>{len(self.run.rows)} images; report: {where}</p><table>{head}{rows}</table>"

    def __repr__(self) -> str:
        return f"Discovery({str(self.folder)!r})"


def discover(
    source: str | Path,
    out: str | Path = "runs/discover",
    *,
    labels: str | Path | None = None,
    features: str | Path | None = None,
    classes: str | int = AUTO,
    threshold: float | None = None,
    backbone: str = AUTO,
    effort: str = "normal",
    seed: int = 0,
    workers: int = 2,
    tell: Tell | None = None,
) -> Discovery:
    """Sort a folder, table or .npz of images into known classes and newly found ones.

    Args:
        out: folder of the run; it must not exist yet.
        labels: a table of labels beside a folder.
        features: ready vectors of the images (.npy or .parquet) in place of a backbone.
        classes: auto, a number, or a range such as 5-20; known and novel together.
        threshold: 0 to 1, of the probability from which an image is known; None: its likeliest
            class decides.
        backbone: a name of `bacon weights list`; auto takes the best one that is here.
        effort: quick (no training), normal or thorough.
        tell: gets a line now and then about what is going on.
    """
    asked = DiscoverSettings(
        source=str(Path(source).absolute()),
        labels=None if labels is None else str(Path(labels).absolute()),
        features=None if features is None else str(Path(features).absolute()),
        classes=str(classes),
        threshold=checked_threshold(threshold),
        backbone=backbone,
        effort=choose("effort", effort, ("quick", "normal", "thorough")),
        seed=seed,
    )
    allowed = parse_classes(asked.classes)
    with replacing_folder(Path(out)) as draft:
        settings, material = gather(asked, workers=workers, tell=tell or silent)
        found = find(settings, material, allowed, draft / "log.jsonl")
        write_run(draft, settings, found)
    return Discovery(out)


def silent(line: str) -> None:
    """Nobody listens."""


def parse_classes(text: str) -> Range | None:
    """`auto` is None, `12` is (12, 12), `5-20` is (5, 20)."""
    if text == AUTO:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high:
        raise UserError(f"--classes {text!r}: give auto, a number, or a range such as 5-20")
    return low, high


def checked_threshold(threshold: float | None) -> float | None:
    """A share, or nothing."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"--threshold {threshold}: give a number from 0 (all known) to 1")
    return None if threshold is None else float(threshold)  # numpy's would not be plain TOML


def gather(
    asked: DiscoverSettings, *, workers: int, tell: Tell
) -> tuple[DiscoverSettings, Material]:
    """Read the images, choose backbone and effort, say how long it takes, make the tokens."""
    tables = tables_of(asked)
    table = joined(tables)
    for line in (table.summary(), *table.remarks):
        tell(line)
    effort = effort_for(asked.effort, len(table))
    settings = dataclasses.replace(asked, views=effort.views, epochs=effort.epochs)
    if asked.features is not None:
        material = from_features(table, vectors_of(asked, tables))
        tell(_time(material.backbone, effort, len(table)))
        return dataclasses.replace(settings, backbone="vectors", views=0), material
    name = pick_backbone(asked.backbone)
    backbone, tuned = open_backbone(name)
    tell(_backbone_line(name, backbone.image_size))
    tell(_time(backbone, effort, len(table)))
    material = from_images(
        table, backbone, tuned, views=effort.views, seed=asked.seed, workers=workers
    )
    size = backbone.image_size
    return dataclasses.replace(settings, backbone=backbone.name, image_size=size), material


def _backbone_line(name: str, image_size: int) -> str:
    better = better_backbone(name)
    hint = f"; a better one comes with: bacon weights get {better}" if better else ""
    return f"backbone {name} at {image_size} px ({find_weights(name).trained_on}){hint}"


def _time(backbone: Any, effort: Effort, n_images: int) -> str:
    seconds = expected_seconds(backbone, effort, n_images)
    shown = f"{seconds / 60:.0f} minutes" if seconds > 100 else f"{max(seconds, 1):.0f} s"
    return f"{effort.views} views, {effort.epochs} epochs: about {shown}, less if seen before"


def find(settings: DiscoverSettings, material: Material, allowed: Range | None, log: Path) -> Found:
    """Count the classes, train if asked, sort every image."""
    labels, seed, n_known = material.labels, settings.seed, len(material.known)
    refuse_impossible(allowed, settings.classes, n_known, int((labels < 0).sum()))
    frozen = material.frozen(seed)
    number = count_classes(frozen, labels, seed=seed, allowed=allowed)
    note = note_in(log)
    note(kind="classes", estimate=number.estimate, interval=number.interval, **number.beside)
    held = held_out(settings, material)
    name = "bacon-s" if settings.epochs else "anchored-kmeans"
    method = train(name, settings, material, np.where(held, -1, labels), number.estimate, log)
    features = frozen
    if settings.epochs:
        features = unit(TrainProbe(material.tokens, labels, seed).run(method.features))
    places = settle(features, labels, held, n_classes=number.estimate, seed=seed)
    method.set_centroids(places.centroids, temperature=places.temperature)
    plain = nearest(frozen)  # trained features have learned the labels, also the wrong ones
    return Found(
        material=material,
        method=method,
        name=name,
        number=number,
        features=features,
        sorted=sort_images(
            features,
            labels,
            places.centroids,
            plain,
            temperature=places.temperature,
            threshold=settings.threshold,
        ),
        neighbors=nearest(features) if settings.epochs else plain,
        xy=map_of(features, seed),
        twins=find_duplicates(material.table, frozen, plain),
        reliability=places.reliability,
        novel=fresh_numbers(material.known, number.estimate - n_known),
    )


def held_out(settings: DiscoverSettings, material: Material) -> npt.NDArray[np.bool_]:
    """(N,) labels to measure with; training must not see them, so it gives up fewer."""
    few = 5 if settings.epochs else 2
    return hold_out(material.labels, material.table.groups, min_labels=few, seed=settings.seed)


def refuse_impossible(allowed: Range | None, given: str, n_known: int, n_unlabeled: int) -> None:
    """A number of classes that labels and images leave no room for is a mistake."""
    if allowed is None:
        return
    if allowed[1] < n_known:
        raise UserError(f"--classes {given}: the labels name {n_known} classes already")
    if allowed[0] > n_known + n_unlabeled:
        raise UserError(
            f"--classes {given}: {n_known} known classes and {n_unlabeled} unlabeled images "
            f"make at most {n_known + n_unlabeled}"
        )


def train(
    name: str,
    settings: DiscoverSettings,
    material: Material,
    labels: IntArray,
    n_classes: int,
    log: Path,
) -> Method:
    """The method after its epochs; anchored k-means has none."""
    n_known = len(material.known)
    changes = {"projector_width": 0, "interval": 20} if settings.epochs else {}
    own = settings_for(name, changes=changes)
    asked: dict[str, Any] = {"epochs": settings.epochs, "batch_size": 128, "learning_rate": 0.01}
    if not 0 < int((labels >= 0).sum()) < len(labels):
        asked["sampler"] = "proportional"  # there are no two halves to draw from
    recipe = recipe_for(name, changes=asked)
    counts = np.bincount(labels[labels >= 0], minlength=n_known)
    task = Task(n_classes, n_known, tuple(counts.tolist()), len(labels), recipe.epochs)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        method = build_method(name, task, material.backbone, own)
    data = TrainingData(material.tokens, labels)
    trainer = Trainer(method, data, recipe, seed=settings.seed, recorder=_EpochLog(log))
    if not trainer.run():
        raise KeyboardInterrupt
    return method.eval()


class _EpochLog(Silent):
    """The terms of each epoch, for the report's curves."""

    def __init__(self, log: Path) -> None:
        self.note = note_in(log)

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        self.note(kind="epoch", epoch=trainer.position.epoch, terms=dict(means))


def note_in(log: Path) -> Callable[..., None]:
    """A function that adds one line of facts to the log."""

    def note(**facts: Any) -> None:
        append_line(log, json.dumps(facts, allow_nan=False))

    return note


def map_of(features: Tensor, seed: int) -> npt.NDArray[np.float32]:
    """(N, 2) places; images that all look the same lie on one point."""
    if float(features.std(dim=0).max()) < 1e-6:
        return np.zeros((len(features), 2), dtype=np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        xy = project(features)
    return np.nan_to_num(xy)
