"""`bacon discover`: a person's images in, a folder with every image sorted into a class out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.packing import HALF_TOKENS, STORED
from bacon_gcd.classes.map import project
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable
from bacon_gcd.discovery.corrected import Corrected
from bacon_gcd.discovery.duplicates import find_duplicates, with_contradicted
from bacon_gcd.discovery.edges import network_part
from bacon_gcd.discovery.folder import FoundClass, unused_names
from bacon_gcd.discovery.inputs import Inputs, known_classes, read_inputs
from bacon_gcd.discovery.layout import refuse_one_folder
from bacon_gcd.discovery.learn import Learned, learn, short_plan
from bacon_gcd.discovery.names import propose
from bacon_gcd.discovery.result import Discovery, Found, with_sorter
from bacon_gcd.discovery.settings import (
    AUTO,
    DEFAULT_EFFORT,
    EFFORTS,
    DiscoverSettings,
    Range,
    Tell,
    checked_threshold,
    parse_classes,
    silent,
)
from bacon_gcd.discovery.sorting import Answer
from bacon_gcd.discovery.write import write_run
from bacon_gcd.methods.base import Method, Task
from bacon_gcd.model import CENTROID_METHOD, by_centroids
from bacon_gcd.system.devices import Device, find_device
from bacon_gcd.system.files import append_line, replacing_folder
from bacon_gcd.system.processes import agreed, alone, is_first, wait_for_all
from bacon_gcd.system.progress import followed_by, working

IntArray = npt.NDArray[np.int64]


def discover(
    source: str | Path,
    out: str | Path = "runs/discover",
    *,
    labels: str | Path | None = None,
    features: str | Path | None = None,
    classes: str | int = AUTO,
    threshold: float | None = None,
    backbone: str = AUTO,
    effort: str = DEFAULT_EFFORT,
    seed: int = 0,
    names: str | Path | None = None,
    workers: int = 2,
    stored: str = HALF_TOKENS,
    device: Device = None,
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
        effort: quick, normal (photographs are seen larger) or thorough (training, if it pays).
        names: a file of names, one per line, that may be proposed for new classes; for a backbone
            that reads text too.
        stored: how tokens are kept on disk: half, or int8 in half the bytes.
        device: auto, cpu, cuda, cuda:N or mps; None is torch's default.
        tell: gets a line now and then about what is going on.
    """
    asked = DiscoverSettings(
        source=str(Path(source).absolute()),
        labels=None if labels is None else str(Path(labels).absolute()),
        features=None if features is None else str(Path(features).absolute()),
        classes=str(classes),
        threshold=checked_threshold(threshold),
        backbone=backbone,
        effort=choose("effort", effort, EFFORTS),
        seed=seed,
        names=None if names is None else str(Path(names).absolute()),
        stored=choose("stored tokens", stored, STORED),
    )
    allowed, where = parse_classes(asked.classes), find_device(device)

    def check(table: ImageTable) -> None:
        if labels is None:
            refuse_one_folder(table, Path(source), Path(out), features)
        refuse_impossible(allowed, asked.classes, *known_classes(table))

    with one_draft(Path(out)) as draft:
        settings, inputs = read_inputs(
            asked, workers=workers, device=where, tell=tell or silent, check=check
        )
        learned = learn_from(settings, inputs, allowed, draft / "log.jsonl", device=where)
        if is_first():
            with alone(), torch.device("cpu"):  # map, names and report are made there
                write_run(draft, settings, found_in(learned, settings, inputs))
    wait_for_all()
    return Discovery(out)


@contextmanager
def one_draft(out: Path) -> Iterator[Path]:
    """The folder that becomes the run; of several processes, the first one's."""
    with ExitStack() as held:
        with agreed():
            if is_first():
                draft = held.enter_context(replacing_folder(out))
            else:
                draft = Path(held.enter_context(TemporaryDirectory()))
        yield draft


def refuse_impossible(
    allowed: Range | None, given: str, labels: IntArray, known: tuple[str, ...]
) -> None:
    """Refuse a number of classes that the labels and images cannot make."""
    if allowed is None:
        return
    n_known, n_unlabeled = len(known), int((labels < 0).sum())
    if allowed[1] < n_known:
        raise UserError(f"--classes {given}: the labels name {n_known} classes already")
    if allowed[0] > n_known + n_unlabeled:
        raise UserError(
            f"--classes {given}: {n_known} known classes and {n_unlabeled} unlabeled images "
            f"make at most {n_known + n_unlabeled}"
        )


