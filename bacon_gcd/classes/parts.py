"""How many classes no label names: parts that known classes do not claim, merged as theirs merge.

Images are over-clustered into M parts. A part with its share of labels belongs to a known class,
the others are novel. How far apart parts of one class may lie is read off the known classes; novel
parts are merged up to that distance and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from bacon_gcd.cluster import IntArray, contingency, unit

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CLAIM = 0.5  # where known classes are too few to calibrate it
CLAIMS: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FOLDS = 8
MOST_DISTANCES = 60  # at which merging known parts is judged
CLOSE = 0.02  # distances this near to the best score could be right as well
MIN_MEMBERS = 2  # a part of one image is an outlier until someone says it is a class


@dataclass(frozen=True, eq=False)
class Parts:
    """M parts of the images, and the labels in them."""

    sizes: IntArray
    """(M,) rows of each part that are looked at."""
    hits: IntArray
    """(M, K) labeled rows of each known class in each part."""
    centers: FloatArray
    """(M, D) unit rows."""

    def claimed(self, claim: float) -> BoolArray:
        """(M,) parts of known classes. Ours.

        Their share of labeled rows is at least `claim` x the share that a labeled row meets on
        average: impure parts of novel classes hold some labels, too.
        """
        labeled = self.hits.sum(axis=1)
        share = labeled / np.maximum(self.sizes, 1)
        typical = float((share * labeled).sum() / max(labeled.sum(), 1))
        claimed: BoolArray = (labeled > 0) & (share >= claim * typical)
        return claimed

    def only(self, kept: BoolArray) -> Parts:
        """Without the other parts."""
        return Parts(self.sizes[kept], self.hits[kept], self.centers[kept])

    def with_classes(self, seen: IntArray, judges: IntArray) -> Parts:
        """As if only the judges' labeled rows were there, and only the seen classes had labels."""
        return replace(self, sizes=self.hits[:, judges].sum(axis=1), hits=self.hits[:, seen])


@dataclass(frozen=True)
class NovelCount:
    """Novel classes at the distance that suits the known ones best, and at those nearly as good."""

    best: int
    close: tuple[int, ...]


def parts_of(features: Tensor, members: IntArray, labels: IntArray, *, n_known: int) -> Parts:
    """What (N,) part and label of (N, D) features say of each part."""
    n_parts = int(members.max()) + 1
    sums = features.new_zeros(n_parts, features.shape[1])
    sums.index_add_(0, torch.from_numpy(members), features)
    seen = labels >= 0
    return Parts(
        np.bincount(members, minlength=n_parts),
        contingency(members[seen], labels[seen], n_clusters=n_parts, n_classes=n_known),
        unit(sums).double().numpy(),
    )


def novel_counts(parts: Parts, *, seed: int) -> tuple[float, list[float]]:
    """The number of novel classes, and what it might be as well; no candidates without judges.

    Judges are known classes of two labels or more. Half of them are held out as if novel, several
    times, to find the claim.
    """
    if int((parts.hits.sum(axis=0) >= 2).sum()) < 2:
        return 0.0, []
    claim, *others = claims(parts, seed=seed)
    found = [count_novel(parts, each) for each in sorted({claim, *others})]
    candidates = [float(number) for each in found for number in each.close]
    return float(count_novel(parts, claim).best), candidates


def best_claim(parts: Parts, *, seed: int) -> float:
    """The claim under which known classes, held out as if novel, are counted right on average."""
    return claims(parts, seed=seed)[0]


def claims(parts: Parts, *, seed: int) -> list[float]:
    """The best claim on average over the folds, then the best of each fold."""
    judges = np.flatnonzero(parts.hits.sum(axis=0) >= 2)
    if len(judges) < 4:
        return [CLAIM]
    errors = fold_errors(parts, judges, seed=seed)
    best = [int(np.abs(errors.mean(axis=0)).argmin()), *np.abs(errors).argmin(axis=1)]
    return [CLAIMS[each] for each in best]


