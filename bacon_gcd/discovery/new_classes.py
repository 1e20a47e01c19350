"""New classes in a finished run: those that labels name, and those that unlabeled images open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.opening import opened_classes
from bacon_gcd.discovery.run_classes import Classes

IntArray = npt.NDArray[np.int64]


def with_labeled(classes: Classes, features: Tensor, names: Sequence[str]) -> Classes:
    """With a known class for each name that is new."""
    fresh = sorted({name for name in names if name} - {each.name for each in classes.found})
    members = [features[torch.tensor([name == each for each in names])] for name in fresh]
    return classes.with_known(fresh, members)


def with_opened(
    classes: Classes,
    features: Tensor,
    names: Sequence[str],
    contents: Sequence[str],
    *,
    seed: int,
) -> tuple[Classes, IntArray]:
    """With a novel class for each group of unlabeled images that opens one.

    Returns the classes, and (n,) the class that each image helped to open, -1 = none.

    Args:
        features: (n, D) unit rows of the new images, with the classes their labels name.
        contents: (n,) equal for copies of one image.
    """
    rows = np.flatnonzero([not name for name in names])
    free = features[torch.from_numpy(rows)]
    groups = opened_classes(
        classes.sorter,
        free,
        [contents[row] for row in rows.tolist()],
        n_known=len(classes.known),
        threshold=classes.threshold,
        seed=seed,
    )
    home = np.full(len(names), -1, dtype=np.int64)
    for number, group in enumerate(groups, len(classes.found)):
        home[rows[group]] = number
    return classes.with_new([free[torch.from_numpy(group)] for group in groups]), home
