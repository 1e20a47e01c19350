"""Classes from features and labels: how many, where, every image sorted, and how sure that is.

1. A space in which classes are alike (`space`).
2. The evidence that an image is of a known class, averaged with that of its neighbors; the
   threshold is learned from known classes that are hidden (`novelty`).
3. New images are merged into as many classes as known classes suggest (`count`).
4. All images are sorted anew by the classes they made, then by ridge regression (`ridge`).
5. The same with a third of the known classes hidden says how sure an answer is (`reliability`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.count import (
    ClassNumber,
    Linkage,
    Range,
    count_by_shape,
    count_new,
    measured_share,
    merges,
    number_of,
)
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.novelty import (
    Fold,
    any_known,
    averaged,
    fold_scores,
    folds,
    known_evidence,
    learned_threshold,
    number_of_neighbors,
)
from bacon_gcd.classes.reliability import (
    Checked,
    Expected,
    expected,
    matching_temperature,
    regression_serves,
    usual_accuracy,
)
from bacon_gcd.classes.ridge import judge
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import ClassSpace, Reduced, reduced, sample
from bacon_gcd.cluster import contingency, kmeans, pair_up, unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classes:
    """C classes, known ones first and new ones by size, and N images sorted into them."""

    number: ClassNumber
    class_ids: IntArray
    """(N,) labeled images keep their class."""
    probabilities: npt.NDArray[np.float32]
    """(N, C) calibrated on hidden classes; 1 for the class of a labeled image."""
    centroids: Tensor
    """(C, D) unit rows in the space of the features, for images to come."""
    temperature: float
    """Of the softmax of their cosines that is as sure as `probabilities` on average."""
    expected: Expected | None
    """What hidden classes say of the answer; None: too little could be hidden."""


@dataclass(frozen=True, eq=False)
class View:
    """N images as every step sees them, given some labels."""

    space: ClassSpace
    neighbors: IntArray
    """(N, k) similar images in this space."""
    points: Tensor
    """(N, d) unit positions for grouping: directions, each moved toward its neighbors."""
    whole: Tensor
    """(N, D) centered unit features."""
    seed: int
    rules: Rules
    grouped_by: Linkage = "ward"


def view_of(rows: Reduced, labels: IntArray, *, seed: int, by: Linkage = "ward") -> View:
    """The images as these labels show them."""
    space, rules = rows.space(labels), rows.rules
    near = nearest(space.directions, n_neighbors=number_of_neighbors(len(labels), rules))
    middle = averaged(space.directions, near, own=1 - rules.smoothing)
    return View(space, near, unit(middle), rows.whole, seed, rules, by)


def find_classes(
    features: Tensor,
    labels: IntArray,
    *,
    seed: int,
    allowed: Range | None = None,
    groups: Sequence[str] | None = None,
    rules: Rules = RULES,
) -> Classes:
    """Sort (N, D) unit features into known and new classes. Ours.

    Args:
        labels: (N,) known class, -1 = unlabeled.
        allowed: smallest and largest number of classes; as many as there seem to be unless given.
        groups: (N,) images of one group (a photo series) are hidden together.
    """
    rows = reduced(features, labels, seed=seed, rules=rules)
    view = view_of(rows, labels, seed=seed)
    n_known, n_neighbors = int(labels.max(initial=-1)) + 1, view.neighbors.shape[1]
    guess, score = nearest_known(view, labels)
    known, new = fold_scores(rows, labels, n_neighbors=n_neighbors, seed=seed, groups=groups)
    line = learned_threshold(rows, labels, view.neighbors, (known, new), seed=seed)
    view = replace(view, grouped_by=linkage_for(labels, guess, score >= line, rules))
    number = count_classes(view, labels, guess, score < line, allowed=allowed)
    if number.beside and len(known):  # it was counted, and known classes show what a fragment is
        number, score = without_fragments(view, labels, score, line, known, new, number)
    n_new = number.estimate - n_known
    scores = sort(view, labels, guess, score, line, n_new=n_new)
    checks = checked(view, rows, labels, groups, line, n_new=n_new)
    if regression_serves([(by.right, by_regression.right) for by, by_regression in checks]):
        scores, checks = judged(view, labels, scores, n_new=n_new), [pair[::-1] for pair in checks]
    if number.beside:
        least = max(n_known, 1, allowed[0] if allowed else 0)
        number, scores = without_lone_classes(number, scores, labels, least=least, rules=rules)
    class_ids = np.where(labels >= 0, labels, scores.argmax(dim=1).numpy())
    share = float((class_ids[labels < 0] < n_known).mean()) if (labels < 0).any() else 1.0
    measured = expected([used for used, _ in checks], known_share=share, rules=rules)
    if measured:
        sure = measured.accuracy
    else:
        sure = usual_accuracy(class_ids, view.neighbors, labels < 0, rules)
    temperature = matching_temperature(scores[torch.from_numpy(labels < 0)], sure)
    probabilities = (scores / temperature).softmax(dim=1)
    return _answer(features, labels, class_ids, probabilities, number, measured, rules)


def nearest_known(view: View, labels: IntArray) -> tuple[IntArray, FloatArray]:
    """(N,) the known class that fits best, and the evidence that one of them is the right one."""
    if not (labels >= 0).any():
        return np.zeros(len(labels), dtype=np.int64), np.full(len(labels), -np.inf)
    evidence = known_evidence(view.space, labels)
    best = averaged(evidence, view.neighbors).argmax(dim=1).numpy()
    score = averaged(any_known(evidence)[:, None], view.neighbors)[:, 0]
    return np.where(labels >= 0, labels, best), score.double().numpy()


def linkage_for(
    labels: IntArray, guess: IntArray, above: BoolArray, rules: Rules = RULES
) -> Linkage:
    """How new images are grouped: new classes are taken to be as uneven as the known ones. Ours.

    Ward's criterion prefers groups of one size, and is better where classes have one; average
    linkage finds small classes beside large ones.

    Args:
        guess: (N,) known class that each image would be in.
        above: (N,) images whose evidence of a known class is above the threshold.
    """
    sizes = np.bincount(guess[above | (labels >= 0)])
    seen = np.log(sizes[np.unique(labels[labels >= 0])])
    return "average" if len(seen) > 1 and seen.std(ddof=1) >= rules.uneven else "ward"


def count_classes(
    view: View, labels: IntArray, guess: IntArray, below: BoolArray, *, allowed: Range | None
) -> ClassNumber:
    """The number of classes; one that is given is not counted.

    below: (N,) images whose evidence of a known class is below the threshold.
    """
    n_known, n_unlabeled = int(labels.max(initial=-1)) + 1, int((labels < 0).sum())
    low, high = allowed or (max(n_known, 1), n_known + n_unlabeled)
    limits = (max(low, n_known, 1), max(min(high, n_known + n_unlabeled), 1))
    if limits[0] == limits[1]:
        return ClassNumber(limits[0], limits, {})
    new = below & (labels < 0)
    if n_known == 0:
        middle, least, most = count_by_shape(view.space, seed=view.seed, rules=view.rules)
        return number_of(0, middle, {"least": least, "most": most}, limits, view.rules)
    n_new, ways = count_new(
        view.space, view.points, guess, new, n_known=n_known, seed=view.seed, rules=view.rules
    )
    return number_of(n_known, n_new, ways, limits, view.rules)


def fragment_edge(known: FloatArray, new: FloatArray, line: float, rules: Rules = RULES) -> float:
    """Mean score from which a group of new images is a fragment of a known class. Ours.

    Hidden images of known classes that fall below the threshold lie just below it; those of hidden
    classes lie lower. The edge is between the two means.
    """
    of_known, of_new = (_mean_below(scores, line) for scores in (known, new))
    return (1 - rules.edge) * of_known + rules.edge * of_new


def _mean_below(scores: FloatArray, line: float) -> float:
    below = scores[scores < line]
    return float(below.mean()) if len(below) else line


def without_fragments(
    view: View,
    labels: IntArray,
    score: FloatArray,
    line: float,
    known: FloatArray,
    new: FloatArray,
    number: ClassNumber,
) -> tuple[ClassNumber, FloatArray]:
    """The number of classes without fragments of known ones, and scores that call these known.

    known, new: scores of hidden images of known classes, and of hidden classes.
    """
    n_known = int(labels.max(initial=-1)) + 1
    n_new = number.estimate - n_known
    if n_new < 1:
        return number, score
    rows = new_rows(score, line, labels < 0, n_new)
    groups = group(view, rows, n_new)
    # Ways of counting by known classes leave fragments out themselves; the evidence does not.
    doubtful = 1 - measured_share(n_known, view.rules)
    missed = min(float((known < line).mean()), 0.5)
    most = doubtful * missed / (1 - missed) * (int((labels < 0).sum()) - len(rows))
    edge = fragment_edge(known, new, line, view.rules)
    gone = fragments(groups, score[rows], n_new, edge=edge, most=most)
    score = score.copy()
    score[rows[gone[groups]]] = line
    estimate, (low, high) = n_known + int((~gone).sum()), number.interval
    return replace(number, estimate=estimate, interval=(min(low, estimate), high)), score


def fragments(
    groups: IntArray, scores: FloatArray, n_groups: int, *, edge: float, most: float
) -> BoolArray:
    """(G,) groups whose mean score is above the edge, the highest first, of so many images."""
    sizes = np.bincount(groups, minlength=n_groups)
    means = np.bincount(groups, scores, n_groups) / np.maximum(sizes, 1)
    order = np.argsort(-means, kind="stable")
    few = np.zeros(n_groups, dtype=bool)
    few[order] = np.cumsum(sizes[order]) <= most
    return few & (means >= edge)


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

    scores: (N, C) that give the classes to begin with; they are also the answer in few dimensions.
    """
    best = partial(best_classes, labels=labels, n_new=n_new)
    return judge(view.whole, scores, best, view.rules)[0]


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


