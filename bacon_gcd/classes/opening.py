"""Classes that new images open: several that belong together and to no class that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.sorter import Sorter
from bacon_gcd.classes.space import ClassSpace, sample

IntArray = npt.NDArray[np.int64]

MOST_COMPARED = 3000  # images of which all pairs are compared; a sample of more
CLEARLY_ONE = 3.0  # mean log-odds of its pairs from which a group is of one class: 20 to 1


def opened_classes(
    sorter: Sorter, features: Tensor, contents: Sequence[str], *, seed: int
) -> list[IntArray]:
    """Rows of each class that (n, D) unlabeled images open, the largest first. Ours.

    A group opens a class when it has enough different images and the evidence that it is a class
    of its own is greater than that of any class that is there. That its images are unlike all those
    of the run counts as evidence, too.

    contents: (n,) equal for copies of one image.
    """
    chosen = sample(len(features), MOST_COMPARED, seed)
    rows = features[torch.from_numpy(chosen)]
    space, unlike = sorter.rows(rows), sorter.unlike(rows).double().numpy()
    groups = [
        chosen[group]
        for group in alike(space)
        if len({contents[row] for row in chosen[group].tolist()}) >= RULES.opening_images
        and float(joint_evidence(space, group, sorter.counts, sorter.sums).max())
        < unlike[group].sum()
    ]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def alike(space: ClassSpace) -> list[IntArray]:
    """Groups of rows whose pairs are clearly of one class on average, by average linkage."""
    if len(space.rows) < 2:
        return []
    pairs = space.evidence(torch.ones(len(space.rows)), space.rows)
    apart = -(pairs + pairs.T).double().numpy() / 2
    least = float(apart.min())  # linkage takes distances, which are not negative
    merges = linkage(apart[np.triu_indices(len(apart), 1)] - least, "average")
    group_of = fcluster(merges, max(-CLEARLY_ONE - least, 0.0), criterion="distance")
    return [np.flatnonzero(group_of == group) for group in np.unique(group_of)]


def joint_evidence(space: ClassSpace, rows: IntArray, counts: Tensor, sums: Tensor) -> Tensor:
    """(C,) log p(these rows | all in a class with these members) - log p(them | a new class). PLDA.

    Args:
        counts: (C,) members of each class.
        sums: (C, d) sums of their rows.
    """
    group = space.rows[torch.from_numpy(rows)].double()
    b, f = space.between.double(), group.sum(dim=0)
    n, m = len(group), counts.double()[:, None]
    inside = _log_marginal(m + n, sums.double() + f, b) - _log_marginal(m, sums.double(), b)
    return inside - _log_marginal(torch.full((1, 1), float(n)).double(), f[None], b)


def _log_marginal(counts: Tensor, sums: Tensor, between: Tensor) -> Tensor:
    """(C,) log p(n rows of sum f | one class) without the part that is the same in any class."""
    spread = 1 + counts * between
    return (sums.square() * between / spread - spread.log()).sum(dim=1) / 2
