"""The class of every image: new images in groups, then all by the evidence and by a regression.

Given are labels, the threshold between known and new, and the number of new classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.clusterings import clusterings, labels_per_class
from bacon_gcd.classes.count import Linkage, Merges, merges
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.novelty import any_known, averaged, known_evidence, number_of_neighbors
from bacon_gcd.classes.ridge import judge
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import ClassSpace, Reduced
from bacon_gcd.cluster import kmeans, unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
LEAST_GAP = 1e-3  # between the score of a class that is given an image and the next best


@dataclass(frozen=True, eq=False)
class View:
    """N images as every step sees them, given some labels."""

    space: ClassSpace
    known_space: ClassSpace
    """The one in which known classes are told from new ones."""
    neighbors: IntArray
    """(N, k) similar images in the first."""
    points: Tensor
    """(N, d) unit positions for grouping: directions, each moved toward its neighbors."""
    whole: Tensor
    """(N, D) centered unit features."""
    seed: int
    rules: Rules
    grouped_by: Linkage = "ward"
    trees: dict[tuple[bytes, int, Linkage], Merges | None] = field(default_factory=dict)
    """Merge trees that were made: the same images are often grouped again."""


def view_of(rows: Reduced, labels: IntArray, *, seed: int, by: Linkage = "ward") -> View:
    """The images as these labels show them."""
    space, rules = rows.space(labels), rows.rules
    near = nearest(space.directions, n_neighbors=number_of_neighbors(len(labels), rules))
    middle = averaged(space.directions, near, own=1 - rules.smoothing)
    return View(space, rows.known_space(labels), near, unit(middle), rows.whole, seed, rules, by)


def nearest_known(view: View, labels: IntArray) -> tuple[IntArray, FloatArray]:
    """(N,) the known class that fits best, and the evidence that one of them is the right one."""
    if not (labels >= 0).any():
        return np.zeros(len(labels), dtype=np.int64), np.full(len(labels), -np.inf)
    evidence = known_evidence(view.known_space, labels)
    best = averaged(evidence, view.neighbors).argmax(dim=1).numpy()
    odds = any_known(view.known_space, evidence, view.rules)
    score = averaged(odds[:, None], view.neighbors)[:, 0]
    return np.where(labels >= 0, labels, best), score.double().numpy()


def sort(
    view: View,
    labels: IntArray,
    guess: IntArray,
    score: FloatArray,
    line: float,
    *,
    n_new: int,
) -> Tensor:
    """(N, C) evidence of each class, averaged over neighbors; every class has an image."""
    n_classes = int(labels.max(initial=-1)) + 1 + n_new
    class_ids = grouped(view, labels, guess, score, line, n_new=n_new)
    weights = torch.from_numpy(np.where(labels < 0, view.rules.unlabeled_weight, 1.0)).float()
    members = view.space.sums(class_ids, n_classes, weights)
    scores = averaged(view.space.evidence(*members), view.neighbors)
    best_classes(scores, labels, n_new=n_new)
    return scores


def judged(view: View, labels: IntArray, scores: Tensor, *, n_new: int) -> Tensor:
    """(N, C) what a regression on all other images says of each; every class has an image.

    Where labels are few it begins with clusterings of all images, too.

    scores: (N, C) that give the classes to begin with; they are also the answer in few dimensions.
    """

    def others(class_ids: IntArray) -> list[IntArray]:
        n_classes = scores.shape[1]
        return clusterings(
            view.points, labels, class_ids, n_classes=n_classes, seed=view.seed, rules=view.rules
        )

    best = partial(best_classes, labels=labels, n_new=n_new)
    weight = view.rules.label_weight * labels_per_class(labels)
    return judge(view.whole, scores, best, view.rules, others=others, weight=weight)[0]


def grouped(
    view: View, labels: IntArray, guess: IntArray, score: FloatArray, line: float, *, n_new: int
) -> IntArray:
    """(N,) known class that fits best, or the group of an image whose score is below the line."""
    n_known, unlabeled = int(labels.max(initial=-1)) + 1, labels < 0
    class_ids = np.where(unlabeled, guess, labels)
    rows = new_rows(score, line, unlabeled, n_new)
    if n_new:
        class_ids[rows] = n_known + group(view, rows, n_new)
    return class_ids


def new_rows(score: FloatArray, line: float, unlabeled: BoolArray, n_new: int) -> IntArray:
    """Unlabeled rows that are new: those below the threshold, and enough for the classes."""
    candidates = np.flatnonzero(unlabeled)
    order = candidates[np.argsort(score[candidates], kind="stable")]
    n_below = int((score[candidates] < line).sum())
    return np.sort(order[: max(n_below, min(2 * n_new, len(order)))])


def group(view: View, rows: IntArray, n_groups: int) -> IntArray:
    """(n,) group 0..G-1 of each of these rows, by merging small parts of them."""
    points = view.points[torch.from_numpy(rows)]
    n_parts = max(len(rows) // view.rules.rows_per_part, 2 * n_groups)
    rules = replace(view.rules, most_parts=max(view.rules.most_parts, 2 * n_groups))
    n_parts, by = min(n_parts, len(rows), rules.most_parts), view.grouped_by
    key = (rows.tobytes(), n_parts, by)
    if key not in view.trees:
        view.trees[key] = merges(points, seed=view.seed, n_parts=n_parts, by=by, rules=rules)
    tree = view.trees[key]
    if tree is not None and tree.n_parts >= n_groups:
        found = tree.cut(n_groups)
        if int(found.max()) + 1 == n_groups:
            return found
    return kmeans(points, min(n_groups, len(rows)), n_init=1, seed=view.seed).labels


def with_lost_classes(scores: Tensor, before: Tensor, labels: IntArray) -> Tensor:
    """(N, C) the same, but new classes that kept at most one image have all of them back. Ours.

    So many classes were asked for, and one of a single image is of no use.

    before: (N, C) scores that gave each class its images to begin with.
    """
    n_classes, n_known = scores.shape[1], int(labels.max(initial=-1)) + 1
    kept = np.bincount(best_of(labels, scores), minlength=n_classes)
    first = best_of(labels, before)
    rows = np.flatnonzero((labels < 0) & (first >= n_known) & (kept[first] < 2))
    result, index = scores.clone(), torch.from_numpy(rows)
    result[index, torch.from_numpy(first[rows])] = scores[index].amax(dim=1) + LEAST_GAP
    best_classes(result, labels, n_new=n_classes - n_known)
    return result


def best_of(labels: IntArray, scores: Tensor) -> IntArray:
    """(N,) the class of the greatest of the (N, C) scores; labeled images keep theirs."""
    return np.where(labels >= 0, labels, scores.argmax(dim=1).numpy())


def best_classes(scores: Tensor, labels: IntArray, *, n_new: int) -> IntArray:
    """(N,) the best class of each unlabeled image; a new class keeps one, also in the scores."""
    class_ids = best_of(labels, scores)
    n_classes = scores.shape[1]
    keep_one(class_ids, scores, labels < 0, np.arange(n_classes) >= n_classes - n_new)
    return class_ids


def keep_one(class_ids: IntArray, scores: Tensor, unlabeled: BoolArray, kept: BoolArray) -> None:
    """Give each kept class that lost all its images the one that fits best, in the arrays."""
    empty = np.flatnonzero(kept & (np.bincount(class_ids, minlength=scores.shape[1]) == 0))
    if not len(empty):
        return
    gap = (scores[:, torch.from_numpy(empty)] - scores.max(dim=1).values[:, None]).numpy()
    for column, number in enumerate(empty):
        free = unlabeled & (np.bincount(class_ids, minlength=scores.shape[1])[class_ids] > 1)
        if free.any():
            row = int(np.where(free, gap[:, column], -np.inf).argmax())
            class_ids[row] = number
            scores[row, number] = scores[row].max() + LEAST_GAP


def class_means(
    features: Tensor, class_ids: IntArray, weights: FloatArray, n_classes: int
) -> Tensor:
    """(C, D) unit means of the weighted images of each class; zero where there are none."""
    sums = torch.zeros(n_classes, features.shape[1])
    rows = features * torch.from_numpy(weights).float()[:, None]
    return unit(sums.index_add_(0, torch.from_numpy(class_ids), rows))
