"""Classes from features and labels: how many, where, every image sorted, and how sure that is.

1. A space in which classes are alike (`space`).
2. The evidence that an image is of a known class, averaged with that of its neighbors; the
   threshold is learned from known classes that are hidden (`novelty`).
3. New images are merged into as many classes as known classes suggest (`count`); groups that are
   fragments of known classes are none (`fragments`).
4. All images are sorted anew by the classes they made (`membership`), then by ridge regression
   (`ridge`).
5. The same with a third of the known classes hidden (`checks`) says how sure an answer is
   (`reliability`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.checks import checked
from bacon_gcd.classes.count import (
    ClassNumber,
    Linkage,
    Range,
    count_by_shape,
    count_new,
    crowded,
    number_of,
)
from bacon_gcd.classes.fragments import without_fragments, without_lone_classes
from bacon_gcd.classes.membership import View, class_means, judged, nearest_known, sort, view_of
from bacon_gcd.classes.novelty import fold_scores, learned_threshold
from bacon_gcd.classes.reliability import (
    Checked,
    Expected,
    expected,
    matching_temperature,
    regression_serves,
    usual_accuracy,
)
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import reduced

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
    measured, probabilities = _how_sure(
        view, labels, class_ids, scores, [used for used, _ in checks]
    )
    return _answer(features, labels, class_ids, probabilities, number, measured, rules)


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
    n_new = crowded(n_new, new, n_known=n_known, n_unlabeled=n_unlabeled, rules=view.rules)
    return number_of(n_known, n_new, ways, limits, view.rules)


def _how_sure(
    view: View, labels: IntArray, class_ids: IntArray, scores: Tensor, checks: Sequence[Checked]
) -> tuple[Expected | None, Tensor]:
    """What hidden images say of the answer, and (N, C) probabilities that are as sure as that.

    Where too little could be hidden, they are as sure as answers with such neighbors usually are.
    """
    n_known, unlabeled = int(labels.max(initial=-1)) + 1, labels < 0
    share = float((class_ids[unlabeled] < n_known).mean()) if unlabeled.any() else 1.0
    measured = expected(checks, known_share=share, rules=view.rules)
    if measured:
        sure = measured.accuracy
    else:
        sure = usual_accuracy(class_ids, view.neighbors, unlabeled, view.rules)
    temperature = matching_temperature(scores[torch.from_numpy(unlabeled)], sure)
    return measured, (scores / temperature).softmax(dim=1)


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
