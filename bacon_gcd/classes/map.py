"""A map of the images: features brought down to two dimensions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

MAP_LIMIT = 5000  # more images than this are drawn by their first two principal axes


def project(features: Tensor) -> npt.NDArray[np.float32]:
    """(N, 2) positions on the map: t-SNE for small sets, principal axes for large ones."""
    _, _, axes = torch.pca_lowrank(features, q=min(32, *features.shape), niter=4)
    reduced = (features - features.mean(dim=0)) @ axes
    if len(features) > MAP_LIMIT or len(features) < 10:
        return reduced[:, :2].numpy()
    from sklearn.manifold import TSNE

    start = reduced[:, :2] / reduced[:, 0].std() * 1e-4
    tsne = TSNE(
        init=start.numpy(), random_state=0, perplexity=min(30, len(features) / 4), max_iter=500
    )
    return np.asarray(tsne.fit_transform(reduced.numpy()), dtype=np.float32)
