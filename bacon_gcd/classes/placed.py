"""As many classes as are asked for, placed by `find_classes`, under ids that can be kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.membership import class_means
from bacon_gcd.classes.question import without_gaps
from bacon_gcd.classes.reliability import CENTROID_TEMPERATURE
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.cluster import assign, pair_up

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Placed:
    """C classes, known ones first, and the N images they were found from."""

    class_ids: IntArray
    """(N,) labeled images keep their class."""
    centroids: Tensor
    """(C, D) unit rows; a row of zeros is a class without images."""
    temperature: float
    """Of the softmax over their cosines."""

    @property
    def counts(self) -> Tensor:
        """(C,) labeled and assigned images; an empty class counts as 1, for rates and powers."""
        sizes = np.bincount(self.class_ids, minlength=len(self.centroids))
        return torch.from_numpy(sizes.clip(min=1)).float()

    def seen_in(self, features: Tensor, labels: IntArray) -> Placed:
        """The same classes in other (N, D) unit features of the same images."""
        weights = np.where(labels < 0, RULES.unlabeled_weight, 1.0)
        n_classes = len(self.centroids)
        with torch.device("cpu"):  # as they were found
            centroids = class_means(features.cpu(), self.class_ids, weights, n_classes)
        return replace(self, centroids=centroids.to(features))


def place_classes(
    features: Tensor,
    labels: IntArray,
    *,
    n_classes: int,
    n_known: int,
    seed: int,
    rules: Rules = RULES,
) -> Placed:
    """Place a given number of classes from (N, D) unit features; novel ones by size.

    Where all classes count the same, as in the paper's tests, large ones need no preference: new
    images are grouped by Ward's criterion.

    A known class without labels takes one of the smallest that no label names. Where there are
    fewer images than classes, the last ones stay empty.

    Args:
        labels: (N,) known class 0..K-1, -1 = unlabeled.
        n_classes: C.
        n_known: K.
    """
    visible, seen = without_gaps(labels)
    rules = replace(rules, uneven=math.inf)
    n_filled = min(n_classes, len(seen) + int((labels < 0).sum()))
    ids, centroids, temperature = _found(features.cpu(), visible, n_filled, seed, rules)
    unseen = np.setdiff1d(np.arange(n_known), seen)
    own_id = np.concatenate([seen, np.arange(n_known, n_classes), unseen])[:n_filled]
    every = torch.zeros(n_classes, features.shape[1], device=features.device)
    every[torch.from_numpy(own_id).to(every.device)] = centroids.to(every)
    return Placed(own_id[ids], every, temperature)


def _found(
    features: Tensor, labels: IntArray, n_classes: int, seed: int, rules: Rules
) -> tuple[IntArray, Tensor, float]:
    if len(features) == 1:  # nothing varies: there is no space to be found
        return np.zeros(1, dtype=np.int64), features, CENTROID_TEMPERATURE
    with torch.device("cpu"):  # small matrices and trees: classes are found on the CPU
        found = find_classes(
            features, labels, seed=seed, allowed=(n_classes, n_classes), rules=rules
        )
    return found.class_ids, found.centroids, found.temperature


def in_correspondence(placed: Placed, earlier: Tensor, *, n_known: int) -> Placed:
    """The same classes, each novel one under the id of the earlier centroid that it continues.

    One to one, with the greatest sum of cosines (Hungarian); an empty class has cosine 0.

    earlier: (C, D) unit centroids of another time.
    """
    cosines = placed.centroids[n_known:] @ earlier[n_known:].to(placed.centroids).T
    new_id = np.arange(len(earlier))
    new_id[n_known:] = n_known + pair_up(cosines.cpu().numpy())
    centroids = torch.empty_like(placed.centroids)
    centroids[torch.from_numpy(new_id).to(centroids.device)] = placed.centroids
    return replace(placed, class_ids=new_id[placed.class_ids], centroids=centroids)


def nearest_class(features: Tensor, centroids: Tensor) -> IntArray:
    """(N,) class of the nearest centroid of (N, D) unit features; never an empty class."""
    filled = centroids.any(dim=1)
    ids: IntArray = filled.nonzero()[:, 0].cpu().numpy()
    return ids[assign(features, centroids[filled])]
