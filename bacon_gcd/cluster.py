"""Clusters and what they are called: k-means, plain and label-anchored, matching, class number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linear_sum_assignment, minimize_scalar
from torch import Tensor
from torch.nn.functional import normalize

from bacon_gcd.config import UserError
from bacon_gcd.points import Features, FloatArray, Points, float32

IntArray = npt.NDArray[np.int64]
Ids = Tensor | IntArray


@dataclass(frozen=True)
class Clusters:
    """What k-means found. Every cluster has at least one member."""

    labels: IntArray
    """(N,) cluster of each row; with `labels` given, cluster c < K is known class c."""
    centroids: Tensor
    """(C, D) float32, on the device of the features."""
    inertia: float
    """Sum of squared distances to the centroids."""
    n_iterations: int


@dataclass(frozen=True)
class ClassEstimate:
    """How many classes there seem to be, and how well each candidate explained the labels."""

    n_classes: int
    interval: tuple[int, int]
    """Smallest and largest candidate tried whose accuracy is within one point of the best."""
    accuracies: dict[int, float] = field(repr=False)
    """Candidate -> Hungarian accuracy on the labeled images, in percent."""


def as_ids(values: Ids) -> IntArray:
    """(N,) ids as int64 on the CPU, from a tensor or an array."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return array.astype(np.int64, copy=False).reshape(-1)


def unit(features: Features) -> Tensor:
    """(N, D) float32 rows of length 1; a zero row stays zero."""
    return normalize(float32(features), dim=1)


# Matching


def contingency(predicted: Ids, true: Ids, *, n_clusters: int, n_classes: int) -> IntArray:
    """(n_clusters, n_classes) how many rows have this cluster and this class."""
    rows, columns = as_ids(predicted), as_ids(true)
    for what, ids, limit in (("cluster", rows, n_clusters), ("class", columns, n_classes)):
        if ids.min(initial=0) < 0 or ids.max(initial=-1) >= limit:
            raise UserError(f"{what} ids {ids.min()}..{ids.max()} are not all in 0..{limit - 1}")
    cells = np.bincount(rows * n_classes + columns, minlength=n_clusters * n_classes)
    return cells.reshape(n_clusters, n_classes)


def pair_up(gains: npt.NDArray[np.generic]) -> IntArray:
    """(R,) the column of each row in the one-to-one pairing of greatest total gain; -1: none left.

    Padded to a square, as the released code does, so that ties fall the same way.
    """
    n_rows, n_columns = gains.shape
    square = np.zeros((max(gains.shape), max(gains.shape)))
    square[:n_rows, :n_columns] = gains
    column = linear_sum_assignment(square, maximize=True)[1][:n_rows].astype(np.int64)
    return np.where(column < n_columns, column, -1)


def match(predicted: Ids, true: Ids, n_classes: int) -> IntArray:
    """Cluster -> class, one to one, with the most hits (Hungarian). BaCon Alg. 2.

    Returns one entry per cluster id 0..max(predicted); -1 where clusters outnumber classes.
    """
    predicted, true = as_ids(predicted), as_ids(true)
    n_clusters = int(predicted.max(initial=-1)) + 1
    hits = contingency(predicted, true, n_clusters=n_clusters, n_classes=n_classes)
    return pair_up(hits)


# k-means


@torch.no_grad()
def kmeans(
    features: Features,
    n_clusters: int,
    *,
    labels: Ids | None = None,
    n_init: int,
    seed: int,
    max_iterations: int | None = None,
    tolerance: float = 1e-4,
    start: Tensor | None = None,
) -> Clusters:
    """k-means by matrix products in float32, the best of `n_init` restarts.

    Without labels: Lloyd from greedy k-means++, until no row moves, the centroids' squared shift
    falls below `tolerance` x the variance, or 300 iterations. With labels: the semi-supervised
    k-means of GCD (10 rounds): labeled rows stay in their class, which is cluster 0..K-1.

    Args:
        features: (N, D) rows, also memory-mapped and of any float type; read in chunks.
        labels: (N,) known classes, -1 = unlabeled.
        start: (C, D) centroids to start from; there is one run then, whatever `n_init`.
    """
    if n_init < 1:
        raise UserError(f"n_init is {n_init}; k-means needs at least 1 run")
    points = Points(features)
    fixed = _fixed(points, labels, n_clusters)
    if start is not None:
        start = _checked_start(start, points, n_clusters)
    if max_iterations is None:
        max_iterations = 300 if fixed is None else 10

    def run(restart: int) -> Clusters:
        rng = np.random.default_rng((seed, restart))
        centroids = _seed_centroids(points, n_clusters, fixed, rng) if start is None else start
        if fixed is None:
            return _lloyd(points, centroids, max_iterations, tolerance)
        return _anchored_lloyd(points, centroids, fixed, max_iterations, tolerance)

    restarts = range(n_init if start is None else 1)
    return min(map(run, restarts), key=lambda clusters: clusters.inertia)


