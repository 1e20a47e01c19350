"""New classes in a finished run: those that labels name, and those that unfit images make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from bacon_gcd.classes.assign import FloatArray, fits_nowhere
from bacon_gcd.classes.rules import RULES
from bacon_gcd.cluster import unit
from bacon_gcd.discovery.run_classes import Classes

IntArray = npt.NDArray[np.int64]

MOST_COMPARED = 3000  # images of which all pairs are compared; a sample of more


def with_labeled(classes: Classes, features: Tensor, names: Sequence[str]) -> Classes:
    """With a known class for each name that is new."""
    fresh = sorted({name for name in names if name} - {each.name for each in classes.found})
    members = [features[torch.tensor([name == each for each in names])] for name in fresh]
    return classes.with_known(fresh, members)


def with_unfit(
    classes: Classes,
    features: Tensor,
    names: Sequence[str],
    contents: Sequence[str],
    own: Tensor,
    *,
    seed: int,
) -> Classes:
    """With a novel class for each group of unlabeled images that fit nowhere.

    Args:
        features: (n, D) unit rows of the new images, with the classes their labels name.
        contents: (n,) equal for copies of one image.
        own: (N, D) features of the run's images, which say how loose a class may be.
    """
    unlabeled = np.array([not name for name in names], dtype=bool)
    rows = np.flatnonzero(unlabeled & fits_nowhere(features, classes.centroids, classes.limits))
    nearest = (own @ classes.centroids.T).argmax(dim=1).numpy()
    members = groups_that_fit_nowhere(
        features[torch.from_numpy(rows)],
        [contents[row] for row in rows.tolist()],
        classes,
        reach=reach_of(own, nearest, len(classes.found)),
        seed=seed,
    )
    return classes.with_new(members)


def groups_that_fit_nowhere(
    features: Tensor, contents: Sequence[str], classes: Classes, *, reach: float, seed: int
) -> list[Tensor]:
    """Rows of each class that images which fit nowhere make, the largest first. Ours.

    Groups by average linkage, cut at `reach`. A group makes a class when it has three different
    images and its mean, too, fits nowhere: images at the border of a class are not a class.
    """
    rows = _some(len(features), seed)
    groups = [
        rows[group]
        for group in _groups(features[torch.from_numpy(rows)], reach)
        if len({contents[row] for row in rows[group].tolist()}) >= RULES.opening_images
    ]
    groups.sort(key=lambda group: (-len(group), int(group[0])))
    members = [features[torch.from_numpy(group)] for group in groups]
    return [
        rows
        for rows in members
        if fits_nowhere(unit(rows.mean(dim=0)[None]), classes.centroids, classes.limits).all()
    ]


def distance_to_peers(features: Tensor, class_ids: IntArray, n_classes: int) -> FloatArray:
    """(N,) mean cosine distance of each row to the others of its class; NaN for a lone one."""
    index = torch.from_numpy(class_ids)
    sums = features.new_zeros(n_classes, features.shape[1]).index_add_(0, index, features)
    to_all = (features * sums[index]).sum(dim=1).double().numpy()
    itself = features.square().sum(dim=1).double().numpy()
    others = np.bincount(class_ids, minlength=n_classes)[class_ids] - 1
    return np.where(others > 0, 1 - (to_all - itself) / np.maximum(others, 1), np.nan)


def reach_of(features: Tensor, class_ids: IntArray, n_classes: int) -> float:
    """How far an image may be from the others of its class, by the run's own measure. Ours."""
    apart = distance_to_peers(features, class_ids, n_classes)
    apart = apart[np.isfinite(apart)]
    return max(float(np.quantile(apart, RULES.typical)), 0.0) if len(apart) else 0.0


def _groups(features: Tensor, reach: float) -> list[IntArray]:
    """Rows of each group whose members are at most `reach` apart on average."""
    if len(features) < 2:
        return []
    apart = (1 - features @ features.T).clamp_min(0).double().numpy()
    merges = linkage(apart[np.triu_indices(len(apart), 1)], "average")
    group_of = fcluster(merges, reach, criterion="distance")
    return [np.flatnonzero(group_of == group) for group in np.unique(group_of)]


def _some(n_rows: int, seed: int) -> IntArray:
    """(n,) all rows in order, or a sample of them."""
    if n_rows <= MOST_COMPARED:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, MOST_COMPARED, replace=False))
