"""A second description of images beside the features of a network: how much it should count.

Two descriptions that know nothing of each other agree on which images are alike only as far as both
see the classes, or whatever else images have in common. So how often they agree tells, without any
label, whether the second is worth looking at (after co-training; Blum and Mitchell 1998). How much
it counts beside the first is the weight whose answer is expected to be right most often.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.find import told_accuracy
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import centered
from bacon_gcd.cluster import kmeans, unit

IntArray = npt.NDArray[np.int64]


def weight_of_second(question: Question, second: Tensor) -> float:
    """How much the second counts where the features asked about count 1; 0: it is left out. Ours.

    Nothing where the two hardly agree. Else images are sorted with several weights, and that one
    is taken whose answer is expected to be right most often (`find.told_accuracy`).

    second: (N, E) unit rows of the same images.
    """
    first, rules, seed = question.features, question.rules, question.seed
    if len(first) < rules.least_agreeing or not question.unlabeled.any():
        return 0.0
    if mutual_agreement(first, second, seed=seed, rules=rules) < rules.least_agreement:
        return 0.0

    def told(weight: float) -> float:
        features = both(first, second, weight) if weight else first
        return told_accuracy(replace(question, features=features))

    accuracies = {weight: told(weight) for weight in rules.beside}
    return max(rules.beside, key=lambda weight: accuracies[weight])


def both(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """(N, D + E) unit rows of both, side by side."""
    return unit(torch.cat([first, factor_of_second(first, second, weight) * second], dim=1))


def factor_of_second(first: Tensor, second: Tensor, weight: float) -> float:
    """What the second is multiplied with to vary `weight` times as much as the first."""
    spread = [float((rows - rows.mean(dim=0)).norm()) for rows in (first, second)]
    return weight * spread[0] / max(spread[1], 1e-12)


def mutual_agreement(first: Tensor, second: Tensor, *, seed: int, rules: Rules = RULES) -> float:
    """0: neither knows what is alike for the other. 1: they agree. Mean of both directions."""
    a, b = centered(first), centered(second)
    there, back = agreement(a, b, seed=seed, rules=rules), agreement(b, a, seed=seed, rules=rules)
    return (there + back) / 2


def agreement(judge: Tensor, judged: Tensor, *, seed: int, rules: Rules = RULES) -> float:
    """How often neighbors in the second lie in one cluster of the first. Ours.

    0 is chance, 1 is as often as neighbors in the first itself.
    """
    clusters = kmeans(judge, max(2, int(np.sqrt(len(judge)))), n_init=1, seed=seed).labels
    chance = float(np.square(np.bincount(clusters) / len(clusters)).sum())
    own, other = (
        float((clusters[nearest(rows, n_neighbors=rules.neighbors)] == clusters[:, None]).mean())
        for rows in (judge, judged)
    )
    return (other - chance) / (own - chance) if own > chance else 0.0
