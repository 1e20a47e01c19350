"""A space in which classes are alike: probabilistic linear discriminant analysis (PLDA).

Features are a class mean plus noise, x = m + y + e with y ~ N(0, B) for each class and e ~ N(0, W)
for each image (Ioffe 2006; Prince and Elder 2007). Both covariances are estimated from the few
labels and from over-clusters of all images. In the space found here W is the identity and B is
diagonal, so that the evidence for "these images are one class" has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import eigh
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.cluster import assign, kmeans, unit
from bacon_gcd.system.threads import threads_for

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Projection:
    """From the space of the features into that of the classes."""

    mean: Tensor
    """(D,) of the features; zero where they are all alike."""
    shift: Tensor
    """(D,) mean of the unit rows without it."""
    axes: Tensor
    """(D, d)"""

    def __call__(self, features: Tensor) -> Tensor:
        """(n, d) rows of (n, D) unit features."""
        return (self.centered(features) - self.shift) @ self.axes

    def centered(self, features: Tensor) -> Tensor:
        """(n, D) unit rows without the mean of the run."""
        return unit(features - self.mean)


@dataclass(frozen=True, eq=False)
class ClassSpace:
    """N rows whose covariance within classes is the identity."""

    rows: Tensor
    """(N, d) float32."""
    between: Tensor
    """(d,) variance of the class means along each axis."""
    projection: Projection | None = None
    """What made the rows, for images to come."""

    @cached_property
    def directions(self) -> Tensor:
        """(N, d) unit rows in which axes count by what they say of classes; for clustering."""
        return unit(self.rows * (self.between / (1 + self.between)).sqrt())

    def sums(self, class_ids: IntArray, n_classes: int, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(C,) weights and (C, d) weighted sums of the rows of each class."""
        index = torch.from_numpy(class_ids)
        counts = torch.zeros(n_classes).index_add_(0, index, weights)
        total = torch.zeros(n_classes, self.rows.shape[1])
        return counts, total.index_add_(0, index, self.rows * weights[:, None])

    def unusual(self, among: Tensor | None = None) -> Tensor:
        """(n,) how unlikely rows are in a class without members: 0 on average, more far outside.

        among: (n,) rows to look at; all of them unless given.
        """
        x = self.rows if among is None else self.rows[among]
        return (x.square() / (1 + self.between) - 1).sum(dim=1) / 2

    def evidence(self, counts: Tensor, sums: Tensor, among: Tensor | None = None) -> Tensor:
        """(n, C) log p(x | a class with these members) - log p(x | a class without any). PLDA.

        The mean of a class with n members of sum f is N(f b / (1 + n b), b / (1 + n b)).

        Args:
            counts: (C,) members of each class.
            sums: (C, d) sums of their rows.
            among: (n,) rows to look at; all of them unless given.
        """
        x = self.rows if among is None else self.rows[among]
        b = self.between
        left = b / (1 + counts[:, None] * b)
        mean, variance = sums * left, 1 + left
        own = (mean.square() / variance + variance.log()).sum(dim=1) / 2
        inside = torch.addmm(-own, x, (mean / variance).T)
        inside = torch.addmm(inside, x.square(), (1 / variance).T, alpha=-0.5)
        outside = (x.square() / (1 + b) + (1 + b).log()).sum(dim=1) / 2
        return inside + outside[:, None]


def without_itself(
    space: ClassSpace, class_ids: IntArray, weights: Tensor, counts: Tensor, sums: Tensor
) -> Tensor:
    """(N, C) evidence of each row for each class, its own without it."""
    evidence = space.evidence(counts, sums)
    index = torch.from_numpy(class_ids)
    for start in range(0, len(index), CHUNK):  # half a dozen arrays of the size of the rows
        some = slice(start, start + CHUNK)
        own = index[some]
        left = own_without(space, weights[some], counts[own], sums[own], rows=space.rows[some])
        evidence[some].scatter_(1, own[:, None], left[:, None])
    return evidence


