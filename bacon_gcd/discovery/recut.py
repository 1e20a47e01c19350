"""A finished run cut coarser or finer, or known and novel parted elsewhere; nothing is trained."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.bank import ReadyTokens
from bacon_gcd.classes.assign import Sorted, choose_side, second_choice, sort_by, suspects
from bacon_gcd.classes.tree import ClassTree, read_tree
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.duplicates import Duplicates, with_contradicted
from bacon_gcd.discovery.edits import edits_path, read_lines, undone_lines
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, unused_names
from bacon_gcd.discovery.inputs import Inputs, images_of
from bacon_gcd.discovery.pipeline import centroid_method
from bacon_gcd.discovery.result import Discovery, Found, with_sorter
from bacon_gcd.discovery.settings import (
    DiscoverSettings,
    checked_threshold,
    parse_classes,
    settings_of,
)
from bacon_gcd.discovery.write import write_run
from bacon_gcd.model import CENTROID_METHOD, Model, load_model
from bacon_gcd.system.files import replacing_folder
from bacon_gcd.system.text import command

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def recut(
    run: str | Path,
    out: str | Path,
    *,
    classes: str | int | None = None,
    threshold: float | None = None,
) -> Discovery:
    """Sort the images of a run into another number of classes, or by another threshold, or both.

    Fewer classes are whole classes joined, more are classes split, along the tree of the run; names
    and ids stay, and new classes get ids that were never used. With a threshold, images that come
    to lie on the other side go to the likeliest class there; all others stay.
    """
    before = DiscoverRun.load(run)
    if classes is None and threshold is None:
        raise UserError(f"to cut {run} again, give --classes N or --threshold T")
    refuse_corrected(before)
    next_id = corrected(before).next_id
    n_classes = len(before.classes) if classes is None else one_number(classes, run)
    changes = {} if threshold is None else {"threshold": checked_threshold(threshold)}
    settings = settings_of(
        before.config,
        str(before.folder),
        classes=str(n_classes),
        recut=str(before.folder),
        **changes,
    )
    with replacing_folder(Path(out)) as draft:
        shutil.copyfile(before.folder / "log.jsonl", draft / "log.jsonl")
        found = sort_again(before, settings, n_classes, next_id, move=threshold is not None)
        write_run(draft, settings, with_sorter(found, seed=settings.seed))
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
    """Refuse corrections that are not learned yet: the tree knows nothing of them."""
    lines = read_lines(edits_path(before.folder))
    undone, _ = undone_lines(lines)
    if any(
        each.edit and each.edit["kind"] != "undo" and each.number not in undone for each in lines
    ):
        raise UserError(
            f"{before.folder}: has corrections; learn them first with: "
            f"{command('bacon', 'discover', '--refit', before.folder, '-o', 'NEW')}"
        )


def sort_again(
    before: DiscoverRun, settings: DiscoverSettings, n_classes: int, next_id: int, *, move: bool
) -> Found:
    """The stored features, neighbors and map positions under other classes.

    move: part known and novel by the threshold of the settings first.
    """
    tree = tree_of(before)
    tree.cores(n_classes)  # an impossible number is told before anything is loaded
    model = load_model(before.folder / "model")
    inputs = inputs_of(before, settings, model)
    features = torch.from_numpy(np.array(before.features))
    certain = certain_rows(before)
    shares = before.probabilities
    if shares is None:
        shares = probabilities(features, model.centroids, model.temperature)
    if move:
        sides = choose_side(shares, len(inputs.known), settings.threshold)
        tree = with_moved(tree, features, np.where(certain, -1, sides), before=before.classes)
    cores = class_cores(tree, n_classes, n_before=len(before.classes))
    cut = tree.renumbered(cores)
    centroids = centroids_of(features, model.centroids, tree, cores)
    own = probabilities(features, centroids, model.temperature)
    shares = cut_shares(shares, own, tree, cores)
    return cut_run(before, inputs, model, cut, centroids, features, certain, cores, next_id, shares)


def cut_run(
    before: DiscoverRun,
    inputs: Inputs,
    model: Model,
    cut: ClassTree,
    centroids: Tensor,
    features: Tensor,
    certain: BoolArray,
    cores: IntArray,
    next_id: int,
    shares: npt.NDArray[np.float32],
) -> Found:
    """Everything that the folder of the cut run holds."""
    class_ids = cut.cut(len(cores))
    labels = np.where(inputs.labels >= 0, class_ids, -1).astype(np.int64)
    inputs = dataclasses.replace(inputs, labels=labels)
    neighbors, duplicates = neighbors_of(before), duplicates_of(before)
    images = sorted_as(class_ids, shares, inputs, neighbors)
    method = centroid_method(model.method, inputs, len(cores))
    method.set_centroids(centroids, temperature=model.temperature)
    return Found(
        inputs=inputs,
        method=method,
        name=CENTROID_METHOD,
        classes=cut_classes(before, cores, next_id),
        next_id=next_id + int((cores >= len(before.classes)).sum()),
        features=features,
        images=with_contradicted(images, labels, duplicates, confirmed=confirmed_rows(before)),
        neighbors=neighbors,
        xy=np.array([[row.x, row.y] for row in before.rows], dtype=np.float32),
        duplicates=duplicates,
        tree=cut,
        certain=certain,
        given=tuple(row.label for row in before.rows),
    )


# What a finished run holds


def tree_of(before: DiscoverRun) -> ClassTree:
    """The coarser and finer cuts of the run."""
    n_rows, n_classes = len(before.rows), len(before.classes)
    return read_tree(before.folder / "tree.json", n_rows=n_rows, n_classes=n_classes)


def certain_rows(before: DiscoverRun) -> BoolArray:
    """(N,) rows that never leave their class: with a label, or confirmed by a person."""
    return np.array([row.labeled for row in before.rows]) | confirmed_rows(before)


def confirmed_rows(before: DiscoverRun) -> BoolArray:
    """(N,) rows that a person confirmed."""
    confirmed = Constraints.read(before.folder).confirmed
    return np.array([row.file_name in confirmed for row in before.rows])


def neighbors_of(before: DiscoverRun) -> IntArray:
    """(N, K) neighbors of each row, as the run has them."""
    row_of = {row.file_name: number for number, row in enumerate(before.rows)}
    return np.array([[row_of[name] for name in row.neighbors] for row in before.rows])


def duplicates_of(before: DiscoverRun) -> list[Duplicates]:
    """The duplicates that the run lists."""
    row_of = {row.file_name: number for number, row in enumerate(before.rows)}
    stored = before.listed_duplicates()
    return [Duplicates(t["kind"], tuple(row_of[name] for name in t["files"])) for t in stored]


def inputs_of(before: DiscoverRun, settings: DiscoverSettings, model: Model) -> Inputs:
    """The images of the run, which must still be what they were; labels are classes of the run."""
    table = images_of(before, settings)
    position = {each.name: number for number, each in enumerate(before.classes)}
    labels = [position[row.class_name] if row.labeled else -1 for row in before.rows]
    names = tuple(each.name for each in before.classes if each.known)
    tuned = str(model.facts["backbone"]["tuned"])
    tokens = ReadyTokens(np.array(before.features))
    return Inputs(table, np.array(labels, dtype=np.int64), names, model.backbone, tuned, tokens)


# Other classes


def probabilities(
    features: Tensor, centroids: Tensor, temperature: float
) -> npt.NDArray[np.float32]:
    """(N, C) as the model tells them."""
    return (features @ centroids.T / temperature).softmax(dim=1).numpy()


def with_moved(
    tree: ClassTree, features: Tensor, sides: IntArray, *, before: Sequence[FoundClass]
) -> ClassTree:
    """Images that change sides go to the nearest part of their new class; all others stay.

    sides: (N,) class of each image under the threshold, -1 = it stays.
    """
    known = np.array([each.known for each in before])
    cores = tree.cores(len(before))
    moving = np.flatnonzero((sides >= 0) & (known[sides] != known[cores[tree.members]]))
    cosines = (features[moving] @ unit(part_means(features, tree.members, tree.n_parts)).T).numpy()
    inside = cores[None] == sides[moving, None]
    members = tree.members.copy()
    members[moving] = np.where(inside, cosines, -np.inf).argmax(axis=1)
    return dataclasses.replace(tree, members=members)


def part_means(features: Tensor, members: IntArray, n_parts: int) -> Tensor:
    """(P, D) mean of the rows of each part; zero where there are none."""
    total = features.new_zeros(n_parts, features.shape[1])
    sizes = torch.from_numpy(np.bincount(members, minlength=n_parts)).clamp_min(1)
    return total.index_add_(0, torch.from_numpy(members), features) / sizes[:, None]


def class_cores(tree: ClassTree, n_classes: int, *, n_before: int) -> IntArray:
    """(C,) the core part of each class: those there were in their order, then new ones by size."""
    cores = np.unique(tree.cores(n_classes))
    sizes = np.bincount(tree.cut(n_classes), minlength=tree.n_parts)
    new = cores[cores >= n_before]
    return np.concatenate([cores[cores < n_before], new[np.argsort(-sizes[new], kind="stable")]])


def centroids_of(features: Tensor, centroids: Tensor, tree: ClassTree, cores: IntArray) -> Tensor:
    """(C, D) unit rows: a class of the same parts stays where it is, others are the mean of theirs.

    centroids: (C before, D) unit rows.
    """
    was, now = tree.cores(len(centroids)), tree.cores(len(cores))
    means = unit(part_means(features, tree.cut(len(cores)), tree.n_parts))
    same = [np.array_equal(was == core, now == core) for core in cores]
    return torch.stack(
        [centroids[c] if kept else means[c] for c, kept in zip(cores, same, strict=True)]
    )


def cut_shares(
    shares: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32],
    tree: ClassTree,
    cores: IntArray,
) -> npt.NDArray[np.float32]:
    """(N, C) probabilities of the classes of a cut.

    Classes that were joined have the sum of theirs; a class that was split shares its own out.

    Args:
        shares: (N, C before) probabilities of the run.
        own: (N, C) by the centroids of the cut.
    """
    was, now = tree.cores(shares.shape[1]), tree.cores(len(cores))
    found = np.zeros_like(own)
    for number in range(shares.shape[1]):
        pieces = np.flatnonzero(np.isin(cores, now[was == number]))
        part = own[:, pieces] / np.maximum(own[:, pieces].sum(axis=1, keepdims=True), 1e-12)
        found[:, pieces] += shares[:, number, None] * part
    return found


def sorted_as(
    class_ids: IntArray,
    shares: npt.NDArray[np.float32],
    inputs: Inputs,
    neighbors: IntArray,
) -> Sorted:
    """Every image in the class it is told to be in, and as sure of it as its share is."""
    labels, n_known = inputs.labels, len(inputs.known)
    found = sort_by(shares, labels, neighbors, n_known=n_known)
    sure = shares[np.arange(len(labels)), class_ids].astype(np.float64)
    return dataclasses.replace(
        found,
        class_ids=class_ids,
        confidence=np.where(labels >= 0, 1.0, sure),
        suggested=suspects(labels, class_ids, neighbors),
        second_choice=second_choice(shares, class_ids),
        probabilities=shares,
    )


def cut_classes(before: DiscoverRun, cores: IntArray, next_id: int) -> tuple[FoundClass, ...]:
    """The class of each core part: the one there was, or a new one with an unused id and name."""
    n_before = len(before.classes)
    names = unused_names(before.classes, next_id, int((cores >= n_before).sum()))
    new = (FoundClass(next_id + n, name, known=False) for n, name in enumerate(names))
    return tuple(before.classes[c] if c < n_before else next(new) for c in cores)
