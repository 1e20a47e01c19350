"""Where known classes end and new ones begin, learned from known classes that are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from bacon_gcd.classes.neighbors import neighbors_of
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import ClassSpace, Reduced

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Fold:
    """Labels as if some classes were new and some images of the others unlabeled."""

    labels: IntArray
    """(N,) what stays visible: classes 0..K'-1 in the order of `seen`, -1 = unlabeled."""
    seen: IntArray
    """(K',) the classes that stay known."""
    hidden_known: IntArray
    """Rows of seen classes whose label is hidden."""
    hidden_new: IntArray
    """Rows of the hidden classes."""


def folds(
    labels: IntArray,
    n_folds: int,
    *,
    seed: int,
    groups: Sequence[str] | None = None,
    rules: Rules = RULES,
) -> Iterator[Fold]:
    """Hide a third of the classes and a third of the labels of the others, several times.

    groups: (N,) images of one group (a photo series) are hidden together.
    """
    rng = np.random.default_rng((seed, 7))
    n_known = int(labels.max(initial=-1)) + 1
    if n_known < 2:
        return
    n_hidden = max(1, int(n_known * rules.hidden_classes))
    for _ in range(n_folds):
        order = rng.permutation(n_known)
        seen = np.sort(order[n_hidden:])
        rows = [np.flatnonzero(labels == c) for c in seen]
        some = [_some(each, groups, rules.hidden_labels, rng) for each in rows]
        hidden_known = np.sort(np.concatenate(some))
        hidden_new = np.flatnonzero(np.isin(labels, order[:n_hidden]))
        visible = np.where(np.isin(labels, seen), np.searchsorted(seen, labels), -1)
        visible[hidden_known] = -1
        yield Fold(visible.astype(np.int64), seen, hidden_known, hidden_new)


def _some(
    rows: IntArray, groups: Sequence[str] | None, share: float, rng: np.random.Generator
) -> IntArray:
    """About this share of the rows, at least one, in whole groups and never all of them."""
    names = [str(row) if groups is None else groups[row] for row in rows.tolist()]
    units, unit_of = np.unique(names, return_inverse=True)
    order = rng.permutation(len(units))[:-1] if len(units) else np.empty(0, dtype=np.int64)
    before = np.cumsum(np.bincount(unit_of, minlength=len(units))[order])
    n_units = int((before < max(1, int(share * len(rows)))).sum()) + 1
    return rows[np.isin(unit_of, order[:n_units])]


