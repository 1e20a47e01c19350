"""Which images the page shows where: typical, borderline, labeled, uncertain, and the sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bacon_gcd.report.contents import FloatArray, IntArray, ReportData, Rows

MAX_SHOWN = 10_000  # images whose thumbnails are embedded
PER_KIND = 12  # thumbnails of each kind in a class's gallery
MAX_LISTED = 60  # entries of the uncertain, suspected and duplicate lists


@dataclass(frozen=True)
class Gallery:
    """Rows that show what one class looks like."""

    class_id: int
    typical: Sequence[int]
    borderline: Sequence[int]
    labeled: Sequence[int]
    n_images: int

    @property
    def rows(self) -> list[int]:
        """All of them."""
        return [*self.typical, *self.borderline, *self.labeled]

    @property
    def face(self) -> list[int]:
        """The one picture that stands for the class: a labeled one if there is one."""
        return [*self.labeled, *self.typical][:1]


def galleries(data: ReportData) -> list[Gallery]:
    """One gallery per class, the largest class first."""
    per_kind = max(1, min(PER_KIND, MAX_SHOWN // (6 * max(len(data.classes), 1))))
    order = np.argsort(data.rows.class_ids, kind="stable")
    starts = np.searchsorted(data.rows.class_ids[order], np.arange(len(data.classes) + 1))
    members = [order[a:b] for a, b in pairwise(starts)]
    return [gallery(data.rows, c, members[c], per_kind) for c in by_size(data)]


def by_size(data: ReportData) -> list[int]:
    """Class ids, the largest estimated class first."""
    return sorted(range(len(data.classes)), key=lambda c: -data.classes[c].estimated)


def gallery(rows: Rows, class_id: int, members: IntArray, per_kind: int) -> Gallery:
    """Surest and least sure of the images that were sorted in, and examples of the labeled ones."""
    sorted_in = surest_first(rows, members[~rows.labeled[members]])
    n_border = min(per_kind, len(sorted_in) // 2) if rows.confidence is not None else 0
    examples = surest_first(rows, members[rows.labeled[members]])
    return Gallery(
        class_id,
        sorted_in[: min(per_kind, len(sorted_in) - n_border)],
        sorted_in[::-1][:n_border],
        examples[:per_kind],
        len(members),
    )


def surest_first(rows: Rows, members: IntArray) -> list[int]:
    """Members by falling confidence, unknown confidence last; in their own order without one."""
    if rows.confidence is None:
        return [int(row) for row in members]
    order = np.argsort(-_known(rows.confidence[members], missing=-1.0), kind="stable")
    return [int(row) for row in members[order]]


def uncertain(data: ReportData) -> list[int] | None:
    """Rows to look at first: as given, or the unlabeled images of lowest confidence."""
    rows = data.rows
    if data.uncertain is not None:
        return [int(row) for row in data.uncertain][:MAX_LISTED]
    if rows.confidence is None:
        return None
    open_rows = np.flatnonzero(~rows.labeled & np.isfinite(rows.confidence))
    return surest_first(rows, open_rows)[::-1][:MAX_LISTED]


def _known(confidence: FloatArray, *, missing: float) -> FloatArray:
    return np.where(np.isfinite(confidence), confidence, missing)


def shown_rows(data: ReportData, wanted: Iterable[int], *, limit: int = MAX_SHOWN) -> IntArray:
    """Rows whose thumbnails are embedded: all, or the wanted ones and an even sample of the rest.

    The sample takes every k-th image of the images ordered by class: classes keep their shares.
    """
    n_images = len(data.rows)
    if n_images <= limit:
        return np.arange(n_images)
    first = np.fromiter(dict.fromkeys(wanted), dtype=np.int64)[:limit]
    rest = np.setdiff1d(np.arange(n_images), first)
    rest = rest[np.argsort(data.rows.class_ids[rest], kind="stable")]
    n_more = limit - len(first)
    even = rest[np.linspace(0, len(rest), n_more, endpoint=False).astype(np.int64)]
    return np.sort(np.concatenate([first, even]))
