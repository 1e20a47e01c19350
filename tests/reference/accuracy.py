"""Accuracy and frequency groups, written as slowly as they are defined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def best_hits(predicted: Sequence[int], true: Sequence[int], n_classes: int) -> int:
    """Most rows that any one-to-one naming of clusters by classes gets right: try them all."""
    ids = sorted(set(predicted))
    names: list[int | None] = [*range(n_classes), *[None] * max(len(ids) - n_classes, 0)]
    best = 0
    for naming in itertools.permutations(names, len(ids)):
        name = dict(zip(ids, naming, strict=True))
        best = max(best, sum(name[p] == t for p, t in zip(predicted, true, strict=True)))
    return best


def released_groups(counts: Sequence[int], n_known: int) -> list[list[list[int]]]:
    """[known, novel] x [many, median, few] classes, by the thresholds of the released code."""
    result = []
    for classes in (range(n_known), range(n_known, len(counts))):
        ranked = sorted((counts[c] for c in classes), reverse=True)
        first, second = int(len(ranked) / 3), int(2 * len(ranked) / 3)
        if n_known == 5:
            first, second = 1, 2
        many = [c for c in classes if counts[c] > ranked[first]]
        few = [c for c in classes if counts[c] < ranked[second]]
        median = [c for c in classes if c not in many and c not in few]
        result.append([many, median, few])
    return result


def long_tail_profile(n_max: int, ranks: Sequence[int], ratio: float) -> list[int]:
    """Images of each class: floor(n_max ratio^(-i/(C-1))) for the class at rank i."""
    counts = [0] * len(ranks)
    for i, c in enumerate(ranks):
        counts[c] = math.floor(n_max * ratio ** (-i / (len(ranks) - 1)) + 1e-9)
    return counts
