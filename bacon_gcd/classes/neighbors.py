"""The most similar other images: exactly for small sets, by cells for large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.cluster import assign, kmeans, unit

IntArray = npt.NDArray[np.int64]

N_NEIGHBORS = 6
EXACT_BELOW = 20_000  # rows that are all compared with all
PROBES = 32  # cells that are searched for the neighbors of a cell's rows, its own among them
ROWS_PER_CELL = 40  # of the sample from which the cells are made
CHUNK = 1024


def nearest(features: Tensor, *, n_neighbors: int = N_NEIGHBORS) -> IntArray:
    """(N, K) the most similar other rows of (N, D) unit rows, best first; never N x N at once."""
    if len(features) < EXACT_BELOW:
        return exact_neighbors(features, features, n_neighbors=n_neighbors, first=0)
    return neighbors_by_cells(features, n_neighbors=n_neighbors, seed=0)


def exact_neighbors(
    rows: Tensor, others: Tensor, *, n_neighbors: int, first: int | None = None
) -> IntArray:
    """(n, K) the most similar of the others to each row, a chunk of rows at a time.

    first: the rows are the others from this one on, and none is its own neighbor.
    """
    count = min(n_neighbors, len(others) - (first is not None))
    found = [torch.empty(0, count, dtype=torch.int64, device=rows.device)]
    for start in range(0, len(rows), CHUNK):
        similarity = rows[start : start + CHUNK] @ others.T
        if first is not None:
            own = torch.arange(len(similarity), device=rows.device)
            similarity[own, own + first + start] = -torch.inf
        found.append(similarity.topk(count, dim=1).indices)
    return torch.cat(found).numpy(force=True)


def neighbors_by_cells(features: Tensor, *, n_neighbors: int, seed: int) -> IntArray:
    """(N, K) neighbors among the rows of the nearest cells; about N^1.5 work. Ours.

    About sqrt(N) cells by k-means; the rows of a cell are compared with those of the 32 cells
    that are nearest to it.
    """
    cells = _cells(features, seed=seed)
    centers = unit(torch.stack([features[torch.from_numpy(rows)].mean(dim=0) for rows in cells]))
    near = exact_neighbors(centers, centers, n_neighbors=PROBES - 1, first=0)
    found = np.empty((len(features), n_neighbors), dtype=np.int64)
    for number, rows in enumerate(cells):
        around = np.concatenate([rows, *(cells[other] for other in near[number])])
        local = exact_neighbors(
            features[torch.from_numpy(rows)],
            features[torch.from_numpy(around)],
            n_neighbors=n_neighbors,
            first=0,
        )
        found[rows] = around[local]
    return found


def _cells(features: Tensor, *, seed: int) -> list[IntArray]:
    """The rows of each cell; none is much larger than the typical one."""
    n_cells = round(len(features) ** 0.5)
    rng = np.random.default_rng(seed)
    sample = min(len(features), ROWS_PER_CELL * n_cells)
    chosen = np.sort(rng.choice(len(features), sample, replace=False))
    found = kmeans(
        features[torch.from_numpy(chosen)], n_cells, n_init=1, seed=seed, max_iterations=10
    )
    cell_of = assign(features, found.centroids)
    order = np.argsort(cell_of, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(cell_of, minlength=n_cells))[:-1])
    return [half for part in parts for half in _halved(features, part, limit=4 * n_cells)]


def _halved(features: Tensor, rows: IntArray, *, limit: int) -> Iterator[IntArray]:
    """A cell in halves of halves along its longest axis, until none is over the limit."""
    if len(rows) <= limit:
        if len(rows):
            yield rows
        return
    points = features[torch.from_numpy(rows)]
    away = points - points.mean(dim=0)
    axis = away[int(away.norm(dim=1).argmax())]
    order = rows[(away @ axis).argsort(stable=True).numpy(force=True)]
    for half in np.array_split(order, 2):
        yield from _halved(features, half, limit=limit)
