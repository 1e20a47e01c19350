"""Where known classes end and new ones begin, learned from known classes that are hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from bacon_gcd.classes.novelty import fold_scores, stand_ins
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import Reduced

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Border:
    """Where known classes end."""

    line: float
    """The score from which on an image is known."""
    weight: float = 0.0
    """Of what the labels around an image say, where its features count 1."""

    def score(self, columns: FloatArray) -> FloatArray:
        """(n,) of (n, 2) what the features say, and what the labels around an image say."""
        return np.asarray(columns[:, 0] + self.weight * columns[:, 1])


def learned_border(
    rows: Reduced,
    labels: IntArray,
    neighbors: IntArray,
    scores: tuple[FloatArray, FloatArray],
    *,
    seed: int,
) -> Border:
    """The border of these scores; of neighbors where no class has a label to hide. Ours.

    Neighbors of a label lie nearer to it than its class does, so that border is rather high: few
    images of new classes are put into known ones.

    scores: of hidden images of known classes, and of hidden classes.
    """
    (known, new), rules = scores, rows.rules
    if min(len(known), len(new)) >= rules.min_scores:
        return fitted_border(known, new, rules)
    if len(known) < rules.min_scores and len(new):
        beside = stand_ins(labels, neighbors)
        near = fold_scores(rows, labels, n_neighbors=neighbors.shape[1], seed=seed, beside=beside)
        if min(map(len, near)) >= rules.min_scores:
            return fitted_border(*near, rules)
    return Border(lone_line(new[:, 0], rules))


def lone_line(new: FloatArray, rules: Rules = RULES) -> float:
    """Where no class has a label to spare: half-way to what hidden classes reach, or PLDA's own."""
    return float(np.quantile(new, rules.lone_quantile)) / 2 if len(new) else 0.0


def fitted_border(known: FloatArray, new: FloatArray, rules: Rules = RULES) -> Border:
    """Where hidden images of known and of hidden classes are told apart best. Ours.

    By a logistic curve in which both kinds weigh the same. Expected beforehand is zero, PLDA's own
    answer, and that labels around an image say nothing.

    known, new: (n, 2) scores of each kind.
    """
    weights = [min(len(scores), rules.most_weight) for scores in (known, new)]

    def loss(parameters: FloatArray) -> float:
        slope, border = np.exp(parameters[0]), _border(parameters, rules)
        missed = np.logaddexp(0, -slope * (border.score(known) - border.line)).mean()
        taken = np.logaddexp(0, slope * (border.score(new) - border.line)).mean()
        prior = (parameters[0] - np.log(rules.usual_slope)) ** 2
        prior += 0.05 * border.line**2 + parameters[2] ** 2
        return float(weights[0] * missed + weights[1] * taken + rules.prior_strength * prior)

    start = np.array([np.log(rules.usual_slope), 0.0, 0.0])
    limits = [(None, None), (None, None), (0.0, None)]
    return _border(minimize(loss, start, method="L-BFGS-B", bounds=limits).x, rules)


def _border(parameters: FloatArray, rules: Rules) -> Border:
    return Border(float(parameters[1]), float(rules.usual_label_weight * parameters[2]))
