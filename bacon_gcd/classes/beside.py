"""A second description of images beside the features of a network: how much it should count.

Two descriptions that know nothing of each other agree on which images are alike only as far as both
see the classes, or whatever else images have in common. So how often they agree tells, without any
label, whether the second is worth looking at (after co-training; Blum and Mitchell 1998). How much
it counts beside the first is the weight whose answer is expected to be right most often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.find import told_accuracy
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import centered, sample
from bacon_gcd.cluster import kmeans, unit
from bacon_gcd.system.progress import working
from bacon_gcd.system.threads import threads_for

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Second:
    """How much a second description counts; not at all where `weight` is 0."""

    weight: float
    """How much of what tells images apart, where the first counts 1."""
    factor: float
    """What its unit rows are multiplied with for that."""


def weigh_second(
    question: Question, describe: Callable[[IntArray], Tensor], *, name: str = "the second"
) -> Second:
    """How much a second description counts beside the features that are asked about. Ours.

    Nothing where the two hardly agree. Else images are sorted with several weights, and that one
    is taken whose answer is expected to be right most often (`find.told_accuracy`). Few images
    tell whether they agree, and some more the weight.

    Args:
        describe: (n,) rows to their (n, E) unit rows.
        name: of the second description, for a person.
    """
    rules, seed, n_images = question.rules, question.seed, len(question.labels)
    few = sample(n_images, rules.compared, seed)
    if len(few) < rules.least_compared or not question.unlabeled.any():
        return Second(0.0, 0.0)
    features, beside = question.features[torch.from_numpy(few)], describe(few)
    with threads_for(len(few)):
        agree = mutual_agreement(features, beside, seed=seed, rules=rules)
    if agree < rules.least_agreement:
        return Second(0.0, 0.0)
    some = sample(n_images, rules.weighed, seed)
    asked, _ = question.some(some)
    second = describe(some)
    with working(f"finding out how much {name} should count"):
        weight = best_weight(asked, second)
    return Second(weight, factor_of_second(asked.features, second, weight))


def best_weight(question: Question, second: Tensor) -> float:
    """The weight whose answer is expected to be right most often, the least of equal ones."""

    def told(weight: float) -> float:
        first = question.features
        features = both(first, second, weight) if weight else first
        return told_accuracy(replace(question, features=features))

    weights = question.rules.beside
    accuracies = {weight: told(weight) for weight in weights}
    return max(weights, key=lambda weight: accuracies[weight])


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