def best_classes(scores: Tensor, labels: IntArray, *, n_new: int) -> IntArray:
    """(N,) the best class of each unlabeled image; a new class keeps one, also in the scores."""
    class_ids = np.where(labels < 0, scores.argmax(dim=1).numpy(), labels)
    n_classes = scores.shape[1]
    keep_one(class_ids, scores, labels < 0, np.arange(n_classes) >= n_classes - n_new)
    return class_ids


def without_lone_classes(
    number: ClassNumber, scores: Tensor, labels: IntArray, *, least: int, rules: Rules = RULES
) -> tuple[ClassNumber, Tensor]:
    """Without new classes that one image alone is left in: it goes where it fits best beside it.

    least: number of classes that stay.
    """
    n_known = int(labels.max(initial=-1)) + 1
    class_ids = np.where(labels < 0, scores.argmax(dim=1).numpy(), labels)
    sizes = np.bincount(class_ids, minlength=scores.shape[1])
    lone = np.flatnonzero((sizes < rules.least) & (np.arange(len(sizes)) >= n_known))
    gone = lone[: max(len(sizes) - least, 0)]
    kept = np.setdiff1d(np.arange(len(sizes)), gone)
    low, high = number.interval
    estimate = len(kept)
    number = replace(number, estimate=estimate, interval=(min(low, estimate), high))
    return number, scores[:, torch.from_numpy(kept)]


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
    n_parts, by = min(n_parts, len(rows)), view.grouped_by
    tree = merges(points, seed=view.seed, n_parts=n_parts, by=by, rules=rules)
    if tree is not None and tree.n_parts >= n_groups:
        found = tree.cut(n_groups)
        if int(found.max()) + 1 == n_groups:
            return found
    return kmeans(points, min(n_groups, len(rows)), n_init=1, seed=view.seed).labels


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
            scores[row, number] = scores[row].max() + 1e-3


