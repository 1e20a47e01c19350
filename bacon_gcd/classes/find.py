"""Classes from features and labels: how many, where, every image sorted, and how sure that is.

1. A space in which classes are alike (`space`).
2. The evidence that an image is of a known class, averaged with that of its neighbors; the
   threshold is learned from known classes that are hidden (`novelty`).
3. New images are merged into as many classes as known classes suggest (`count`); groups that are
   fragments of known classes are none (`fragments`).
4. All images are sorted anew by the classes they made (`membership`), then by ridge regression
   (`ridge`); where labels are few that begins with clusterings of all images, too (`clusterings`).
5. The same with a third of the known classes hidden (`checks`) and on halves of the features
   (`halves`) says how sure an answer is (`reliability`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.calibration import calibrated, matching_temperature, with_known_evidence
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
from bacon_gcd.classes.halves import agreement_of_halves
from bacon_gcd.classes.membership import (
    View,
    best_of,
    class_means,
    judged,
    nearest_known,
    sort,
    view_of,
    with_lost_classes,
)
from bacon_gcd.classes.novelty import fold_scores, learned_threshold
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.reliability import (
    Checked,
    Expected,
    Signs,
    agreement_of_neighbors,
    expected,
    regression_serves,
    usual_accuracy,
    with_precision,
)
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import Reduced, reduced
from bacon_gcd.system.threads import threads_for

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
class First:
    """The answer by the evidence, before any image is judged by a regression."""

    rows: Reduced
    view: View
    line: float
    """The evidence of a known class from which on an image is known."""
    score: FloatArray
    """(N,) this evidence."""
    number: ClassNumber
    scores: Tensor
    """(N, C)"""


@dataclass(frozen=True, eq=False)
class Checks:
    """The classes of all images, and what tells how many of them are right."""

    first: First
    number: ClassNumber
    scores: Tensor
    """(N, C)"""
    class_ids: IntArray
    """(N,)"""
    hidden: Sequence[Checked]
    """Labeled images that were hidden, sorted in the same way."""
    signs: Signs

    def known_share(self, question: Question) -> float:
        """Of the unlabeled images, those in known classes."""
        found = self.class_ids[question.unlabeled]
        return float((found < question.n_known).mean()) if len(found) else 1.0


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
    question = Question(features, labels, seed, allowed, groups, rules)
    with threads_for(len(labels)):
        found = checked_answer(question)
        measured, probabilities = _how_sure(question, found)
        return _answer(question, found, probabilities, measured)


def checked_answer(question: Question) -> Checks:
    """The classes of all images, and what hidden images and halves of the features say of them."""
    first, groups = by_evidence(question), question.groups
    n_new = first.number.estimate - question.n_known
    checks = checked(first.view, first.rows, question.labels, groups, first.line, n_new=n_new)
    judge = regression_serves([(evidence.right, judged.right) for evidence, judged in checks])
    number, scores = finished(question, first, judge=judge)
    class_ids = best_of(question.labels, scores)
    halves = agreement_of_halves(question, class_ids, partial(answered, judge=judge))
    near = agreement_of_neighbors(class_ids, first.view.neighbors, question.unlabeled)
    hidden = [pair[int(judge)] for pair in checks]
    return Checks(first, number, scores, class_ids, hidden, Signs(halves, near))


def told_accuracy(question: Question) -> float:
    """The share of unlabeled images that is expected to be right, 0 to 1."""
    with threads_for(len(question.labels)):
        return _told(question, checked_answer(question))[1]


def answered(question: Question, *, judge: bool) -> IntArray:
    """(N,) classes, without asking how sure they are."""
    _, scores = finished(question, by_evidence(question), judge=judge)
    return best_of(question.labels, scores)


def by_evidence(question: Question) -> First:
    """Steps 1 to 3, and every image in the class that has the greatest evidence."""
    labels, seed, rules = question.labels, question.seed, question.rules
    rows = reduced(question.features, labels, seed=seed, rules=rules)
    view = view_of(rows, labels, seed=seed)
    guess, score = nearest_known(view, labels)
    n_neighbors = view.neighbors.shape[1]
    known, new = fold_scores(
        rows, labels, n_neighbors=n_neighbors, seed=seed, groups=question.groups
    )
    line = learned_threshold(rows, labels, view.neighbors, (known, new), seed=seed)
    sizes = known_sizes(labels, guess, score >= line)
    view = replace(
        view, grouped_by=linkage_for(sizes, rules), rules=rules_for(sizes, len(labels), rules)
    )
    number = count_classes(view, labels, score < line, allowed=question.allowed)
    if number.beside and len(known):  # it was counted, and known classes show what a fragment is
        number, score = without_fragments(view, labels, score, line, known, new, number)
    scores = sort(view, labels, guess, score, line, n_new=number.estimate - question.n_known)
    return First(rows, view, line, score, number, scores)


def finished(question: Question, first: First, *, judge: bool) -> tuple[ClassNumber, Tensor]:
    """The number of classes and (N, C) scores at the end.

    judge: every image is judged by a regression on the others.
    """
    labels, number, scores = question.labels, first.number, first.scores
    if judge:
        n_new = number.estimate - question.n_known
        scores = judged(first.view, labels, scores, n_new=n_new)
    if number.beside:
        least = max(question.n_known, 1, question.allowed[0] if question.allowed else 0)
        return without_lone_classes(number, scores, labels, least=least, rules=question.rules)
    return number, with_lost_classes(scores, first.scores, labels)


def known_sizes(labels: IntArray, guess: IntArray, above: BoolArray) -> IntArray:
    """(K,) images of each known class that has a label, as far as the evidence says.

    Args:
        guess: (N,) known class that each image would be in.
        above: (N,) images whose evidence of a known class is above the threshold.
    """
    sizes = np.bincount(guess[above | (labels >= 0)])
    found: IntArray = sizes[np.unique(labels[labels >= 0])]
    return found


def linkage_for(sizes: IntArray, rules: Rules = RULES) -> Linkage:
    """How new images are grouped: new classes are taken to be as uneven as the known ones. Ours.

    Ward's criterion prefers groups of one size, and is better where classes have one; average
    linkage finds small classes beside large ones.

    sizes: (K,) images of each known class.
    """
    return "average" if len(sizes) > 1 and np.log(sizes).std(ddof=1) >= rules.uneven else "ward"


def rules_for(sizes: IntArray, n_images: int, rules: Rules = RULES) -> Rules:
    """The rules for new classes that are as large as the known ones.

    That is, as large as the class of an image is on average: beside many small classes, few large
    ones would else be cut into parts that are too small for them. Few known classes are a poor
    measure: `size_classes` of usual size are added to them. Without any there are taken to be
    `usual_classes`.

    Args:
        sizes: (K,) images of each known class.
        n_images: N, of all classes.
    """
    if not len(sizes):
        return rules.for_class_size(n_images / rules.usual_classes)
    share = float((sizes**2).sum() / sizes.sum()) / rules.usual_images
    sure = len(sizes) / (len(sizes) + rules.size_classes)
    return rules.for_class_size(rules.usual_images * share**sure)


def count_classes(
    view: View, labels: IntArray, below: BoolArray, *, allowed: Range | None
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
        view.space, view.points, new, n_known=n_known, seed=view.seed, rules=view.rules
    )
    lone = int((labels >= 0).sum()) == len(np.unique(labels[labels >= 0]))
    n_new = crowded(
        n_new, new, n_known=n_known, n_unlabeled=n_unlabeled, lone=lone, rules=view.rules
    )
    return number_of(n_known, n_new, ways, limits, view.rules)


def _how_sure(question: Question, found: Checks) -> tuple[Expected | None, Tensor]:
    """What hidden images say of the answer, and (N, C) probabilities that are as sure as that.

    Where too little could be hidden, they are as sure as such answers usually are.
    """
    first, unlabeled, rules = found.first, question.unlabeled, question.rules
    measured, sure = _told(question, found)
    free, above = torch.from_numpy(unlabeled), first.score - first.line
    scores = with_known_evidence(found.scores, above, unlabeled, question.n_known, rules)
    softmax = (scores / matching_temperature(scores[free], sure)).softmax(dim=1)
    probabilities = calibrated(softmax, free, sure, rules)
    if measured is not None:
        confidence = probabilities[free].amax(dim=1).numpy()
        in_known = found.class_ids[unlabeled] < question.n_known
        measured = with_precision(measured, confidence, in_known)
    return measured, probabilities


def _told(question: Question, found: Checks) -> tuple[Expected | None, float]:
    """What hidden images say of the answer, and its accuracy; the usual one where they say none."""
    share, rules = found.known_share(question), question.rules
    measured = expected(found.hidden, known_share=share, signs=found.signs, rules=rules)
    return measured, measured.accuracy if measured else usual_accuracy(found.signs, rules)


def _answer(
    question: Question, found: Checks, probabilities: Tensor, measured: Expected | None
) -> Classes:
    """New classes by size, labeled images certain, and centroids for images to come."""
    features, labels, n_known = question.features, question.labels, question.n_known
    class_ids, n_classes = found.class_ids, probabilities.shape[1]
    sizes = np.bincount(class_ids, minlength=n_classes)
    novel = n_known + np.argsort(-sizes[n_known:], kind="stable")
    order = np.concatenate([np.arange(n_known), novel])
    class_ids = np.argsort(order)[class_ids]
    probabilities = probabilities[:, torch.from_numpy(order)]
    labeled = np.flatnonzero(labels >= 0)
    probabilities[torch.from_numpy(labeled)] = 0.0
    probabilities[torch.from_numpy(labeled), torch.from_numpy(labels[labeled])] = 1.0
    weights = np.where(labels < 0, question.rules.unlabeled_weight, 1.0)
    centroids = class_means(features, class_ids, weights, n_classes)
    free = torch.from_numpy(labels < 0)
    sure = float(probabilities[free].amax(dim=1).mean()) if free.any() else 1.0
    temperature = matching_temperature(features[free] @ centroids.T, sure)
    return Classes(found.number, class_ids, probabilities.numpy(), centroids, temperature, measured)
