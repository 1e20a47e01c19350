"""Classes told apart by ridge regression, every image judged by all the others.

To regress class membership on features and to take the classes that this predicts, in turn, is
discriminative clustering (Bach and Harchaoui 2007). An image that helped to draw a line is found on
its own side of it; so the prediction for an image is that of the regression without it, which has a
closed form (Allen 1974).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules, share_by_number

IntArray = npt.NDArray[np.int64]
CHUNK = 65_536
LARGEST_LEVERAGE = 0.999  # of a row that alone decides what is predicted for it


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge regression on N rows with an intercept; the classes may change."""

    rows: Tensor
    """(N, D)"""
    mean: Tensor
    """(D,) of the rows."""
    inverse: Tensor
    """(D, D) of the squares and products around the mean, and the penalty."""
    leverage: Tensor
    """(N,) how much the prediction for a row follows its own class, 0 to 1."""

    def scores(self, class_ids: IntArray, n_classes: int) -> Tensor:
        """(N, C) membership of each class as all other rows predict it; each row adds up to 1.

        class_ids: (N,) the class of each row.
        """
        sizes, sums = class_sums(self.rows, class_ids, n_classes)
        slopes = (sums - sizes[:, None] * self.mean) @ self.inverse
        start = sizes / sizes.sum() - slopes @ self.mean
        found = torch.addmm(start, self.rows, slopes.T)
        found[torch.arange(len(found)), torch.from_numpy(class_ids)] -= self.leverage
        return found.div_((1 - self.leverage)[:, None])

    def mean_scores(self, answers: Sequence[IntArray], n_classes: int, weight: float) -> Tensor:
        """(N, C) `scores` of several answers, which are those of their mean: they are linear in it.

        answers: (N,) classes each; the first counts `weight`, the others 1.
        """
        total = self.scores(answers[0], n_classes)
        if len(answers) == 1:
            return total
        total *= weight
        for each in answers[1:]:
            total += self.scores(each, n_classes)
        return total.div_(weight + len(answers) - 1)


def judge(
    rows: Tensor,
    scores: Tensor,
    best: Callable[[Tensor], IntArray],
    rules: Rules = RULES,
    *,
    others: Callable[[IntArray], Sequence[IntArray]] = lambda class_ids: (),
    weight: float = 1.0,
) -> tuple[Tensor, IntArray]:
    """(N, C) what a regression on all other rows says of each, and (N,) the classes that gives.

    Predictions are divided by a power of the class sizes, see `less_by_size`.

    Args:
        rows: (N, D)
        scores: (N, C) that give the classes to begin with, and in few dimensions the answer.
        best: (N, C) scores to (N,) classes.
        others: these (N,) classes to other answers, which the regression begins with, too.
        weight: of these classes, where each other answer counts 1.
    """
    class_ids, n_classes = best(scores), scores.shape[1]
    if n_rounds := rounds_for(rows.shape[1], n_classes, rules):
        fitted, beside = fit_ridge(rows, class_ids, rules), others(class_ids)
        for _ in range(n_rounds):
            predicted = fitted.mean_scores([class_ids, *beside], n_classes, weight)
            scores = less_by_size(predicted, class_ids, rules)
            class_ids, beside = best(scores), ()
    return scores, class_ids


def less_by_size(scores: Tensor, class_ids: IntArray, rules: Rules = RULES) -> Tensor:
    """(N, C) scores over a power of the size of each class, 1 for one of mean size. Ours.

    A regression predicts small classes low, also for their own images, so that large ones take
    these, and take more the more often images are sorted. The power grows with the number of
    classes: among few, a class that is found to be large mostly is.

    class_ids: (N,) the classes that the regression was given.
    """
    n_classes = scores.shape[1]
    sizes = np.bincount(class_ids, minlength=n_classes).clip(min=1)
    power = rules.size_power * share_by_number(n_classes, rules.many_classes)
    return scores / torch.from_numpy((sizes / sizes.mean()) ** power).float()


def rounds_for(n_dims: int, n_classes: int, rules: Rules = RULES) -> int:
    """How many times images are sorted by a regression: not at all in too few dimensions.

    There a class that lies between others is predicted nowhere.
    """
    return rules.judged if n_dims >= rules.dims_per_class * n_classes else 0


def fit_ridge(rows: Tensor, class_ids: IntArray, rules: Rules = RULES) -> Ridge:
    """The regression on (N, D) rows.

    The penalty is as large as the mean over the axes of the squares around the class means, times
    `rules.penalty`: axes along which rows vary less than within a class on average hardly count.

    class_ids: (N,) a class for each row to begin with.
    """
    mean = rows.mean(dim=0)
    products = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for away in _centered(rows, mean):
        products += away.T @ away
    sizes, sums = class_sums(rows, class_ids, int(class_ids.max()) + 1)
    between = ((sums - sizes[:, None] * mean).square().sum(dim=1) / sizes.clamp_min(1)).sum()
    within = max(float(products.diagonal().sum() - between), 0.0) / len(mean)
    penalty = rules.penalty * within + 1e-6
    system = products + penalty * torch.eye(len(mean), dtype=torch.float64)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(system)).float()
    own = [((away @ inverse) * away).sum(dim=1) for away in _centered(rows, mean)]
    leverage = (torch.cat(own) + 1 / len(rows)).clamp_max(LARGEST_LEVERAGE)
    return Ridge(rows, mean, inverse, leverage)


def class_sums(rows: Tensor, class_ids: IntArray, n_classes: int) -> tuple[Tensor, Tensor]:
    """(C,) number and (C, D) sums of the rows of each class."""
    index = torch.from_numpy(class_ids)
    sizes = torch.bincount(index, minlength=n_classes).float()
    return sizes, torch.zeros(n_classes, rows.shape[1]).index_add_(0, index, rows)


def _centered(rows: Tensor, mean: Tensor) -> Iterator[Tensor]:
    """The rows without their mean, some at a time: a copy of all would need much memory."""
    return (rows[start : start + CHUNK] - mean for start in range(0, len(rows), CHUNK))
