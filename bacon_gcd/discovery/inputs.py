"""What a discovery works on: images, the labels there are, and tokens of a backbone or vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bacon_gcd.backbone.bank import ReadyTokens, TokenSource, build_bank, n_unfinished
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.catalogue import (
    CATALOGUE,
    OFFLINE,
    best_cached,
    cached,
    find,
    how_to_get,
    library_of,
    parts_of,
)
from bacon_gcd.backbone.hf import folder_of
from bacon_gcd.backbone.timm_models import weights_file
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone, trunk_dtype, untrained
from bacon_gcd.classes.beside import Second
from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.data.joined import join
from bacon_gcd.data.remarks import unreadable_remark
from bacon_gcd.data.vector_files import read_features
from bacon_gcd.discovery.edges import Pictures, joined_with_edges, weigh_edges
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.forecast import forecast
from bacon_gcd.discovery.image_size import fitting_size, seen_whole
from bacon_gcd.discovery.learn import Samples
from bacon_gcd.discovery.names import refuse_names
from bacon_gcd.discovery.settings import AUTO, DiscoverSettings, Tell, effort_for
from bacon_gcd.system.devices import Device, device_line, find_device
from bacon_gcd.system.processes import agreed, refuse_differences
from bacon_gcd.system.progress import followed_by

IntArray = npt.NDArray[np.int64]
MIN_IMAGES = 4
FLOAT32 = torch.float32  # of the trunk on a CPU: what runs have been made with so far
VECTOR_NOISE = 0.1  # of the vectors' own spread: what makes two views of one vector differ


@dataclass(frozen=True, eq=False)
class Inputs:
    """N images with what is known of them."""

    table: ImageTable
    labels: IntArray
    """(N,) positions in `known`, -1 = unlabeled."""
    known: tuple[str, ...]
    """Names of the classes that have a label."""
    backbone: Backbone
    tuned: str
    tokens: TokenSource
    n_views: int = 0
    """Training views over which features are averaged."""
    sorting_seconds: float = 0.0
    """How long it is expected to take to sort them."""

    @property
    def samples(self) -> Samples:
        """What training and sorting need of them."""
        groups = self.table.groups
        return Samples(
            self.tokens, self.labels, len(self.known), self.backbone, groups, self.n_views
        )


def read_inputs(
    asked: DiscoverSettings,
    *,
    workers: int,
    tell: Tell,
    device: Device = None,
    check: Callable[[ImageTable], None] | None = None,
) -> tuple[DiscoverSettings, Inputs]:
    """Read the images, choose backbone and effort, say how long it takes, make the tokens.

    Returns the settings with what `auto` and the effort mean here, too.

    check: refuses images or labels that do not go with what is asked for.
    """
    with agreed():  # one process may not see the images, or have other weights
        name = "vectors" if asked.features else pick_backbone(asked.backbone)
        refuse_names(asked.names, name)
        if not asked.features:
            refuse_missing(name)
        tables = tables_of(asked)
        table = joined(tables)
        if check is not None:
            check(table)
    refuse_differences("images", table.fingerprint, "all must see the same files")
    for line in told_of(table):
        tell(line)
    effort = effort_for(asked.effort, len(table))
    settings = dataclasses.replace(asked, views=effort.views, epochs=effort.epochs)
    if asked.features is not None:
        inputs = from_features(table, vectors_of(asked, tables), device=device)
        effort = dataclasses.replace(effort, views=0)  # there is nothing to crop
        expected = forecast(table, inputs.backbone, effort, n_missing=0, workers=workers)
        tell(expected.line())
        inputs = dataclasses.replace(inputs, sorting_seconds=expected.sorting)
        return dataclasses.replace(settings, backbone="vectors", views=0), inputs
    size = asked.image_size or (fitting_size(name, table) if effort.fitted else None)
    tuned = find(name).quick_part if effort.epochs else untrained(name)
    backbone = open_backbone(name, tuned, size, uncropped=seen_whole(table), device=device)
    tell(device_line(backbone.device))
    tell(backbone_line(name, backbone.image_size))
    n_missing = n_unfinished(
        table, backbone, n_views=effort.views, stored=asked.stored, seed=asked.seed
    )
    expected = forecast(table, backbone, effort, n_missing=n_missing, workers=workers)
    tell(expected.line())
    with followed_by(expected.training + expected.sorting):
        inputs = from_images(
            table,
            backbone,
            tuned,
            views=effort.views,
            stored=asked.stored,
            seed=asked.seed,
            workers=workers,
        )
        inputs, edges = inputs_with_edges(inputs, asked, workers=workers)
    settings = dataclasses.replace(settings, edges=edges.weight)
    if edges.weight:
        tell(f"edges of the images count, too: {edges.weight:g} times as much as the backbone")
        settings = dataclasses.replace(settings, views=0, epochs=0)
    inputs = dataclasses.replace(inputs, sorting_seconds=expected.sorting)
    seen_at = backbone.image_size
    return dataclasses.replace(settings, backbone=backbone.name, image_size=seen_at), inputs


def told_of(table: ImageTable) -> list[str]:
    """What a person is told about the images before anything is done with them."""
    bad = table.unreadable
    where = "lists them all" if len(bad) > 1 else "of the run lists it"
    lines = [f"{line}; quarantine.csv {where}" for line in unreadable_remark(bad)]
    return [table.summary(), *lines, *table.remarks]


def inputs_with_edges(
    inputs: Inputs, asked: DiscoverSettings, *, workers: int
) -> tuple[Inputs, Second]:
    """The same with edges of the images beside the backbone, where the two agree; see `edges`.

    Nothing is trained then: the features are those of the whole frozen network.
    """

    edges = weigh_edges(pictures_of(inputs, asked, workers))
    if not edges.weight:
        return inputs, edges
    frozen = frozen_inputs(inputs, asked, workers=workers) if inputs.n_views else inputs
    backbone, tokens = joined_with_edges(pictures_of(frozen, asked, workers), edges.factor)
    return dataclasses.replace(frozen, backbone=backbone, tokens=tokens), edges


def pictures_of(inputs: Inputs, asked: DiscoverSettings, workers: int) -> Pictures:
    """What is asked for edges."""
    seen = (inputs.table, inputs.labels, inputs.backbone, inputs.tokens)
    return Pictures(*seen, asked.seed, workers, asked.stored)


def frozen_inputs(inputs: Inputs, asked: DiscoverSettings, *, workers: int) -> Inputs:
    """The same images for a backbone of which nothing is trained."""
    seen, tuned = inputs.backbone, untrained(inputs.backbone.name)
    backbone = open_backbone(
        seen.name, tuned, seen.image_size, uncropped=seen.uncropped, device=seen.device
    )
    return from_images(
        inputs.table,
        backbone,
        tuned,
        views=0,
        stored=asked.stored,
        seed=asked.seed,
        workers=workers,
    )


def tables_of(settings: DiscoverSettings) -> dict[str, ImageTable]:
    """The table of each source; the key is what its ids begin with, "" for the first source."""
    first = read_table(Path(settings.source), Path(settings.labels) if settings.labels else None)
    return {"": first} | {
        key: read_images(each["source"], each.get("labels"))
        for key, each in (settings.added or {}).items()
    }


def read_table(source: Path, labels: Path | None) -> ImageTable:
    """The images, or one line when they are too few to find anything in."""
    table = read_images(source, labels)
    if len(table) < MIN_IMAGES:
        found = "1 image" if len(table) == 1 else f"{len(table)} images"
        raise UserError(f"{source}: {found}; there must be at least {MIN_IMAGES} to sort")
    return table


def joined(tables: Mapping[str, ImageTable]) -> ImageTable:
    """All images of a run, in the order of its rows."""
    return join(tables) if len(tables) > 1 else next(iter(tables.values()))


def images_of(before: DiscoverRun, settings: DiscoverSettings) -> ImageTable:
    """The images of a finished run, which must still be what they were."""
    table = joined(tables_of(settings))
    refuse_changed(before, table)
    return table


def refuse_changed(before: DiscoverRun, table: ImageTable) -> None:
    """Refuse images or labels that are not those of the finished run."""
    labels = [table.class_names[label] if label >= 0 else "" for label in table.labels]
    was = [(row.file_name, row.label) for row in before.rows]
    if was != list(zip(table.ids, labels, strict=True)):
        raise UserError(
            f"{before.source}: images or labels are not those of {before.folder} any more; "
            "sort them anew with: bacon discover"
        )


def vectors_of(
    settings: DiscoverSettings, tables: Mapping[str, ImageTable]
) -> npt.NDArray[np.float32]:
    """(N, D) ready vectors of all images of a run that was made from such."""
    files = {"": settings.features} | {
        key: each["features"] for key, each in (settings.added or {}).items()
    }
    return np.concatenate(
        [read_features(Path(str(files[key])), table) for key, table in tables.items()]
    )


def known_classes(table: ImageTable) -> tuple[IntArray, tuple[str, ...]]:
    """(N,) labels without gaps, and the names of the classes that any image has."""
    used = np.unique(table.labels[table.labels >= 0])
    labels = np.where(table.labels >= 0, np.searchsorted(used, table.labels), -1)
    return labels.astype(np.int64), tuple(table.class_names[c] for c in used)


def pick_backbone(name: str) -> str:
    """The name itself, or the best one in the cache; nothing is downloaded."""
    return best_cached() if name == AUTO else find(name).name


def refuse_missing(name: str) -> None:
    """Refuse a backbone whose files are not here; what is in them is seen when it is opened."""
    for part in parts_of(name):
        library = library_of(part)
        if library == "hf":
            folder_of(part)
        elif library == "timm":
            weights_file(part)
        elif cached(part) is None:
            raise UserError(how_to_get(find(part)))


def better_backbone(name: str) -> str | None:
    """A better backbone than this one that is not in the cache, the easiest to get first."""
    order = list(CATALOGUE)
    if name not in CATALOGUE or name == "vectors":
        return None
    missing = [each for each in (OFFLINE, order[0]) if not cached(each)]
    return next((each for each in missing if order.index(each) < order.index(name)), None)


def backbone_line(name: str, image_size: int) -> str:
    """Which backbone it is, how it sees the images, and how to get a better one."""
    better = better_backbone(name)
    hint = f"; a better one comes with: bacon weights get {better}" if better else ""
    return f"backbone {name} at {image_size} px ({find(name).trained_on}){hint}"


def open_backbone(
    name: str,
    tuned: str,
    image_size: int | None,
    *,
    uncropped: bool = False,
    device: Device = None,
) -> Backbone:
    """The backbone of this name; in bfloat16 where that is fast.

    tuned, uncropped: see `load_backbone`. image_size: its own unless given.
    """
    precision = trunk_dtype(AUTO, device=device) if find_device(device).type == "cuda" else FLOAT32
    return load_backbone(
        name,
        tuned=tuned,
        image_size=image_size,
        uncropped=uncropped,
        trunk_dtype=precision,
        device=device,
    )


def from_images(
    table: ImageTable,
    backbone: Backbone,
    tuned: str,
    *,
    views: int,
    stored: str,
    seed: int,
    workers: int,
) -> Inputs:
    """Tokens of every image, from the cache where they are already."""
    rows = np.arange(len(table))
    bank = build_bank(
        table, rows, backbone, n_views=views, stored=stored, seed=seed, workers=workers
    )
    return Inputs(table, *known_classes(table), backbone, tuned, bank, n_views=views)


def from_features(
    table: ImageTable, vectors: npt.NDArray[np.float32], *, device: Device = None
) -> Inputs:
    """Ready vectors in place of a backbone."""
    tokens = ReadyTokens(vectors, noise=VECTOR_NOISE)
    backbone = Vectors(vectors.shape[1], device=device)
    return Inputs(table, *known_classes(table), backbone, "block", tokens)
