"""Classes that new images open: several that belong together and to no class that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from bacon_gcd.classes.assign import choose_side
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.sorter import Sorter
from bacon_gcd.classes.space import ClassSpace, sample
from bacon_gcd.cluster import as_ids

IntArray = npt.NDArray[np.int64]

MOST_COMPARED = 3000  # images of which all pairs are compared; a sample of more
CLEARLY_ONE = 3.0  # mean log-odds of its pairs from which a group is of one class: 20 to 1


def opened_classes(
    sorter: Sorter,
    features: Tensor,
    contents: Sequence[str],
    *,
    n_known: int = 0,
    threshold: float | None = None,
    seed: int,
) -> list[IntArray]:
    """Rows of each class that (n, D) unlabeled images open, the largest first. Ours.

    Images that are alike belong to a class of their own as far as it explains them better than any
    class that is there. These open it when they are enough different images, the evidence for a
    class of their own is greater than that for any class that is there, and enough of them are
    sorted into it then. That they are unlike all images of the run counts as evidence, too.

    Args:
        contents: (n,) equal for copies of one image.
        n_known: the first classes of the sorter are known.
        threshold: see `choose_side`.
    """
    chosen = sample(len(features), MOST_COMPARED, seed)
    rows, names = features[torch.from_numpy(chosen)], [contents[row] for row in chosen.tolist()]
    groups = several(alike(sorter.rows(rows)), names)
    groups = of_their_own(sorter, rows, explained(sorter, rows, groups, names))
    groups = lasting(sorter, rows, groups, names, n_known=n_known, threshold=threshold)
    return sorted((chosen[group] for group in groups), key=lambda rows: (-len(rows), int(rows[0])))


def explained(
    sorter: Sorter, rows: Tensor, groups: list[IntArray], contents: Sequence[str]
) -> list[IntArray]:
    """Of each group the rows that its own class explains best, while they are enough.

    Each image is asked alone: its neighbors are of the run, and speak for classes of the run.
    """
    while groups:
        best = as_ids(with_groups(sorter, rows, groups).own_evidence(rows).argmax(dim=1))
        kept = several(staying(best - len(sorter.counts), groups), contents)
        if sum(map(len, kept)) == sum(map(len, groups)):
            break
        groups = kept
    return groups


def of_their_own(sorter: Sorter, rows: Tensor, groups: list[IntArray]) -> list[IntArray]:
    """The groups that are likelier a class of their own than members of any that is there."""
    space, unlike = sorter.rows(rows), sorter.unlike(rows).double().numpy()
    most = [joint_evidence(space, group, sorter.counts, sorter.sums).max() for group in groups]
    pairs = zip(groups, most, strict=True)
    return [group for group, evidence in pairs if float(evidence) < unlike[group].sum()]


def lasting(
    sorter: Sorter,
    rows: Tensor,
    groups: list[IntArray],
    contents: Sequence[str],
    *,
    n_known: int,
    threshold: float | None,
) -> list[IntArray]:
    """The groups of which enough rows are sorted into the class that the group opens."""
    while groups:
        shares = with_groups(sorter, rows, groups).probabilities(rows)
        best = choose_side(shares, n_known, threshold) - len(sorter.counts)
        left = [several([rows], contents) for rows in staying(best, groups)]
        kept = [group for group, enough in zip(groups, left, strict=True) if enough]
        if len(kept) == len(groups):
            break
        groups = kept
    return groups


def with_groups(sorter: Sorter, rows: Tensor, groups: Sequence[IntArray]) -> Sorter:
    """The sorter with a class for each group, behind those that are there."""
    members = [rows[torch.from_numpy(group)] for group in groups]
    return sorter.with_classes(members, at=len(sorter.counts), weight=RULES.unlabeled_weight)


def staying(best: IntArray, groups: Sequence[IntArray]) -> list[IntArray]:
    """Of each group the rows whose best class is its own. best: (n,) position of the group."""
    return [group[best[group] == number] for number, group in enumerate(groups)]


def several(groups: Sequence[IntArray], contents: Sequence[str]) -> list[IntArray]:
    """The groups of enough different images to open a class."""
    return [
        group
        for group in groups
        if len({contents[row] for row in group.tolist()}) >= RULES.opening_images
    ]


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
