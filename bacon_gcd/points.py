"""Rows of features and their distances to centroids, in chunks: never N x N."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from bacon_gcd.config import UserError
from bacon_gcd.system.processes import add_up, gather_rows, share

FloatArray = npt.NDArray[np.floating]
Features = Tensor | FloatArray

SHARED_ROWS = 20_000  # from here on processes share out the rows: talking costs less than that
CHUNK_SCORES = 2**20  # point-centroid scores in memory at a time: 4 MB, whatever N and C are


class Points:
    """Rows and their squared distances to anything, C at a time and never N x N.

    Distances are taken as seen from `origin` (the mean), |x-o|^2 - 2 (x-o)(c-o) + |c-o|^2, because
    float32 would lose them to cancellation when the rows are far from zero.
    """

    def __init__(self, features: Features, origin: Tensor | None = None) -> None:
        if features.ndim != 2:
            raise UserError(f"features have shape {tuple(features.shape)}, not (N, D)")
        self.features = features
        self.n_rows, self.dim = (int(size) for size in features.shape)
        self.device = features.device if isinstance(features, Tensor) else torch.device("cpu")
        # Every process has all rows, and works through its share of them.
        self.own = share(self.n_rows) if self.n_rows >= SHARED_ROWS else slice(0, self.n_rows)
        self.origin = self._mean() if origin is None else origin.to(self.device, torch.float32)
        self.exact_origin = self.origin.double()
        self.squared = torch.empty(self.n_rows, device=self.device)
        for part, x in self.chunks():
            self.squared[part] = (x - self.origin).square().sum(dim=1)
        self.squared = self._whole(self.squared)
        if not self.squared.isfinite().all():
            bad = (~self.squared.isfinite()).nonzero()[:, 0]
            raise UserError(f"{len(bad)} feature rows are not finite, the first is row {bad[0]}")

    def chunks(self, n_columns: int = 64) -> Iterator[tuple[slice, Tensor]]:
        """This process's rows as float32, as many at a time as `n_columns` scores each allow."""
        size = min(max(CHUNK_SCORES // n_columns, 256), 16384)
        for first in range(self.own.start, self.own.stop, size):
            part = slice(first, min(first + size, self.own.stop))
            yield part, float32(self.features[part])

    def rows(self, index: Tensor) -> Tensor:
        """(M, D) float32 rows by their numbers."""
        if isinstance(self.features, Tensor):
            return self.features[index.to(self.device)].float()
        return float32(self.features[index.cpu().numpy()])

    def nearest(self, centroids: Tensor, fixed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(N,) nearest centroid, or the `fixed` one where that is >= 0, and its distance."""
        labels = torch.empty(self.n_rows, dtype=torch.int64, device=self.device)
        distances = torch.empty(self.n_rows, device=self.device)
        bias, directions = self._seen_from_origin(centroids)
        for part, x in self.chunks(len(centroids)):
            score = torch.addmm(bias, x, directions, alpha=-2)
            distances[part], labels[part] = score.min(dim=1)
            if fixed is not None:
                own = torch.where(fixed[part] >= 0, fixed[part], labels[part])
                distances[part], labels[part] = score.gather(1, own[:, None])[:, 0], own
        distances = self._whole(distances)
        return self._whole(labels), (distances + self.squared).clamp_min(0.0)

    def scores(self, centroids: Tensor) -> Tensor:
        """(N, C) squared distances less `squared`: enough to compare centroids."""
        result = torch.empty(self.n_rows, len(centroids), device=self.device)
        bias, directions = self._seen_from_origin(centroids)
        for part, x in self.chunks(len(centroids)):
            torch.addmm(bias, x, directions, alpha=-2, out=result[part])
        return self._whole(result)

    def means(self, labels: Tensor, n_clusters: int, weights: Tensor | None = None) -> Tensor:
        """(C, D) mean of each cluster; summed within chunks in float32, between them in float64."""
        total = torch.zeros(n_clusters, self.dim, dtype=torch.float64, device=self.device)
        for part, x in self.chunks(n_clusters):
            # Rows sorted by cluster are bags: their sums do not depend on the number of threads.
            sizes = torch.bincount(labels[part], minlength=n_clusters)
            bags = sizes.cumsum(0) - sizes
            order = labels[part].argsort(stable=True)
            own = None if weights is None else weights[part][order]
            total += embedding_bag(order, x, bags, mode="sum", per_sample_weights=own)
        total = self._added(total)
        sizes = torch.bincount(labels, weights, minlength=n_clusters)
        return (total / torch.where(sizes > 0, sizes, 1)[:, None]).float()

    def _mean(self) -> Tensor:
        total = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        for _, x in self.chunks():
            total += x.sum(dim=0)
        return (self._added(total) / self.n_rows).float()

    def _whole(self, values: Tensor) -> Tensor:
        """(N, ...) values of all rows, of which this process has computed its own."""
        shared = self.own.stop - self.own.start < self.n_rows
        return gather_rows(values[self.own], self.n_rows) if shared else values

    def _added(self, total: Tensor) -> Tensor:
        """A sum over all rows, of which this process has added its own."""
        return add_up(total) if self.own.stop - self.own.start < self.n_rows else total

    def _seen_from_origin(self, centroids: Tensor) -> tuple[Tensor, Tensor]:
        """What nearest() adds to -2 x.d: (C,) bias; and (D, C) directions d = c - origin."""
        away = (centroids.to(self.device) - self.origin).double()
        bias = away.square().sum(dim=1) + 2 * away @ self.exact_origin
        return bias.float(), away.float().T


def float32(features: Features) -> Tensor:
    """Features as a float32 tensor; a float32 tensor or array is not copied."""
    if isinstance(features, Tensor):
        return features.detach().float()
    # Writable, because torch cannot share a read-only memory map.
    return torch.from_numpy(np.require(features, np.float32, ["C", "W"]))
