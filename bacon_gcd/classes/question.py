"""What is asked of the engine: some images, some of them labeled, and how many classes may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Question:
    """N images to be sorted into known and new classes."""

    features: Tensor
    """(N, D) unit rows."""
    labels: IntArray
    """(N,) known class, -1 = unlabeled."""
    seed: int
    allowed: tuple[int, int] | None = None
    """Smallest and largest number of classes; as many as there seem to be unless given."""
    groups: Sequence[str] | None = None
    """(N,) images of one group (a photo series) are hidden together."""
    rules: Rules = RULES

    @property
    def n_known(self) -> int:
        """Known classes, whose ids come first."""
        return int(self.labels.max(initial=-1)) + 1

    @property
    def unlabeled(self) -> npt.NDArray[np.bool_]:
        """(N,)"""
        return np.asarray(self.labels < 0)

    def some(self, chosen: IntArray) -> tuple[Question, IntArray]:
        """The same of some rows, and the known classes that have a label there, in their order."""
        seen, names = without_gaps(self.labels[chosen])
        groups = None if self.groups is None else [self.groups[row] for row in chosen.tolist()]
        features = self.features[torch.from_numpy(chosen)]
        return replace(self, features=features, labels=seen, groups=groups), names


def without_gaps(labels: IntArray) -> tuple[IntArray, IntArray]:
    """The same labels, numbered anew where a class has none, and the classes that have one."""
    names = np.unique(labels[labels >= 0])
    return np.where(labels >= 0, np.searchsorted(names, labels), -1).astype(np.int64), names