def own_without(
    space: ClassSpace, weights: Tensor, counts: Tensor, sums: Tensor, *, rows: Tensor
) -> Tensor:
    """(n,) evidence of rows for the class that each is in, without it.

    Args:
        weights: (n,) of the rows.
        counts: (n,) members of their classes.
        sums: (n, d) sums of those.
        rows: (n, d)
    """
    b, x = space.between, rows
    left = b / (1 + (counts - weights).clamp_min(0)[:, None] * b)
    mean, variance = (sums - x * weights[:, None]) * left, 1 + left
    inside = ((x - mean).square() / variance + variance.log()).sum(dim=1)
    outside = (x.square() / (1 + b) + (1 + b).log()).sum(dim=1)
    return (outside - inside) / 2


def centered(features: Tensor) -> Tensor:
    """(N, D) unit rows without their mean, which all images have in common."""
    away = features - features.mean(dim=0)
    return unit(away) if float(away.norm(dim=1).max()) > 1e-4 else features


@dataclass(frozen=True, eq=False)
class Reduced:
    """N features along their principal axes, and what is known of classes without any label.

    The labels may change: a space for other labels costs little.
    """

    whole: Tensor
    """(N, D) centered unit features."""
    rows: Tensor
    """(N, d) float32, mean zero."""
    projection: Projection
    """What made the rows."""
    total: FloatArray
    """(d, d) covariance of all rows."""
    of_parts: FloatArray
    """(d, d) covariance within over-clusters."""
    rules: Rules

    def space(self, labels: IntArray) -> ClassSpace:
        """The space of (N,) labels where -1 = unlabeled."""
        within = within_classes(*self._labeled(labels), self.of_parts, self.rules)
        return self._spanned(within, self.total)

    def known_space(self, labels: IntArray) -> ClassSpace:
        """The one in which known classes are told from new ones: each counts the same. Ours."""
        known, rules = self._labeled(labels), self.rules
        within = within_classes(*known, self.of_parts, rules.for_known)
        total = with_known_classes(self.total, within, *known, share=rules.known_between)
        return self._spanned(within, total)

    def _labeled(self, labels: IntArray) -> tuple[FloatArray, IntArray]:
        """(n, d) labeled rows, and their (n,) classes."""
        seen = np.flatnonzero(labels >= 0)
        return self.rows[torch.from_numpy(seen)].double().numpy(), labels[seen]

    def _spanned(self, within: FloatArray, total: FloatArray) -> ClassSpace:
        """The space of these covariances within classes and of all images."""
        ratio, found = eigh(total, within)
        between = np.maximum(ratio - 1, self.rules.least_between)
        axes = torch.from_numpy(found).float()
        projection = replace(self.projection, axes=self.projection.axes @ axes)
        return ClassSpace(self.rows @ axes, torch.from_numpy(between).float(), projection)

    def some(self, chosen: IntArray) -> Reduced:
        """Some of the rows, with the covariances of all."""
        index = torch.from_numpy(chosen)
        return replace(self, whole=self.whole[index], rows=self.rows[index])


def reduced(features: Tensor, labels: IntArray, *, seed: int, rules: Rules = RULES) -> Reduced:
    """(N, D) unit features along their principal axes.

    labels: (N,) -1 = unlabeled; they say only how many over-clusters there should be.
    """
    unit_rows = centered(features)
    shift, axes = principal_axes(unit_rows, rules.axes)
    rows = (unit_rows - shift) @ axes
    parts = over_clusters(rows, labels, seed=seed, rules=rules)
    exact = rows.double().numpy()
    mean = torch.zeros_like(shift) if unit_rows is features else features.mean(dim=0)
    return Reduced(
        unit_rows,
        rows,
        Projection(mean, shift, axes),
        np.atleast_2d(np.cov(exact.T)),
        scatter(exact, parts) / len(exact),
        rules,
    )


def fit_space(features: Tensor, labels: IntArray, *, seed: int, rules: Rules = RULES) -> ClassSpace:
    """The space of (N, D) unit features, from (N,) labels where -1 = unlabeled. Ours."""
    with threads_for(len(labels)):
        return reduced(features, labels, seed=seed, rules=rules).space(labels)


