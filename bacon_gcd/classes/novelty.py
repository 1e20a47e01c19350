"""How far images look like known classes, and how far those of hidden classes do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.label_rate import (
    LabelRates,
    fit_label_rates,
    labels_around,
    number_around,
)
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

    (n, 2): what the features say, and what the labels around an image say.

    Every fold has its own space and neighbors: those of all labels would know the hidden ones.

    beside: (N,) classes of unlabeled images that are scored, too; -1 = none. See `stand_ins`.
    """
    known, new = [np.empty((0, 2))], [np.empty((0, 2))]
    rng, n_around = np.random.default_rng((seed, 13)), number_around(labels, rows.rules)
    for fold in folds(labels, rows.rules.folds, seed=seed, groups=groups, rules=rows.rules):
        scorer = _scorer(rows, fold.labels, n_neighbors, n_around, rng)
        for hidden, found in zip(_hidden(fold, beside), (known, new), strict=True):
            found.append(scorer(_some_of(hidden, rows.rules.most_hidden, rng)))
    return np.concatenate(known), np.concatenate(new)


def _some_of(rows: IntArray, most: int, rng: np.random.Generator) -> IntArray:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


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


@dataclass(frozen=True, eq=False)
class Scorer:
    """What gives the scores of single rows, by the labels that are visible."""

    space: ClassSpace
    known_space: ClassSpace
    labels: IntArray
    n_neighbors: int
    rates: LabelRates
    rules: Rules

    def __call__(self, hidden: IntArray) -> FloatArray:
        """(n, 2) of some rows, averaged over their neighbors; see `fold_scores`."""
        n_around = self.rates.n_around
        near = neighbors_of(
            self.space.directions, hidden, n_neighbors=max(self.n_neighbors, n_around)
        )
        rows = np.concatenate([hidden[:, None], near[:, : self.n_neighbors]], axis=1)
        among = torch.from_numpy(rows.reshape(-1))
        evidence = known_evidence(self.known_space, self.labels, among)
        score = any_known(self.known_space, evidence, self.rules, among).reshape(rows.shape)
        best = evidence.reshape(*rows.shape, evidence.shape[1]).mean(dim=1).argmax(dim=1)
        around = labels_around(self.labels, near[:, :n_around])
        by_labels = self.rates.evidence(around, best.numpy(), self.rules)
        return np.stack([score.mean(dim=1).double().numpy(), by_labels], axis=1)


def _scorer(
    rows: Reduced, labels: IntArray, n_neighbors: int, n_around: int, rng: np.random.Generator
) -> Scorer:
    """Of a fold: its space, and the label rates of its known classes, by some of the labels."""
    space, rules, n_known = rows.space(labels), rows.rules, int(labels.max(initial=-1)) + 1
    seen = _some_of(np.flatnonzero(labels >= 0), rules.most_hidden, rng)
    near = neighbors_of(space.directions, seen, n_neighbors=n_around)
    rates = fit_label_rates(
        labels_around(labels, near), labels[seen], n_around, n_known=n_known, rules=rules
    )
    return Scorer(space, rows.known_space(labels), labels, n_neighbors, rates, rules)
