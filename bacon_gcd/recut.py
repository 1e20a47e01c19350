"""Another number of classes for a finished run: its features are sorted again, untrained."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bacon_gcd.backbone.bank import ReadyTokens
from bacon_gcd.class_number import ClassNumber, MergeTree
from bacon_gcd.cluster import contingency, pair_up
from bacon_gcd.config import UserError, settings_from
from bacon_gcd.discover_run import DiscoverRun
from bacon_gcd.discovery import (
    Discovery,
    held_out,
    parse_classes,
    refuse_impossible,
    settle,
    whole_or_nothing,
)
from bacon_gcd.duplicates import Twins
from bacon_gcd.files import read_json
from bacon_gcd.findings import NOVEL, DiscoverSettings, Found, write_run
from bacon_gcd.material import Material, known_classes, read_table
from bacon_gcd.methods import build_method, settings_for
from bacon_gcd.methods.base import Method, Task
from bacon_gcd.model import Model, load_model
from bacon_gcd.sorting import sort_images

IntArray = npt.NDArray[np.int64]
UNTRAINED = "anchored-kmeans"


def recut(run: str | Path, out: str | Path, *, classes: str | int) -> Discovery:
    """Sort the images of a run into another number of classes; novel ones keep their names.

    A novel class goes on in the new class that holds most of it; classes without a predecessor get
    numbers that were never used.
    """
    before = DiscoverRun.load(run)
    wanted = parse_classes(str(classes))
    if wanted is None or wanted[0] != wanted[1]:
        raise UserError(f"--classes {classes}: to cut {run} again, give one number")
    settings = settings_from(DiscoverSettings, before.config, where=str(before.folder))
    settings = dataclasses.replace(settings, classes=str(classes), recut=str(before.folder))
    with whole_or_nothing(Path(out)) as draft:
        shutil.copyfile(before.folder / "log.jsonl", draft / "log.jsonl")
        write_run(draft, settings, sort_again(before, settings, wanted[0]))
    return Discovery(out)


def sort_again(before: DiscoverRun, settings: DiscoverSettings, n_classes: int) -> Found:
    """The stored features, neighbors and places on the map under new centroids."""
    model = load_model(before.folder / "model")
    material = material_of(before, settings, model)
    labels, n_known = material.labels, len(material.known)
    n_unlabeled = int((labels < 0).sum())
    refuse_impossible((n_classes, n_classes), settings.classes, n_known, n_unlabeled)
    features = torch.from_numpy(np.array(before.features))
    places = settle(
        features, labels, held_out(settings, material), n_classes=n_classes, seed=settings.seed
    )
    row_of = {row.file_name: number for number, row in enumerate(before.rows)}
    neighbors = np.array([[row_of[name] for name in row.neighbors] for row in before.rows])
    found = sort_images(
        features, labels, places.centroids, neighbors, temperature=places.temperature
    )
    method = untrained(model, material, n_classes)
    method.centroids = places.sharpened()
    numbers = kept_numbers(before, found.class_ids - n_known, n_classes - n_known)
    stored = read_json(before.folder / "tree.json")
    merges = np.array(stored["merges"], dtype=np.float64).reshape(-1, 4)
    tree = MergeTree(np.array(stored["members"], dtype=np.int64), merges)
    twins = read_json(before.folder / "duplicates.json")
    return Found(
        material=material,
        method=method,
        name=UNTRAINED,
        number=ClassNumber(n_classes, (n_classes, n_classes), {}, tree),
        features=features,
        sorted=found,
        neighbors=neighbors,
        xy=np.array([[row.x, row.y] for row in before.rows], dtype=np.float32),
        twins=[Twins(t["kind"], tuple(row_of[name] for name in t["files"])) for t in twins],
        reliability=places.reliability,
        novel=numbers,
        next_novel=before.next_novel,
    )


def material_of(before: DiscoverRun, settings: DiscoverSettings, model: Model) -> Material:
    """The images of the run, which must still be what they were."""
    table = read_table(Path(settings.source), Path(settings.labels) if settings.labels else None)
    labels, known = known_classes(table)
    given = tuple(known[label] if label >= 0 else "" for label in labels)
    if [(row.file_name, row.label) for row in before.rows] != list(
        zip(table.ids, given, strict=True)
    ):
        raise UserError(
            f"{settings.source}: images or labels are not those of {before.folder} any more; "
            "sort them anew with: bacon discover"
        )
    tuned = str(model.facts["backbone"]["tuned"])
    tokens = ReadyTokens(np.array(before.features))
    return Material(table, labels, known, model.backbone, tuned, tokens)


def untrained(model: Model, material: Material, n_classes: int) -> Method:
    """The model's features with room for another number of centroids."""
    labels, n_known = material.labels, len(material.known)
    counts = np.bincount(labels[labels >= 0], minlength=n_known)
    task = Task(n_classes, n_known, tuple(counts.tolist()), len(labels), 0)
    method = build_method(UNTRAINED, task, model.backbone, settings_for(UNTRAINED, changes={}))
    tail = model.method.get_submodule("tail" if hasattr(model.method, "tail") else "contrast_tail")
    own: nn.Module = method.get_submodule("tail")
    own.load_state_dict(tail.state_dict())
    return method.eval()


def kept_numbers(before: DiscoverRun, novel: IntArray, n_novel: int) -> tuple[int, ...]:
    """The number of each new novel class: that of the old one most of it comes from, or unused.

    novel: (N,) new novel class of each row, below 0 for images of known classes.
    """
    old = [c.name for c in before.classes if not c.known]
    place = {name: number for number, name in enumerate(old)}
    was = np.array([place.get(row.class_name, -1) for row in before.rows])
    both = (was >= 0) & (novel >= 0)
    shared = contingency(was[both], novel[both], n_clusters=len(old), n_classes=n_novel)
    heir = pair_up(shared) if shared.size else np.empty(0, dtype=np.int64)
    numbers = {
        int(new): int(found[1])
        for name, new, row in zip(old, heir, shared, strict=False)
        if new >= 0 and row[new] > 0 and (found := NOVEL.fullmatch(name))
    }
    unused = iter(range(before.next_novel, before.next_novel + n_novel))
    return tuple(numbers[c] if c in numbers else next(unused) for c in range(n_novel))
