"""New groups that are no class: fragments of known classes, and images that are alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.count import ClassNumber, measured_share
from bacon_gcd.classes.membership import View, group, new_rows
from bacon_gcd.classes.rules import RULES, Rules

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


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