@torch.no_grad()
def add_centroids(
    features: Features, centroids: Tensor, n_clusters: int, *, among: Tensor, seed: int
) -> Tensor:
    """(C, D) the centroids there are, and more by k-means++.

    among: (N,) bool, the rows that may become centroids.
    """
    rng = np.random.default_rng(seed)
    return _plus_plus(Points(features), centroids, n_clusters, among=among, trials=1, rng=rng)


@torch.no_grad()
def assign(features: Features, centroids: Tensor) -> IntArray:
    """(N,) the nearest centroid of every row, in chunks."""
    return as_ids(Points(features, origin=centroids.mean(dim=0)).nearest(centroids)[0])


@torch.no_grad()
def squared_distances(features: Features, centroids: Tensor) -> Tensor:
    """(N, C) squared Euclidean distance of every row to every centroid."""
    points = Points(features, origin=centroids.mean(dim=0))
    return (points.scores(centroids) + points.squared[:, None]).clamp_min(0.0)


def _lloyd(points: Points, centroids: Tensor, max_iterations: int, tolerance: float) -> Clusters:
    """Assign, average, repeat; the labels returned are those of the centroids returned."""
    still = tolerance * float(points.squared.mean(dtype=torch.float64)) / points.dim
    labels, distances = _settle(points, centroids)
    n_iterations, moving = 0, True
    while moving and n_iterations < max_iterations:
        updated = points.means(labels, len(centroids))
        shift = float((updated - centroids).square().sum())
        before, centroids = labels, updated
        labels, distances = _settle(points, centroids)
        moving = shift > still and not torch.equal(before, labels)
        n_iterations += 1
    return Clusters(as_ids(labels), centroids, _total(distances), n_iterations)


def _anchored_lloyd(
    points: Points, centroids: Tensor, fixed: Tensor, max_rounds: int, tolerance: float
) -> Clusters:
    """GCD's rounds: inertia is measured before a round's update, the centroids kept follow it."""
    best = Clusters(as_ids(fixed), centroids, math.inf, 0)
    for n_rounds in range(1, max_rounds + 1):
        labels, distances = _settle(points, centroids, fixed)
        updated = points.means(labels, len(centroids))
        if (inertia := _total(distances)) < best.inertia:
            best = Clusters(as_ids(labels), updated, inertia, n_rounds)
        shift = float((updated - centroids).norm(dim=1).sum())
        centroids = updated
        if shift**2 < tolerance:
            break
    return best