def novel_groups(parts: Parts, claim: float, n_groups: int) -> IntArray:
    """(M,) group of each unclaimed part, at most `n_groups` of them; -1 = claimed, or too small."""
    group_of = np.full(len(parts.sizes), -1, dtype=np.int64)
    novel = np.flatnonzero(~parts.claimed(claim) & (parts.sizes >= MIN_MEMBERS))
    if n_groups == 0 or not len(novel):
        return group_of
    group_of[novel] = 0
    if len(novel) > 1:
        found = fcluster(merges(parts.centers[novel]), n_groups, criterion="maxclust")
        group_of[novel] = found - 1
    return group_of


def fold_errors(parts: Parts, judges: IntArray, *, seed: int) -> FloatArray:
    """(FOLDS, CLAIMS) log of counted over true, for halves of the judges held out as if novel."""
    rng = np.random.default_rng(seed)
    errors = np.zeros((FOLDS, len(CLAIMS)))
    for fold in range(FOLDS):
        seen, hidden = np.array_split(rng.permutation(judges), 2)
        held_out = parts.with_classes(seen, judges)
        counted = [count_novel(held_out, claim).best for claim in CLAIMS]
        errors[fold] = np.log((np.array(counted) + 0.5) / (len(hidden) + 0.5))
    return errors


def count_novel(parts: Parts, claim: float) -> NovelCount:
    """Unclaimed parts, merged as far as it suits the classes that claim the others. Ours."""
    mine = parts.claimed(claim)
    novel = ~mine & (parts.sizes >= MIN_MEMBERS)
    distances, scores = judged(parts.only(mine))
    heights = merges(parts.centers[novel])[:, 2]

    def left(distance: float) -> int:
        return int(novel.sum()) - int((heights <= distance).sum())

    close = distances[scores >= scores.max() - CLOSE]
    return NovelCount(
        left(distances[scores.argmax()]), tuple(sorted({left(each) for each in close}))
    )


def judged(parts: Parts) -> tuple[FloatArray, FloatArray]:
    """Distances at which parts of known classes could be merged, and how well that suits them."""
    found = merges(parts.centers)
    if not len(found):
        return np.zeros(1), np.zeros(1)
    # Half-way to the next merge: novel classes may be a little looser than known ones.
    distances = np.convolve(np.append(found[:, 2], found[-1, 2]), [0.5, 0.5], mode="valid")
    if len(distances) > MOST_DISTANCES:
        distances = np.quantile(distances, np.linspace(0, 1, MOST_DISTANCES))
    groups = [fcluster(found, each, criterion="distance") for each in distances]
    scores = [pair_score(gathered(parts.hits, each.astype(np.int64) - 1)) for each in groups]
    return distances, np.array(scores)


def merges(centers: FloatArray) -> FloatArray:
    """(M-1, 4) average linkage: unlike Ward's, it does not join rare classes first."""
    if len(centers) < 2:
        return np.empty((0, 4))
    found: FloatArray = linkage(centers, "average")
    return found


def pair_score(hits: IntArray) -> float:
    """F1 of pairs of labeled rows that share a part, every class counting the same. Ours.

    hits: (parts, C) labeled rows of each class in each part. Classes of one row have no pairs of
    their own and can only be mixed with others.
    """
    totals = hits.sum(axis=0)
    pairs = totals * (totals - 1)
    kept = float(((hits * (hits - 1)).sum(axis=0) / np.maximum(pairs, 1)).sum())
    share = hits / np.maximum(totals, 1)
    mixed = float((share.sum(axis=1) ** 2).sum() - (share**2).sum())
    n_judges = int((pairs > 0).sum())
    return 2 * kept / max(2 * kept + mixed + n_judges - kept, 1e-12)


def gathered(values: IntArray, group_of: IntArray) -> IntArray:
    """Sums over the rows of each group; no group is empty."""
    order = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[order], np.arange(int(group_of.max()) + 1))
    sums: IntArray = np.add.reduceat(values[order], starts, axis=0)
    return sums
