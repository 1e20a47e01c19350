"""Images that are there twice: the same bytes, or the same picture in other bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from bacon_gcd.classes.assign import Sorted
from bacon_gcd.classes.rules import RULES
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.joined import boxes_of

IntArray = npt.NDArray[np.int64]
CHUNK = 256  # rows that are compared with their neighbors at once: some megabytes


class Duplicates(NamedTuple):
    """Rows that show the same; `kind` is "exact" or "near"."""

    kind: str
    rows: tuple[int, ...]


class Thumbnail(NamedTuple):
    """An image at 9 x 8 pixels."""

    bits: npt.NDArray[np.bool_]
    """(8, 8) difference hash: whether a pixel is brighter than its right neighbor."""
    pixels: npt.NDArray[np.float32]
    """(8, 9, 3)"""

    @classmethod
    def of(cls, image: Image.Image) -> Thumbnail:
        """Reduce an image."""
        small = np.asarray(image.convert("RGB").resize((9, 8), Image.Resampling.BOX), np.float32)
        gray = small.mean(axis=2)
        return cls(gray[:, :-1] > gray[:, 1:], small)

    def same(self, other: Thumbnail) -> bool:
        """Whether both could be copies of one picture."""
        gap = float(np.abs(self.pixels - other.pixels).mean())
        return (
            int((self.bits != other.bits).sum()) <= RULES.duplicate_bits
            and gap <= RULES.duplicate_gap
        )


def find_duplicates(
    table: ImageTable,
    features: Tensor,
    neighbors: IntArray,
    *,
    since: int = 0,
    earlier: Iterable[Duplicates] = (),
) -> list[Duplicates]:
    """Groups of exact duplicates, then of near ones; labeled and unlabeled images alike.

    Only pairs of neighbors are compared, so the work grows with N, not with N x N.

    Args:
        features: (N, D) unit rows.
        neighbors: (N, K) the most similar rows of each.
        since: rows before this one have been compared with each other; `earlier` is the outcome.
    """
    exact = exact_groups(table)
    first_of = {row: group[0] for group in exact for row in group}
    pairs = [
        (a, b)
        for a, b in _similar_pairs(features, neighbors)
        if b >= since and first_of.get(a, a) != first_of.get(b, b)
    ]
    compared = sorted({row for pair in pairs for row in pair})
    small = {row: Thumbnail.of(table.image(row)) for row in compared}
    known = [pair for each in earlier if each.kind == "near" for pair in pairwise(each.rows)]
    near = connected([*known, *((a, b) for a, b in pairs if small[a].same(small[b]))])
    return [Duplicates("exact", g) for g in exact] + [Duplicates("near", g) for g in near]


def exact_groups(table: ImageTable) -> list[tuple[int, ...]]:
    """Rows of equal bytes; two boxes of one file are two pictures."""
    rows: dict[object, list[int]] = {}
    for row, key in enumerate(zip(table.contents, boxes_of(table.source), strict=True)):
        rows.setdefault(key, []).append(row)
    return [tuple(group) for group in rows.values() if len(group) > 1]


def with_contradicted(
    images: Sorted,
    labels: IntArray,
    duplicates: Iterable[Duplicates],
    *,
    confirmed: npt.NDArray[np.bool_] | None = None,
) -> Sorted:
    """With every labeled image suspected of which an exact copy has another label.

    What its neighbors say of an image goes before what its copies say.

    Args:
        labels: (N,) class of each labeled image, -1 = unlabeled.
        confirmed: (N,) images that a person decided on: they are never suspected.
    """
    said = contradicted(labels, duplicates)
    if confirmed is not None:
        said[confirmed] = -1
    return replace(images, suggested=np.where(images.suggested >= 0, images.suggested, said))


def contradicted(labels: IntArray, duplicates: Iterable[Duplicates]) -> IntArray:
    """(N,) the other label that exact copies of a labeled image have; -1 where there is none.

    Of several labels it is the most frequent one; of equally many, the one with the smallest id.
    """
    other = np.full(len(labels), -1, dtype=np.int64)
    for rows in (each.rows for each in duplicates if each.kind == "exact"):
        counts = Counter(sorted(int(labels[row]) for row in rows if labels[row] >= 0))
        for row in rows if len(counts) > 1 else ():
            own = int(labels[row])
            if own >= 0:
                other[row] = next(label for label, _ in counts.most_common() if label != own)
    return other


def _similar_pairs(features: Tensor, neighbors: IntArray) -> list[tuple[int, int]]:
    """Each pair of similar neighbors once, the lower row first."""
    pairs: set[tuple[int, int]] = set()
    for start in range(0, len(neighbors), CHUNK):
        near = neighbors[start : start + CHUNK]
        cosines = (features[start : start + CHUNK, None] * features[near]).sum(dim=2).numpy()
        rows, columns = np.nonzero(cosines >= RULES.similar)
        for row, other in zip((start + rows).tolist(), near[rows, columns].tolist(), strict=True):
            pairs.add((min(row, other), max(row, other)))
    return sorted(pairs)


def connected(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Groups of rows that pairs connect, in the order of their first rows."""
    if not pairs:
        return []
    rows, ends = np.unique(np.array(pairs), return_inverse=True)
    first, second = ends.reshape(-1, 2).T
    shape = (len(rows), len(rows))
    graph = coo_array((np.ones(len(pairs), dtype=bool), (first, second)), shape=shape)
    _, group_of = connected_components(graph, directed=False)
    order = np.argsort(group_of, kind="stable")
    groups = np.split(rows[order], np.cumsum(np.bincount(group_of))[:-1])
    return sorted(tuple(group.tolist()) for group in groups)
