"""The most similar other images: exactly for small sets, by cells for large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.cluster import assign, kmeans, unit
from bacon_gcd.system.processes import add_up, n_processes, process_number
from bacon_gcd.system.progress import progress

IntArray = npt.NDArray[np.int64]

N_NEIGHBORS = 6
EXACT_BELOW = 20_000  # rows that are all compared with all
CELL_ROWS = 256  # in a typical cell
COMPARED = 12_288  # rows at least with which those of a cell are compared, its own among them
SAMPLED_ROWS = 40  # for each part, of the sample from which parts are made
ROUNDS = 6  # of k-means: cells need not be the best ones
CHUNK = 256  # rows: arrays of some megabytes, more does not stay in the cache
MOST_COSINES = 2**26  # at once, 256 MB: of a million rows, a chunk has 67
SLICES = 16  # of the columns, where the largest are looked for; 16 floats are a cache line
SLICED_FROM = 1024  # columns


def nearest(features: Tensor, *, n_neighbors: int = N_NEIGHBORS) -> IntArray:
    """(N, K) the most similar other rows of (N, D) unit rows, best first; never N x N at once."""
    if len(features) < EXACT_BELOW:
        return exact_neighbors(features, features, n_neighbors=n_neighbors, first=0)
    return neighbors_by_cells(features, n_neighbors=n_neighbors, seed=0)


def neighbors_of(features: Tensor, rows: IntArray, *, n_neighbors: int) -> IntArray:
    """(n, K) the most similar other rows of some of (N, D) unit rows, best first."""
    found = [np.empty((0, n_neighbors), dtype=np.int64)]
    chunk = _chunk(len(features))
    for start in range(0, len(rows), chunk):
        chosen = torch.from_numpy(rows[start : start + chunk])
        similarity = cosines(features[chosen], features)
        similarity[torch.arange(len(chosen)), chosen] = -torch.inf
        found.append(largest(similarity, n_neighbors).numpy())
    return np.concatenate(found)


def exact_neighbors(
    rows: Tensor, others: Tensor, *, n_neighbors: int, first: int | None = None
) -> IntArray:
    """(n, K) the most similar of the others to each row, a chunk of rows at a time.

    first: the rows are the others from this one on, and none is its own neighbor.
    """
    count = min(n_neighbors, len(others) - (first is not None))
    found = [torch.empty(0, count, dtype=torch.int64, device=rows.device)]
    chunk = _chunk(len(others))
    for start in range(0, len(rows), chunk):
        similarity = cosines(rows[start : start + chunk], others)
        if first is not None:
            own = torch.arange(len(similarity), device=rows.device)
            similarity[own, own + first + start] = -torch.inf
        found.append(largest(similarity, count))
    return torch.cat(found).numpy(force=True)


def cosines(rows: Tensor, others: Tensor) -> Tensor:
    """(n, M) of unit rows with others, and up to 15 columns more that are -inf.

    With 12,301 columns the product takes 1.8 times as long as with 12,304: whole cache lines.
    """
    n_columns = len(others)
    result = rows.new_empty(len(rows), -(-n_columns // SLICES) * SLICES)
    result[:, n_columns:] = -torch.inf
    torch.mm(rows, others.T, out=result[:, :n_columns])
    return result


def largest(values: Tensor, count: int) -> Tensor:
    """(n, K) columns of the largest of (n, M) values, best first: topk in a third of its time.

    Ours. The columns are laid over each other in slices. Below the K largest maxima, and only
    there, are the K largest values. Of equal values any may be taken, as topk does.
    """
    n_columns = values.shape[1]
    width = n_columns // SLICES
    if n_columns < SLICED_FROM or width < count:
        return values.topk(count, dim=1).indices
    maxima = values.view(-1, SLICES, width).amax(dim=1)
    below = torch.arange(0, n_columns, width, device=values.device)
    columns = (maxima.topk(count, dim=1).indices[:, :, None] + below).flatten(1)
    return columns.gather(1, values.gather(1, columns).topk(count, dim=1).indices)


def _chunk(n_others: int) -> int:
    """Rows that are compared with so many others at once."""
    return max(1, min(CHUNK, MOST_COSINES // max(n_others, 1)))


def neighbors_by_cells(features: Tensor, *, n_neighbors: int, seed: int) -> IntArray:
    """(N, K) neighbors among the rows of the nearest cells; work that grows as N does. Ours.

    Cells of about 256 rows by k-means; the rows of a cell are compared with those of the cells
    that are nearest to it, as many as have 12,288 rows. A number of cells would not do: cells that
    are near to many others are large, the more so the more there are. Processes share out the
    cells.
    """
    rows = _cells(features, seed=seed)
    # Cell by cell in memory: looking for rows all over a large array takes longer than comparing.
    order = np.concatenate(rows)
    cells = torch.split_with_sizes(_rows(features, order), [len(each) for each in rows])
    centers = unit(torch.stack([cell.mean(dim=0) for cell in cells]))
    near = _compared(centers, np.array([len(each) for each in rows]))
    found = np.zeros((len(features), n_neighbors), dtype=np.int64)
    own = range(process_number(), len(cells), n_processes())
    with progress("neighbors", len(own), unit="cells") as advance:
        for number in own:
            compared = [number, *near[number]]
            around = torch.cat([cells[each] for each in compared])
            local = exact_neighbors(cells[number], around, n_neighbors=n_neighbors, first=0)
            found[rows[number]] = np.concatenate([rows[each] for each in compared])[local]
            advance()
    return add_up(torch.from_numpy(found)).numpy()


def _compared(centers: Tensor, sizes: IntArray) -> list[list[int]]:
    """For each cell the nearest others, until they have as many rows as are compared."""
    most = 4 * COMPARED // CELL_ROWS
    near = exact_neighbors(centers, centers, n_neighbors=most, first=0)
    before = np.cumsum(np.column_stack([sizes, sizes[near]]), axis=1)[:, :-1]
    wanted = (before < COMPARED).sum(axis=1)
    return [row[:count].tolist() for row, count in zip(near, wanted, strict=True)]


def _rows(features: Tensor, rows: IntArray) -> Tensor:
    return features[torch.from_numpy(rows).to(features.device)]


def _cells(features: Tensor, *, seed: int) -> list[IntArray]:
    """The rows of each cell; none is much larger than the typical one.

    In two steps, into parts and parts into cells: comparing every row with the centers of all
    cells would grow with the square of N.
    """
    n_parts = max(round((len(features) / CELL_ROWS) ** 0.5), 1)
    parts = _parts(features, np.arange(len(features)), n_parts, seed=seed)
    cells = [
        cell
        for part in parts
        for cell in _parts(features, part, -(-len(part) // CELL_ROWS), seed=seed)
    ]
    return [half for cell in cells for half in _halved(features, cell, limit=4 * CELL_ROWS)]


def _parts(features: Tensor, rows: IntArray, n_parts: int, *, seed: int) -> list[IntArray]:
    """These rows in parts, by a few rounds of k-means on some of them; no part is empty."""
    if n_parts == 1:
        return [rows]
    rng = np.random.default_rng(seed)
    sample = min(len(rows), SAMPLED_ROWS * n_parts)
    chosen = _rows(features, np.sort(rng.choice(rows, sample, replace=False)))
    start = chosen[:: sample // n_parts][:n_parts]
    found = kmeans(chosen, n_parts, n_init=1, seed=seed, start=start, max_iterations=ROUNDS)
    part_of = assign(_rows(features, rows), found.centroids)
    order = rows[np.argsort(part_of, kind="stable")]
    ends = np.cumsum(np.bincount(part_of, minlength=n_parts))[:-1]
    return [part for part in np.split(order, ends) if len(part)]


def _halved(features: Tensor, rows: IntArray, *, limit: int) -> Iterator[IntArray]:
    """A cell in halves of halves along its longest axis, until none is over the limit."""
    if len(rows) <= limit:
        yield rows
        return
    points = _rows(features, rows)
    away = points - points.mean(dim=0)
    axis = away[int(away.norm(dim=1).argmax())]
    order = rows[(away @ axis).argsort(stable=True).numpy(force=True)]
    for half in np.array_split(order, 2):
        yield from _halved(features, half, limit=limit)