def _settle(
    points: Points, centroids: Tensor, fixed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Nearest centroid of every row; an empty cluster moves onto the row farthest from its own."""
    labels, distances = points.nearest(centroids, fixed)
    sizes = torch.bincount(labels, minlength=len(centroids)).tolist()
    empty = [cluster for cluster, size in enumerate(sizes) if size == 0]
    if not empty:
        return labels, distances
    free = distances if fixed is None else distances.masked_fill(fixed >= 0, -1.0)
    for row in free.argsort(descending=True, stable=True).tolist():
        if sizes[labels[row]] > 1:  # a lone member stays: moving it would empty its cluster
            sizes[labels[row]] -= 1
            labels[row] = cluster = empty.pop(0)
            distances[row] = 0.0
            centroids[cluster] = points.rows(labels.new_tensor([row]))[0]
        if not empty:
            break
    return labels, distances


def _seed_centroids(
    points: Points, n_clusters: int, fixed: Tensor | None, rng: np.random.Generator
) -> Tensor:
    """(C, D) known classes start at the mean of their labeled rows, the rest by k-means++."""
    if fixed is None:
        everyone = torch.ones(points.n_rows, dtype=torch.bool, device=points.device)
        nothing = torch.empty(0, points.dim, device=points.device)
        trials = 2 + int(math.log(n_clusters))  # greedy: the best of a few draws, as scikit-learn
        return _plus_plus(points, nothing, n_clusters, among=everyone, trials=trials, rng=rng)
    # Unlabeled rows are averaged into one more cluster, which is then dropped.
    group = torch.where(fixed >= 0, fixed, n_clusters)
    centroids = points.means(group, n_clusters + 1)[:-1]
    known = torch.bincount(group, minlength=n_clusters + 1)[:-1] > 0
    rest = _plus_plus(points, centroids[known], n_clusters, among=fixed < 0, trials=1, rng=rng)
    centroids[~known] = rest[int(known.sum()) :]
    return centroids


def _plus_plus(
    points: Points,
    centroids: Tensor,
    n_clusters: int,
    *,
    among: Tensor,
    trials: int,
    rng: np.random.Generator,
) -> Tensor:
    """k-means++ (Arthur and Vassilvitskii 2007): more centroids, drawn by squared distance.

    among: (N,) bool, the rows that may become centroids.
    """
    closest = torch.full((points.n_rows,), math.inf, device=points.device)
    if len(centroids):
        closest = points.nearest(centroids)[1] - points.squared
    found, counted = list(centroids), among.float()
    while len(found) < n_clusters:
        distances = (closest + points.squared).clamp_min(0.0)
        candidates = points.rows(_draw(distances, among, rng.random(trials)))
        closer = torch.minimum(points.scores(candidates), closest[:, None])
        best = int((counted @ closer).argmin())
        closest = closer[:, best].contiguous()
        found.append(candidates[best])
    return torch.stack(found)


def _draw(distances: Tensor, among: Tensor, uniform: FloatArray) -> Tensor:
    """Rows where the cumulated squared distance passes each number; evenly if all are at zero."""
    weight = torch.where(among, distances, 0.0).double()
    if not 0 < float(weight.sum()) < math.inf:
        weight = among.double()
    cumulated = weight.cumsum(dim=0)
    target = torch.from_numpy(uniform).to(cumulated) * cumulated[-1]
    rows = torch.searchsorted(cumulated, target, right=True)
    if int(rows.max()) == len(weight):  # rounding may put a target at the very end
        rows = rows.clamp_max(int(weight.nonzero()[-1, 0]))
    return rows


def _fixed(points: Points, labels: Ids | None, n_clusters: int) -> Tensor | None:
    """(N,) the labels on the points' device, after checking that the clusters can be filled."""
    if not 1 <= n_clusters <= points.n_rows:
        raise UserError(f"{n_clusters} clusters asked of {points.n_rows} rows; choose 1 to N")
    if labels is None:
        return None
    ids = as_ids(labels)
    if len(ids) != points.n_rows:
        raise UserError(f"{len(ids)} labels for {points.n_rows} feature rows")
    if ids.max(initial=-1) >= n_clusters:
        raise UserError(f"label {ids.max()} does not fit into {n_clusters} clusters")
    n_free = n_clusters - len(np.unique(ids[ids >= 0]))
    if (n_unlabeled := int((ids < 0).sum())) < n_free:
        raise UserError(f"{n_free} unlabeled clusters asked of {n_unlabeled} unlabeled rows")
    return torch.from_numpy(ids).to(points.device)


def _checked_start(start: Tensor, points: Points, n_clusters: int) -> Tensor:
    """A copy, because the rows of empty clusters are overwritten."""
    if start.shape != (wanted := (n_clusters, points.dim)):
        raise UserError(f"start centroids have shape {tuple(start.shape)}, not {wanted}")
    return start.detach().to(points.device, torch.float32, copy=True)


def _total(distances: Tensor) -> float:
    return float(distances.sum(dtype=torch.float64))


# Number of classes


def estimate_n_classes(
    features: Features, labels: Ids, *, low: int, high: int, seed: int, n_init: int = 1
) -> ClassEstimate:
    """The class number whose clusters explain the labels best. Han et al. 2019, as used by GCD.

    k-means on all rows for each candidate in low..high that bounded Brent asks for; the score is
    Hungarian accuracy on the labeled rows alone. Of equally good candidates the middle one wins.
    """
    ids = as_ids(labels)
    labeled = ids >= 0
    high = min(high, len(ids))
    if not labeled.any():
        raise UserError("the number of classes cannot be estimated without labeled images")
    if not 1 <= low <= high:
        raise UserError(f"no candidate between {low} and {high} classes")
    tried: dict[int, float] = {}

    def loss(candidate: float) -> float:
        n_clusters = int(candidate)
        if n_clusters not in tried:
            found = kmeans(features, n_clusters, n_init=n_init, seed=seed).labels[labeled]
            tried[n_clusters] = _accuracy(found, ids[labeled])
        return -tried[n_clusters]

    loss(low)
    loss(high)
    if high > low:
        minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.5})
    return _best(tried)


def _best(tried: dict[int, float]) -> ClassEstimate:
    top = max(tried.values())
    winners = sorted(n for n, accuracy in tried.items() if accuracy == top)
    close = [n for n, accuracy in tried.items() if accuracy >= top - 1.0]
    middle = winners[(len(winners) - 1) // 2]
    return ClassEstimate(middle, (min(close), max(close)), dict(sorted(tried.items())))


def _accuracy(predicted: IntArray, true: IntArray) -> float:
    mapping = match(predicted, true, int(true.max()) + 1)
    return 100.0 * float(np.mean(mapping[predicted] == true))