def principal_axes(rows: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
    """(D,) mean of the rows, and (D, d) principal axes along which they vary, the largest first."""
    shift = rows.mean(dim=0)
    away = rows - shift
    values, axes = torch.linalg.eigh((away.T @ away).double())
    kept = int(min(n_axes, (values > 1e-6 * values.max().clamp_min(1e-12)).sum()))
    return shift, axes.flip(1)[:, : max(kept, 1)].to(away)


def over_clusters(rows: Tensor, labels: IntArray, *, seed: int, rules: Rules) -> IntArray:
    """(N,) one of many small clusters for each row."""
    n_rows, n_known = len(rows), int(labels.max(initial=-1)) + 1
    wanted = max(int(2 * np.sqrt(n_rows)), 6 * n_known)
    return clustered(rows, min(wanted, max(n_rows // 4, 1)), seed=seed, rules=rules)


def clustered(rows: Tensor, n_clusters: int, *, seed: int, rules: Rules) -> IntArray:
    """(N,) cluster of each row by k-means on a sample of them."""
    chosen = sample(len(rows), rules.sample, seed)
    n_clusters = max(1, min(n_clusters, rules.most_parts, len(chosen)))
    found = kmeans(
        rows[torch.from_numpy(chosen)], n_clusters, n_init=1, seed=seed, max_iterations=15
    )
    return found.labels if len(chosen) == len(rows) else assign(rows, found.centroids)


def sample(n_rows: int, limit: int, seed: int) -> IntArray:
    """(n,) all rows in order, or `limit` of them."""
    if n_rows <= limit:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng((seed, n_rows)).choice(n_rows, limit, replace=False))


def within_classes(
    rows: FloatArray, labels: IntArray, of_parts: FloatArray, rules: Rules = RULES
) -> FloatArray:
    """(d, d) covariance within classes: of labels where there are many, else of parts, scaled.

    Args:
        rows: (n, d) labeled rows.
        labels: (n,) their classes.
        of_parts: (d, d) covariance within over-clusters of all rows.
    """
    spare = len(labels) - len(np.unique(labels))
    scale, found = rules.part_spread, of_parts
    if spare > 0:
        of_labels = scatter(rows, labels) / spare
        measured = np.trace(of_labels) / max(np.trace(of_parts), 1e-12)
        scale = (spare * measured + rules.scale_labels * scale) / (spare + rules.scale_labels)
        share = spare / (spare + rules.shape_labels)
        found = share * of_labels + (1 - share) * scale * of_parts
    else:
        found = scale * of_parts
    level = max(float(np.trace(found)) / len(found), 1e-9)
    mixed: FloatArray = (1 - rules.isotropic) * found + rules.isotropic * level * np.eye(len(found))
    return mixed


def with_known_classes(
    total: FloatArray, within: FloatArray, rows: FloatArray, labels: IntArray, *, share: float
) -> FloatArray:
    """(d, d) covariance of images, in part as if all known classes were of one size. Ours.

    In that of all images one large class outweighs many small ones, and images of known classes are
    told from new ones less well the more uneven the classes are.

    Args:
        total: (d, d) covariance of all images.
        within: (d, d) covariance within classes.
        rows: (n, d) labeled rows.
        labels: (n,) their classes.
        share: of known classes, 0 to 1.
    """
    means, _ = group_means(rows, labels)
    if len(means) < 2:  # one mean does not vary
        return total
    between = np.atleast_2d(np.cov(means.T))
    mixed: FloatArray = (1 - share) * total + share * (within + between)
    return mixed


def scatter(rows: FloatArray, groups: IntArray) -> FloatArray:
    """(d, d) sum of squares and products of the rows around the mean of their group."""
    means, number = group_means(rows, groups)
    away = rows - means[number]
    total: FloatArray = away.T @ away
    return total


def group_means(rows: FloatArray, groups: IntArray) -> tuple[FloatArray, IntArray]:
    """(G, d) mean of the (n, d) rows of each group, and the (n,) number of the group of each."""
    _, number = np.unique(groups, return_inverse=True)
    sizes = np.bincount(number)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, number, rows)
    means: FloatArray = sums / sizes[:, None]
    return means, number