def number_of_neighbors(n_rows: int, rules: Rules = RULES) -> int:
    """How many neighbors an image is averaged with; of few images, fewer."""
    return max(1, min(rules.neighbors, n_rows // rules.rows_per_neighbor))


def averaged(values: Tensor, neighbors: IntArray, *, own: float | None = None) -> Tensor:
    """(N, C) values of each row, averaged with those of its (N, k) neighbors.

    own: weight of the row itself; that of a neighbor unless given.
    """
    result = torch.empty_like(values)
    index = torch.from_numpy(neighbors)
    own = 1 / (index.shape[1] + 1) if own is None else own
    for start in range(0, len(values), CHUNK):
        near = values[index[start : start + CHUNK]].mean(dim=1)
        result[start : start + CHUNK] = own * values[start : start + CHUNK] + (1 - own) * near
    return result


def known_evidence(space: ClassSpace, labels: IntArray, among: Tensor | None = None) -> Tensor:
    """(n, K) evidence that each row belongs to a known class, which its labeled images make."""
    seen = np.flatnonzero(labels >= 0)
    n_known = int(labels.max(initial=-1)) + 1
    index = torch.from_numpy(labels[seen])
    rows = space.rows[torch.from_numpy(seen)]
    sums = torch.zeros(n_known, rows.shape[1]).index_add_(0, index, rows)
    counts = torch.bincount(index, minlength=n_known).float()
    return space.evidence(counts, sums, among)


def any_known(
    space: ClassSpace, evidence: Tensor, rules: Rules = RULES, among: Tensor | None = None
) -> Tensor:
    """(n,) log-odds of one of the K classes, all as likely, against a class nobody has seen. Ours.

    Where unseen classes lie is less certain than PLDA takes it to be: their density counts
    `rules.unseen_share`.

    Args:
        evidence: (n, K) of each class.
        among: (n,) the rows it is of; all of them unless given.
    """
    odds = evidence.logsumexp(dim=1) - float(np.log(evidence.shape[1]))
    return odds - (1 - rules.unseen_share) * space.unusual(among)


def fold_scores(
    rows: Reduced,
    labels: IntArray,
    *,
    n_neighbors: int,
    seed: int,
    groups: Sequence[str] | None = None,
    beside: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Scores of hidden images of known classes, and of hidden classes, over several folds.

    Every fold has its own space and neighbors: those of all labels would know the hidden ones.

    beside: (N,) classes of unlabeled images that are scored, too; -1 = none. See `stand_ins`.
    """
    known, new = [np.empty(0)], [np.empty(0)]
    rng = np.random.default_rng((seed, 13))
    for fold in folds(labels, rows.rules.folds, seed=seed, groups=groups, rules=rows.rules):
        spaces = rows.space(fold.labels), rows.known_space(fold.labels)
        for hidden, found in zip(_hidden(fold, beside), (known, new), strict=True):
            if len(hidden) > rows.rules.most_hidden:
                hidden = np.sort(rng.choice(hidden, rows.rules.most_hidden, replace=False))
            found.append(_scores(*spaces, fold.labels, hidden, n_neighbors, rows.rules))
    return np.concatenate(known), np.concatenate(new)


def _hidden(fold: Fold, beside: IntArray | None) -> tuple[IntArray, IntArray]:
    """Rows of known and of hidden classes that a fold scores."""
    if beside is None:
        return fold.hidden_known, fold.hidden_new
    stays = np.isin(beside, fold.seen)
    of_known, of_new = np.flatnonzero(stays), np.flatnonzero((beside >= 0) & ~stays)
    return np.union1d(fold.hidden_known, of_known), np.union1d(fold.hidden_new, of_new)


def stand_ins(labels: IntArray, neighbors: IntArray) -> IntArray:
    """(N,) class of an unlabeled image by the labeled one it is a neighbor of; -1 = of none. Ours.

    Where no class has a second label to hide, these are hidden in its place. Some of them are of
    another class, and most lie nearer to the label than the class does on average.
    """
    classes = np.full(len(labels), -1, dtype=np.int64)
    labeled = np.flatnonzero(labels >= 0)
    classes[neighbors[labeled]] = labels[labeled, None]
    classes[labeled] = -1
    return classes


def _scores(
    space: ClassSpace,
    known_space: ClassSpace,
    labels: IntArray,
    hidden: IntArray,
    n_neighbors: int,
    rules: Rules,
) -> FloatArray:
    """(n,) averaged scores of some rows, by the labels that are visible."""
    near = neighbors_of(space.directions, hidden, n_neighbors=n_neighbors)
    with_near = torch.from_numpy(np.concatenate([hidden[:, None], near], axis=1))
    among = with_near.reshape(-1)
    score = any_known(known_space, known_evidence(known_space, labels, among), rules, among)
    return np.asarray(score.reshape(with_near.shape).mean(dim=1).double().numpy())


def learned_threshold(
    rows: Reduced,
    labels: IntArray,
    neighbors: IntArray,
    scores: tuple[FloatArray, FloatArray],
    *,
    seed: int,
) -> float:
    """The threshold of these scores; of neighbors where no class has a label to hide. Ours.

    Neighbors of a label lie nearer to it than its class does, so that threshold is rather high: few
    images of new classes are put into known ones.

    scores: of hidden images of known classes, and of hidden classes.
    """
    line, rules = threshold(*scores, rules=rows.rules), rows.rules
    if len(scores[0]) >= rules.min_scores or not len(scores[1]):
        return line
    near = fold_scores(
        rows,
        labels,
        n_neighbors=neighbors.shape[1],
        seed=seed,
        beside=stand_ins(labels, neighbors),
    )
    if min(map(len, near)) < rules.min_scores:
        return line
    return _logistic_threshold(*near, rules)


def threshold(known: FloatArray, new: FloatArray, rules: Rules = RULES) -> float:
    """The score from which an image is known. Ours.

    Where hidden images of known and of hidden classes are told apart best, by a logistic curve in
    which both kinds weigh the same and zero, PLDA's own answer, is expected beforehand.
    """
    if min(len(known), len(new)) >= rules.min_scores:
        return _logistic_threshold(known, new, rules)
    if len(new):  # no class has a label to spare: half-way to what hidden classes reach
        return float(np.quantile(new, rules.lone_quantile)) / 2
    return 0.0


def _logistic_threshold(known: FloatArray, new: FloatArray, rules: Rules) -> float:
    weights = [min(len(scores), rules.most_weight) for scores in (known, new)]

    def loss(parameters: FloatArray) -> float:
        slope, middle = np.exp(parameters[0]), parameters[1]
        missed = weights[0] * np.logaddexp(0, -slope * (known - middle)).mean()
        taken = weights[1] * np.logaddexp(0, slope * (new - middle)).mean()
        prior = (parameters[0] - np.log(rules.usual_slope)) ** 2 + 0.05 * middle**2
        return float(missed + taken + rules.prior_strength * prior)

    found = minimize(loss, np.array([np.log(rules.usual_slope), 0.0]), method="Nelder-Mead")
    return float(found.x[1])