def find(
    settings: DiscoverSettings,
    inputs: Inputs,
    allowed: Range | None,
    log: Path,
    corrections: Corrected | None = None,
    *,
    device: torch.device | None = None,
) -> Found:
    """Count the classes, train if asked, sort every image; under corrections where there are any.

    With corrections, the labels of `inputs` are the classes of all images that are certain.
    """
    learned = learn_from(settings, inputs, allowed, log, corrections, device=device)
    with torch.device("cpu"):  # map and names are made there
        return found_in(learned, settings, inputs)


def learn_from(
    settings: DiscoverSettings,
    inputs: Inputs,
    allowed: Range | None,
    log: Path,
    corrections: Corrected | None = None,
    *,
    device: torch.device | None = None,
) -> Learned:
    """Features and the classes in them, as the settings say."""
    with followed_by(inputs.sorting_seconds):
        return learn(
            inputs.samples,
            replace(short_plan(settings.epochs), on_trial=True),
            allowed=allowed,
            threshold=settings.threshold,
            seed=settings.seed,
            constraints=corrections,
            device=device,
            note=note_in(log),
        )


def found_in(learned: Learned, settings: DiscoverSettings, inputs: Inputs) -> Found:
    """All that is kept of what was learned: classes, images, map, duplicates."""
    answer, features = learned.answer, learned.features
    left, near = answer.corrections, learned.frozen_neighbors
    shown = inputs if left is None else shown_inputs(inputs, left)
    classes = first_classes(inputs.known, answer.n_classes) if left is None else left.classes
    duplicates = find_duplicates(inputs.table, learned.frozen, near)
    confirmed = None if left is None else left.confirmed
    found = Found(
        inputs=shown,
        method=kept_method(learned.method, shown, answer),
        name=learned.name if left is None else CENTROID_METHOD,
        classes=classes,
        next_id=len(classes) if left is None else left.next_id,
        number=answer.number,
        features=features,
        images=with_contradicted(answer.images, shown.labels, duplicates, confirmed=confirmed),
        neighbors=nearest(features) if settings.epochs else near,
        xy=map_of(features, settings.seed),
        duplicates=duplicates,
        expected=answer.expected,
        certain=None if left is None else left.certain,
        trial=learned.trial,
        names=propose(
            network_part(learned.frozen, inputs.backbone),
            answer.images.class_ids,
            classes,
            backbone=settings.backbone,
            words=settings.names,
        ),
    )
    return with_sorter(found, seed=settings.seed)


def first_classes(known: tuple[str, ...], n_classes: int) -> tuple[FoundClass, ...]:
    """The classes of a new run: known ones by name, and new ones behind them."""
    classes = tuple(FoundClass(number, name, known=True) for number, name in enumerate(known))
    names = unused_names(classes, len(known), n_classes - len(known))
    new = (FoundClass(number, name, known=False) for number, name in enumerate(names, len(known)))
    return (*classes, *new)


def shown_inputs(inputs: Inputs, left: Corrected) -> Inputs:
    """The images as a corrected result shows them: confirmed images make no class known."""
    return replace(
        inputs,
        labels=np.where(left.labeled, left.class_ids, -1),
        known=tuple(each.name for each in left.classes if each.known),
    )


def kept_method(method: Method, inputs: Inputs, answer: Answer) -> Method:
    """The method with the answer's centroids; its features alone where corrections decided."""
    if answer.corrections is not None:
        method = centroid_method(method, inputs, len(answer.centroids))
    method = method.cpu()  # it is written, and opened again on any device
    method.set_centroids(answer.centroids, temperature=answer.temperature)
    return method


def centroid_method(method: Method, inputs: Inputs, n_classes: int) -> Method:
    """The features of a method for another number of classes, which centroids tell apart."""
    n_known = len(inputs.known)
    labels = np.where(inputs.labels < n_known, inputs.labels, -1)
    task = Task.from_labels(labels, n_classes=n_classes, n_known=n_known, n_epochs=0)
    return by_centroids(method, inputs.backbone, task)


def note_in(log: Path) -> Callable[..., None]:
    """A function that adds one line of facts to the log."""

    def note(**facts: Any) -> None:
        append_line(log, json.dumps(facts, allow_nan=False))

    return note


def map_of(features: Tensor, seed: int) -> npt.NDArray[np.float32]:
    """(N, 2) positions on the map; images that all look the same lie on one point."""
    if float(features.std(dim=0).max()) < 1e-6:
        return np.zeros((len(features), 2), dtype=np.float32)
    with working("drawing the map"), torch.random.fork_rng():
        torch.manual_seed(seed)
        xy = project(features)
    return np.nan_to_num(xy)
