"""Classes under a person's corrections: sorted anew by the evidence, within what they allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.assign import Sorted, probability_known, sort_by
from bacon_gcd.classes.calibration import matching_temperature
from bacon_gcd.classes.membership import class_means, keep_one
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.novelty import averaged, number_of_neighbors
from bacon_gcd.classes.reliability import Signs, agreement_of_neighbors, usual_accuracy
from bacon_gcd.classes.ridge import judge
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import centered, fit_space
from bacon_gcd.cluster import add_centroids, unit
from bacon_gcd.discovery.corrected import Corrected, best_allowed, without_barred

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Where the classes are, and how well each image fits them."""

    centroids: Tensor
    """(C, D) unit rows, for images to come."""
    temperature: float
    """Of the softmax of the cosines with them."""
    scores: Tensor
    """(N, C) how well it fits each class, over a temperature; -inf where it must not be."""

    def only(self, keep: BoolArray) -> Clusters:
        """Without the other classes. keep: (C,)."""
        index = torch.from_numpy(keep)
        return replace(self, centroids=self.centroids[index], scores=self.scores[:, index])


def settle_under(
    features: Tensor, left: Corrected, neighbors: IntArray, *, sure: float | None, seed: int
) -> Clusters:
    """Classes under the constraints, and as much confidence on average as was measured.

    They start as the person left them, and are sorted anew as `classes.find` does; so a class is
    still itself after the refit, also one that no image was confirmed of.

    neighbors: (N, K) the most similar rows of each.
    sure: expected accuracy of the images that no person has looked at; None: the usual one.
    """
    start = start_under(features, left, seed=seed)
    weights = np.where(left.certain, 1.0, RULES.unlabeled_weight)
    scores, class_ids = scores_under(features, left, start, weights, seed=seed)
    means = class_means(features, class_ids, weights, len(start))
    empty = torch.from_numpy(np.bincount(class_ids, minlength=len(start)) == 0)
    centroids = torch.where(empty[:, None], start, means)  # an empty class stays where it was
    free = torch.from_numpy(left.fixed < 0)
    cosines = without_barred(features @ centroids.T, left)[free]
    if sure is None:
        near = agreement_of_neighbors(class_ids, neighbors, left.fixed < 0)
        sure = usual_accuracy(Signs(neighbors=near))
    scores = scores / matching_temperature(scores[free], sure)
    return Clusters(centroids, matching_temperature(cosines, sure), scores)


def scores_under(
    features: Tensor,
    left: Corrected,
    centroids: Tensor,
    weights: FloatArray,
    *,
    seed: int,
) -> tuple[Tensor, IntArray]:
    """(N, C) how well each image fits each class, and (N,) the class that gives."""
    space = fit_space(features, left.fixed, seed=seed)
    near = nearest(space.directions, n_neighbors=number_of_neighbors(len(features)))
    free = left.fixed < 0
    free[left.barred[:, 0]] = False
    filled = np.bincount(left.class_ids[left.class_ids >= 0], minlength=len(centroids)) > 0
    class_ids = best_allowed(features @ centroids.T, left)
    if filled.all():  # otherwise classes that are to be opened take images of others
        class_ids = np.where(free & (left.class_ids >= 0), left.class_ids, class_ids)
    counted = torch.from_numpy(weights).float()
    kept = ~filled | left.required
    scores = averaged(space.evidence(*space.sums(class_ids, len(centroids), counted)), near)
    best = partial(_best_allowed, left=left, free=free, kept=kept)
    scores, class_ids = judge(centered(features), scores, best)
    return without_barred(scores, left), class_ids


def _best_allowed(scores: Tensor, left: Corrected, free: BoolArray, kept: BoolArray) -> IntArray:
    """(N,) the best class of each image; a kept class has one, also in the scores."""
    class_ids = best_allowed(scores, left)
    keep_one(class_ids, scores, free, kept)
    return class_ids


def start_under(features: Tensor, left: Corrected, *, seed: int) -> Tensor:
    """(C, D) unit centroids of the classes as they were left, new ones far from the others."""
    members = [np.flatnonzero(left.class_ids == c) for c in range(len(left.classes))]
    start = torch.stack([features[rows].mean(dim=0) for rows in members if len(rows)])
    if len(start) < len(members):
        nowhere = left.barred_from_all(len(start))
        among = torch.from_numpy(nowhere if nowhere.any() else left.fixed < 0)
        start = add_centroids(features, start, len(members), among=among, seed=seed)
    return unit(start)


def sort_under(
    left: Corrected,
    found: Clusters,
    neighbors: IntArray,
    *,
    threshold: float | None,
) -> Sorted:
    """Every image in its class; certain ones are sure, merged ones as sure as they look.

    neighbors: (N, K) the most similar rows of each.
    """
    ruled = left.fixed >= 0
    ruled[left.barred[:, 0]] = True
    shares = found.scores.softmax(dim=1).numpy()
    images = sort_by(
        shares,
        np.where(ruled, best_allowed(found.scores, left), -1),
        neighbors,
        n_known=left.n_known,
        threshold=threshold,
    )
    classes = images.class_ids
    sure = shares[np.arange(len(classes)), classes].astype(np.float64)
    known = probability_known(shares, left.n_known)
    return replace(
        images,
        confidence=np.where(left.certain, 1.0, sure),
        known_probability=np.where(left.certain, classes < left.n_known, known),
        suggested=np.where(left.labeled & ~left.confirmed, images.suggested, -1),
        probabilities=shares,
    )
