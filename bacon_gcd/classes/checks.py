"""The same sorting with some known classes hidden: what becomes of the hidden images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bacon_gcd.classes.membership import View, judged, nearest_known, sort, view_of
from bacon_gcd.classes.novelty import Fold, folds
from bacon_gcd.classes.question import without_gaps
from bacon_gcd.classes.reliability import Checked
from bacon_gcd.classes.space import Reduced, sample
from bacon_gcd.cluster import contingency, pair_up

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
    seed, by, rules = view.seed, view.grouped_by, view.rules
    chosen = sample(len(labels), rules.sample, seed)
    some, (seen, _) = replace(rows.some(chosen), rules=rules), without_gaps(labels[chosen])
    names = None if groups is None else [groups[row] for row in chosen.tolist()]
    hiding = folds(seen, rules.whole_folds, seed=seed, groups=names, rules=rules)
    return [
        check(view_of(some, fold.labels, seed=seed, by=by), seen, fold, line, n_new=n_new)
        for fold in hiding
    ]


def check(
    view: View, labels: IntArray, fold: Fold, line: float, *, n_new: int
) -> tuple[Checked, Checked]:
    """The same sorting with some classes hidden, by the evidence and by the regression after it."""
    n_hidden = int(labels.max()) + 1 - len(fold.seen)
    guess, score = nearest_known(view, fold.labels)
    first = sort(view, fold.labels, guess, score, line, n_new=n_new + n_hidden)
    second = judged(view, fold.labels, first, n_new=n_new + n_hidden)
    by_evidence, by_regression = (each.argmax(dim=1).numpy() for each in (first, second))
    return outcome(by_evidence, labels, fold), outcome(by_regression, labels, fold)


def outcome(found: IntArray, labels: IntArray, fold: Fold) -> Checked:
    """What came out for the hidden images.

    found: (N,) class of each image, those that the fold leaves known first.
    """
    known, new, n_seen = fold.hidden_known, fold.hidden_new, len(fold.seen)
    right_known = found[known] == np.searchsorted(fold.seen, labels[known])
    rows = np.concatenate([known, new])
    return Checked(
        rows=rows,
        right=np.concatenate([right_known, grouped_right(found[new] - n_seen, labels[new])]),
        is_known=np.arange(len(rows)) < len(known),
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