def checked(
    view: View,
    rows: Reduced,
    labels: IntArray,
    groups: Sequence[str] | None,
    line: float,
    *,
    n_new: int,
) -> list[tuple[Checked, Checked]]:
    """The same sorting with some classes hidden, several times, on some of the images.

    What came out by the evidence, and by the regression after it.
    """
    seed, by = view.seed, view.grouped_by
    chosen = sample(len(labels), rows.rules.sample, seed)
    some, seen = rows.some(chosen), _without_gaps(labels[chosen])
    names = None if groups is None else [groups[row] for row in chosen.tolist()]
    hiding = folds(seen, rows.rules.whole_folds, seed=seed, groups=names, rules=rows.rules)
    return [
        check(view_of(some, fold.labels, seed=seed, by=by), seen, fold, line, n_new=n_new)
        for fold in hiding
    ]


def _without_gaps(labels: IntArray) -> IntArray:
    """The same labels, numbered anew where a class has none."""
    used = np.unique(labels[labels >= 0])
    return np.where(labels >= 0, np.searchsorted(used, labels), -1).astype(np.int64)


def check(
    view: View, labels: IntArray, fold: Fold, line: float, *, n_new: int
) -> tuple[Checked, Checked]:
    """The same sorting with some classes hidden, by the evidence and by the regression after it."""
    n_hidden = int(labels.max()) + 1 - len(fold.seen)
    guess, score = nearest_known(view, fold.labels)
    first = sort(view, fold.labels, guess, score, line, n_new=n_new + n_hidden)
    second = judged(view, fold.labels, first, n_new=n_new + n_hidden)
    return outcome(first, labels, fold), outcome(second, labels, fold)


