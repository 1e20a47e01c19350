"""Does training pay? Both answers are tried with a third of the known classes treated as new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bacon_gcd.classes.checks import outcome
from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.novelty import Fold, folds
from bacon_gcd.classes.reliability import MIN_CHECKED
from bacon_gcd.classes.rules import RULES

IntArray = npt.NDArray[np.int64]
ANSWER_ONLY = replace(RULES, halves=0)  # how sure it is, nobody asks here
MARGIN = 0.02  # ours: by less than that the answers differ by chance, and training costs time


@dataclass(frozen=True)
class Trial:
    """Images whose label was hidden, sorted by frozen and by trained features; shares 0 to 1."""

    n_images: int
    n_classes: int
    """Known classes that were treated as new."""
    frozen: float
    """Right ones, those of known classes and of hidden ones weighing the same."""
    trained: float

    @property
    def pays(self) -> bool:
        """Whether trained features are better by more than chance would make them."""
        return self.trained > self.frozen + MARGIN


def try_training(
    frozen: Tensor,
    labels: IntArray,
    train: Callable[[IntArray, int], Tensor],
    *,
    n_classes: int,
    groups: Sequence[str] | None = None,
    seed: int,
) -> Trial | None:
    """Train without the labels of some classes and compare the answers on them. Ours.

    Args:
        frozen: (N, D) unit features.
        labels: (N,) known class, -1 = unlabeled.
        train: (N,) labels and their number of known classes to (N, D) unit features.
        n_classes: known and new ones; as many are found each time.
        groups: (N,) images of one group (a photo series) are hidden together.
        seed: decides what is hidden.

    Returns:
        None where too few images could be hidden to tell.
    """
    fold = next(folds(labels, 1, seed=seed, groups=groups), None)
    if fold is None or min(len(fold.hidden_known), len(fold.hidden_new)) < MIN_CHECKED:
        return None
    trained = train(fold.labels, len(fold.seen))
    before, after = (
        right_share(features, labels, fold, n_classes=n_classes, seed=seed)
        for features in (frozen, trained)
    )
    n_images = len(fold.hidden_known) + len(fold.hidden_new)
    return Trial(n_images, len(np.unique(labels[fold.hidden_new])), before, after)


def right_share(
    features: Tensor, labels: IntArray, fold: Fold, *, n_classes: int, seed: int
) -> float:
    """Hidden images that are sorted right, of known and of hidden classes in equal parts."""
    allowed = (n_classes, n_classes)
    found = find_classes(features, fold.labels, seed=seed, allowed=allowed, rules=ANSWER_ONLY)
    hidden = outcome(found.class_ids, labels, fold)
    of_known, of_new = hidden.right[hidden.is_known], hidden.right[~hidden.is_known]
    return float(of_known.mean() + of_new.mean()) / 2
