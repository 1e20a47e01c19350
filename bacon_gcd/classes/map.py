"""A map of the images: features brought down to two dimensions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.neighbors import exact_neighbors
from bacon_gcd.classes.space import sample

LANDMARKS = 1000  # images that t-SNE places; with more, the map would cost more than the classes
MAPPED_BY = 3  # landmarks between which any other image lies
STEPS = 500


def project(features: Tensor) -> npt.NDArray[np.float32]:
    """(N, 2) positions on the map: t-SNE of a sample, every other image between those like it."""
    if len(features) < 10:
        return principal_plane(features)
    chosen = torch.from_numpy(sample(len(features), LANDMARKS, 0))
    landmarks = by_tsne(features[chosen])
    if len(chosen) == len(features):
        return landmarks
    placed = between(features, features[chosen], landmarks)
    placed[chosen.numpy()] = landmarks
    return placed


def between(
    features: Tensor, others: Tensor, positions: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """(n, 2) the middle of the positions of the most similar others. positions: (M, 2)."""
    near = exact_neighbors(features, others, n_neighbors=MAPPED_BY)
    middle: npt.NDArray[np.float32] = positions[near].mean(axis=1)
    return middle


def by_tsne(features: Tensor) -> npt.NDArray[np.float32]:
    """(N, 2) positions by t-SNE, from a start along the principal axes."""
    from sklearn.manifold import TSNE

    reduced = reduce(features)
    start = reduced[:, :2] / reduced[:, 0].std() * 1e-4
    nearby = min(30, len(features) / 4)
    tsne = TSNE(init=start.numpy(), random_state=0, perplexity=nearby, max_iter=STEPS)
    return np.asarray(tsne.fit_transform(reduced.numpy()), dtype=np.float32)


def principal_plane(features: Tensor) -> npt.NDArray[np.float32]:
    """(N, 2) the first two principal axes."""
    plane: npt.NDArray[np.float32] = reduce(features)[:, :2].numpy()
    return plane


def reduce(features: Tensor) -> Tensor:
    """(N, d) rows along their first principal axes."""
    _, _, axes = torch.pca_lowrank(features, q=min(32, *features.shape), niter=4)
    found: Tensor = (features - features.mean(dim=0)) @ axes
    return found
