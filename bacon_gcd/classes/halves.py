"""The same question asked of two halves of the features: what both answer is more often right.

Two models that see the same images through different features agree about as often as each is right
(Jiang and others 2022). So the answers on halves of the features tell how many images are right
where hidden classes alone would not: in new classes, whose number nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.checks import grouped_right
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import sample
from bacon_gcd.cluster import unit

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def agreement_of_halves(
    question: Question, class_ids: IntArray, answer: Callable[[Question], IntArray]
) -> float | None:
    """Share of unlabeled images that half of the features puts where all of them do. Ours.

    Asked of some of the images; None where the features have too few dimensions.

    Args:
        class_ids: (N,) the answer on all features, known classes first.
        answer: (n,) classes of what is asked.
    """
    n_known, rules = question.n_known, question.rules
    chosen = sample(len(class_ids), rules.halved_images, question.seed)
    asked, names = question.some(chosen)
    few = asked.features.shape[1] < rules.halved_dims
    if few or not rules.halves or not asked.unlabeled.any():
        return None
    shares = []
    for number, half in enumerate(halves(asked.features, seed=asked.seed)[: rules.halves]):
        seed = asked.seed + 1 + number
        found = answer(replace(asked, features=half, seed=seed, rules=quicker(rules)))
        found = with_names(found, names, n_known)
        equal = same(class_ids[chosen], found, n_known)
        shares.append(float(equal[asked.unlabeled].mean()))
    return float(np.mean(shares))


def quicker(rules: Rules) -> Rules:
    """Rules by which a half is asked: its answer is only compared."""
    return replace(rules, folds=max(rules.folds // 2, 1), counting_seeds=1)


def halves(features: Tensor, *, seed: int) -> list[Tensor]:
    """(N, D) unit features in two halves of their dimensions, drawn at random, as unit rows."""
    order = np.random.default_rng((seed, 17)).permutation(features.shape[1])
    middle = len(order) // 2
    parts = (np.sort(order[:middle]), np.sort(order[middle : 2 * middle]))
    return [unit(features[:, torch.from_numpy(part)]) for part in parts]


def with_names(class_ids: IntArray, names: IntArray, n_known: int) -> IntArray:
    """Classes that were numbered by the labels of some images, as all labels number them.

    names: the known classes among these images; later classes are new.
    """
    known = class_ids < len(names)
    named = np.append(names, -1)[np.where(known, class_ids, len(names))]
    return np.asarray(np.where(known, named, class_ids - len(names) + n_known), dtype=np.int64)


def same(first: IntArray, second: IntArray, n_known: int) -> BoolArray:
    """(n,) rows in one class by both answers: known ones by name, new ones matched one to one."""
    equal = (first == second) & (first < n_known)
    both = (first >= n_known) & (second >= n_known)
    if both.any():
        equal[both] = grouped_right(first[both] - n_known, second[both])
    return np.asarray(equal)
