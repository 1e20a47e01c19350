"""A finished run cut coarser or finer, or known and novel parted elsewhere; nothing is trained."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bacon_gcd.backbone.bank import ReadyTokens
from bacon_gcd.classes.assign import Sorted, choose_side, sort_images, suspects
from bacon_gcd.classes.calibration import CENTROID_TEMPERATURE
from bacon_gcd.classes.centroids import Places, better_way
from bacon_gcd.classes.number import ClassNumber
from bacon_gcd.classes.tree import ClassTree, read_tree
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError, settings_from
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.duplicates import Twins
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.inputs import images_of, refuse_changed
from bacon_gcd.discovery.material import Material
from bacon_gcd.discovery.pipeline import (
    Discovery,
    checked_threshold,
    held_out,
    parse_classes,
)
from bacon_gcd.discovery.result import DiscoverSettings, Found, write_run
from bacon_gcd.methods import build_method, settings_for
from bacon_gcd.methods.base import Method, Task
from bacon_gcd.model import Model, load_model
from bacon_gcd.system.files import replacing_folder
from bacon_gcd.system.text import command

IntArray = npt.NDArray[np.int64]
UNTRAINED = "anchored-kmeans"


def recut(
    run: str | Path,
    out: str | Path,
    *,
    classes: str | int | None = None,
    threshold: float | None = None,
) -> Discovery:
    """Sort the images of a run into another number of classes, or by another threshold, or both.

    Fewer classes are whole classes joined, more are classes split, along the tree of the run; names
    and ids stay, and new classes get numbers that were never used. With a threshold, images that
    come to lie on the other side go to the likeliest class there; all others stay.
    """
    before = DiscoverRun.load(run)
    if classes is None and threshold is None:
        raise UserError(f"to cut {run} again, give --classes N or --threshold T")
    refuse_corrected(before)
    n_classes = len(before.classes) if classes is None else one_number(classes, run)
    settings = settings_from(DiscoverSettings, before.config, where=str(before.folder))
    settings = dataclasses.replace(
        settings, classes=str(n_classes), recut=str(before.folder), refit=None, update=None
    )
    if threshold is not None:
        settings = dataclasses.replace(settings, threshold=checked_threshold(threshold))
    with replacing_folder(Path(out)) as draft:
        shutil.copyfile(before.folder / "log.jsonl", draft / "log.jsonl")
        found = sort_again(before, settings, n_classes, move=threshold is not None)
        write_run(draft, settings, found)
        if (said := Constraints.read(before.folder)) != Constraints():
            said.write(draft)
    return Discovery(out)


def one_number(classes: str | int, run: str | Path) -> int:
    """The number of classes; a run is not counted again."""
    wanted = parse_classes(str(classes))
    if wanted is None or wanted[0] != wanted[1]:
        raise UserError(f"--classes {classes}: to cut {run} again, give one number")
    return wanted[0]


def refuse_corrected(before: DiscoverRun) -> None:
    """Corrections that are not learned yet would be lost: the tree knows nothing of them."""
    applied = corrected(before)
    if (applied.rows, applied.classes) != (before.rows, before.classes):
        raise UserError(
            f"{before.folder}: has corrections; learn them first with: "
            f"{command('bacon', 'discover', '--refit', before.folder, '-o', 'NEW')}"
        )


def sort_again(
    before: DiscoverRun, settings: DiscoverSettings, n_classes: int, *, move: bool
) -> Found:
    """The stored features, neighbors and places on the map under other classes.

    move: part known and novel by the threshold of the settings first.
    """
    n_rows, n_before = len(before.rows), len(before.classes)
    tree = read_tree(before.folder / "tree.json", n_rows=n_rows, n_classes=n_before)
    tree.hearts(n_classes)  # an impossible number is told before anything is loaded
    model = load_model(before.folder / "model")
    material = material_of(before, settings, model)
    features, centroids = torch.from_numpy(np.array(before.features)), model.method.centroids
    confirmed = Constraints.read(before.folder).confirmed
    certain = np.array([row.labeled or row.file_name in confirmed for row in before.rows])
    if move:
        shares = probabilities(features, centroids)
        sides = choose_side(shares, len(material.known), settings.threshold)
        tree = with_moved(tree, features, np.where(certain, -1, sides), before=before.classes)
    hearts = class_hearts(tree, n_classes, n_before=n_before)
    cut = tree.renumbered(hearts)
    class_ids = cut.cut(n_classes)
    labels = np.where(material.labels >= 0, class_ids, -1).astype(np.int64)
    material = dataclasses.replace(material, labels=labels)
    held = held_out(settings, material)
    _, reliability = better_way(features, labels, held, n_classes=n_classes, seed=settings.seed)
    places = Places(centroids_of(features, unit(centroids), tree, hearts), reliability)
    method = untrained(model, material, n_classes)
    method.set_centroids(places.centroids, temperature=places.temperature)
    neighbors = neighbors_of(before)
    return Found(
        material=material,
        method=method,
        name=UNTRAINED,
        number=ClassNumber(n_classes, (n_classes, n_classes), {}),
        features=features,
        sorted=sorted_as(class_ids, features, material, places, neighbors),
        neighbors=neighbors,
        xy=np.array([[row.x, row.y] for row in before.rows], dtype=np.float32),
        twins=twins_of(before),
        reliability=places.reliability,
        novel=(),
        next_novel=before.next_novel + int((hearts >= n_before).sum()),
        kept=kept_classes(before, hearts),
        tree=cut,
        certain=certain,
        given=tuple(row.label for row in before.rows),
    )


def neighbors_of(before: DiscoverRun) -> IntArray:
    """(N, K) neighbors of each row, as the run has them."""
    row_of = {row.file_name: number for number, row in enumerate(before.rows)}
    return np.array([[row_of[name] for name in row.neighbors] for row in before.rows])


def twins_of(before: DiscoverRun) -> list[Twins]:
    """The duplicates that the run lists."""
    row_of = {row.file_name: number for number, row in enumerate(before.rows)}
    stored = before.listed_duplicates()
    return [Twins(t["kind"], tuple(row_of[name] for name in t["files"])) for t in stored]


def material_of(before: DiscoverRun, settings: DiscoverSettings, model: Model) -> Material:
    """The images of the run, which must still be what they were; labels are places of classes."""
    table = images_of(settings)
    refuse_changed(before, table)
    place = {each.name: number for number, each in enumerate(before.classes)}
    held = [place[row.class_name] if row.labeled else -1 for row in before.rows]
    names = tuple(each.name for each in before.classes if each.known)
    tuned = str(model.facts["backbone"]["tuned"])
    tokens = ReadyTokens(np.array(before.features))
    return Material(table, np.array(held, dtype=np.int64), names, model.backbone, tuned, tokens)


def probabilities(features: Tensor, centroids: Tensor) -> npt.NDArray[np.float32]:
    """(N, C) as the model tells them; the length of its centroids is how sure it is."""
    return (features @ centroids.T / CENTROID_TEMPERATURE).softmax(dim=1).numpy()


def with_moved(
    tree: ClassTree, features: Tensor, sides: IntArray, *, before: Sequence[FoundClass]
) -> ClassTree:
    """Images that change sides go to the nearest part of their new class; all others stay.

    sides: (N,) class of each image under the threshold, -1 = it stays.
    """
    known = np.array([each.known for each in before])
    hearts = tree.hearts(len(before))
    moving = np.flatnonzero((sides >= 0) & (known[sides] != known[hearts[tree.members]]))
    cosines = (features[moving] @ unit(part_means(features, tree.members, tree.n_parts)).T).numpy()
    inside = hearts[None] == sides[moving, None]
    members = tree.members.copy()
    members[moving] = np.where(inside, cosines, -np.inf).argmax(axis=1)
    return dataclasses.replace(tree, members=members)


def part_means(features: Tensor, members: IntArray, n_parts: int) -> Tensor:
    """(P, D) mean of the rows of each part; zero where there are none."""
    total = features.new_zeros(n_parts, features.shape[1])
    sizes = torch.from_numpy(np.bincount(members, minlength=n_parts)).clamp_min(1)
    return total.index_add_(0, torch.from_numpy(members), features) / sizes[:, None]


def class_hearts(tree: ClassTree, n_classes: int, *, n_before: int) -> IntArray:
    """(C,) the heart of each class: those there were in their order, then new ones by size."""
    hearts = np.unique(tree.hearts(n_classes))
    sizes = np.bincount(tree.cut(n_classes), minlength=tree.n_parts)
    new = hearts[hearts >= n_before]
    return np.concatenate([hearts[hearts < n_before], new[np.argsort(-sizes[new], kind="stable")]])


def centroids_of(features: Tensor, centroids: Tensor, tree: ClassTree, hearts: IntArray) -> Tensor:
    """(C, D) unit rows: a class of the same parts stays where it is, others are the mean of theirs.

    centroids: (C before, D) unit rows.
    """
    was, now = tree.hearts(len(centroids)), tree.hearts(len(hearts))
    means = unit(part_means(features, tree.cut(len(hearts)), tree.n_parts))
    same = [np.array_equal(was == heart, now == heart) for heart in hearts]
    return torch.stack(
        [centroids[h] if kept else means[h] for h, kept in zip(hearts, same, strict=True)]
    )


def sorted_as(
    class_ids: IntArray, features: Tensor, material: Material, places: Places, neighbors: IntArray
) -> Sorted:
    """Every image in the class it is told to be in, and as sure of it as the model is."""
    labels = material.labels
    found = sort_images(
        features,
        labels,
        places.centroids,
        neighbors,
        temperature=places.temperature,
        n_known=len(material.known),
    )
    shares = probabilities(features, places.sharpened())
    sure = shares[np.arange(len(labels)), class_ids].astype(np.float64)
    return dataclasses.replace(
        found,
        class_ids=class_ids,
        confidence=np.where(labels >= 0, 1.0, sure),
        suggested=suspects(labels, class_ids, neighbors),
    )


def kept_classes(before: DiscoverRun, hearts: IntArray) -> tuple[FoundClass, ...]:
    """The class of each heart: the one there was, or a new one with an unused id and number."""
    first_id = max(before.unused_id, Constraints.read(before.folder).next_id)
    n_before = len(before.classes)
    new = (
        FoundClass(first_id + n, f"novel_{before.next_novel + n:03d}", known=False)
        for n in range(len(hearts))
    )
    return tuple(before.classes[h] if h < n_before else next(new) for h in hearts)


def untrained(model: Model, material: Material, n_classes: int) -> Method:
    """The model's features with room for another number of centroids."""
    labels, n_known = material.labels, len(material.known)
    counts = np.bincount(labels[(labels >= 0) & (labels < n_known)], minlength=n_known)
    task = Task(n_classes, n_known, tuple(counts.tolist()), len(labels), 0)
    method = build_method(UNTRAINED, task, model.backbone, settings_for(UNTRAINED, changes={}))
    tail = model.method.get_submodule("tail" if hasattr(model.method, "tail") else "contrast_tail")
    own: nn.Module = method.get_submodule("tail")
    own.load_state_dict(tail.state_dict())
    return method.eval()
