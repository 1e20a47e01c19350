"""A space in which classes are alike: probabilistic linear discriminant analysis (PLDA).

Features are a class mean plus noise, x = m + y + e with y ~ N(0, B) for each class and e ~ N(0, W)
for each image (Ioffe 2006; Prince and Elder 2007). Both covariances are estimated from the few
labels and from over-clusters of all images. In the space found here W is the identity and B is
diagonal, so that the evidence for "these images are one class" has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import eigh
from torch import Tensor

from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.cluster import assign, kmeans, unit

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


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
        return (unit(features - self.mean) - self.shift) @ self.axes


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


def centered(features: Tensor) -> Tensor:
    """(N, D) unit rows without their mean, which all images have in common."""
    away = features - features.mean(dim=0)
    return unit(away) if float(away.norm(dim=1).max()) > 1e-4 else features


def fit_space(features: Tensor, labels: IntArray, *, seed: int, rules: Rules = RULES) -> ClassSpace:
    """The space of (N, D) unit features, from (N,) labels where -1 = unlabeled. Ours."""
    unit_rows = centered(features)
    shift, main = principal_axes(unit_rows, rules.axes)
    rows = (unit_rows - shift) @ main
    parts = over_clusters(rows, labels, seed=seed, rules=rules)
    within = within_classes(rows.double().numpy(), labels, parts, rules)
    total = np.atleast_2d(np.cov(rows.double().numpy().T))
    ratio, axes = eigh(total, within)
    between = np.maximum(ratio - 1, rules.least_between)
    last = torch.from_numpy(axes).float()
    mean = torch.zeros_like(shift) if unit_rows is features else features.mean(dim=0)
    projection = Projection(mean, shift, main @ last)
    return ClassSpace(rows @ last, torch.from_numpy(between).float(), projection)


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
    rows: FloatArray, labels: IntArray, parts: IntArray, rules: Rules = RULES
) -> FloatArray:
    """(d, d) covariance within classes: of labels where there are many, else of parts, scaled."""
    of_parts = scatter(rows, parts) / len(rows)
    labeled = labels >= 0
    spare = int(labeled.sum()) - len(np.unique(labels[labeled]))
    scale, found = rules.part_spread, of_parts
    if spare > 0:
        of_labels = scatter(rows[labeled], labels[labeled]) / spare
        measured = np.trace(of_labels) / max(np.trace(of_parts), 1e-12)
        scale = (spare * measured + rules.scale_labels * scale) / (spare + rules.scale_labels)
        share = spare / (spare + rules.shape_labels)
        found = share * of_labels + (1 - share) * scale * of_parts
    else:
        found = scale * of_parts
    level = max(float(np.trace(found)) / len(found), 1e-9)
    mixed: FloatArray = (1 - rules.isotropic) * found + rules.isotropic * level * np.eye(len(found))
    return mixed


def scatter(rows: FloatArray, groups: IntArray) -> FloatArray:
    """(d, d) sum of squares and products of the rows around the mean of their group."""
    _, number = np.unique(groups, return_inverse=True)
    sizes = np.bincount(number)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, number, rows)
    away = rows - (sums / sizes[:, None])[number]
    total: FloatArray = away.T @ away
    return total