def outcome(scores: Tensor, labels: IntArray, fold: Fold) -> Checked:
    """What came out for the hidden images."""
    found, n_seen = scores.argmax(dim=1).numpy(), len(fold.seen)
    known, new = fold.hidden_known, fold.hidden_new
    right_known = found[known] == np.searchsorted(fold.seen, labels[known])
    rows = np.concatenate([known, new])
    return Checked(
        rows=rows,
        right=np.concatenate([right_known, grouped_right(found[new] - n_seen, labels[new])]),
        is_known=np.arange(len(rows)) < len(known),
        called_known=found[rows] < n_seen,
        hidden=np.unique(labels[new]),
    )


def grouped_right(groups: IntArray, classes: IntArray) -> BoolArray:
    """(n,) rows in the new class that stands for theirs, one to one; a negative group is wrong."""
    _, true = np.unique(classes, return_inverse=True)
    inside = groups >= 0
    if not inside.any():
        return np.zeros(len(groups), dtype=bool)
    n_groups, n_true = int(groups.max()) + 1, int(true.max()) + 1
    gains = contingency(groups[inside], true[inside], n_clusters=n_groups, n_classes=n_true)
    return np.asarray(inside & (pair_up(gains)[np.maximum(groups, 0)] == true))


def _answer(
    features: Tensor,
    labels: IntArray,
    class_ids: IntArray,
    probabilities: Tensor,
    number: ClassNumber,
    measured: Expected | None,
    rules: Rules = RULES,
) -> Classes:
    """New classes by size, labeled images certain, and centroids for images to come."""
    n_known, n_classes = int(labels.max(initial=-1)) + 1, probabilities.shape[1]
    sizes = np.bincount(class_ids, minlength=n_classes)
    novel = n_known + np.argsort(-sizes[n_known:], kind="stable")
    order = np.concatenate([np.arange(n_known), novel])
    class_ids = np.argsort(order)[class_ids]
    probabilities = probabilities[:, torch.from_numpy(order)]
    labeled = np.flatnonzero(labels >= 0)
    probabilities[torch.from_numpy(labeled)] = 0.0
    probabilities[torch.from_numpy(labeled), torch.from_numpy(labels[labeled])] = 1.0
    weights = np.where(labels < 0, rules.unlabeled_weight, 1.0)
    centroids = class_means(features, class_ids, weights, n_classes)
    free = torch.from_numpy(labels < 0)
    sure = float(probabilities[free].amax(dim=1).mean()) if free.any() else 1.0
    temperature = matching_temperature(features[free] @ centroids.T, sure)
    return Classes(number, class_ids, probabilities.numpy(), centroids, temperature, measured)


def class_means(
    features: Tensor, class_ids: IntArray, weights: FloatArray, n_classes: int
) -> Tensor:
    """(C, D) unit means of the weighted images of each class; zero where there are none."""
    sums = torch.zeros(n_classes, features.shape[1])
    rows = features * torch.from_numpy(weights).float()[:, None]
    return unit(sums.index_add_(0, torch.from_numpy(class_ids), rows))
