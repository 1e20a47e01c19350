"""Which images the page shows where, and in which order classes come."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bacon_gcd.report.contents import FloatArray, IntArray, ReportData, Rows

MAX_SHOWN = 10_000  # images whose thumbnails are embedded
PER_KIND = 12  # thumbnails of each kind in a class's gallery
MAX_LISTED = 60  # entries of the uncertain, suspected and duplicate lists
NAMES_BUDGET = 4_000_000  # bytes of all file names, compressed; base64 makes a third more of it


@dataclass(frozen=True)
class Gallery:
    """Rows that show what one class looks like."""

    class_id: int
    typical: Sequence[int]
    borderline: Sequence[int]
    labeled: Sequence[int]
    n_images: int
    certainty: float | None
    """0..1, how sure its images are; None where nothing tells."""

    @property
    def rows(self) -> list[int]:
        """All of them."""
        return [*self.typical, *self.borderline, *self.labeled]

    @property
    def example(self) -> list[int]:
        """The one picture that represents the class: a labeled one if there is one."""
        return [*self.labeled, *self.typical][:1]


def galleries(data: ReportData) -> list[Gallery]:
    """One gallery per class, the most doubtful class first."""
    per_kind = max(1, min(PER_KIND, MAX_SHOWN // (6 * max(len(data.classes), 1))))
    found = [
        gallery(data, class_id, members, per_kind)
        for class_id, members in enumerate(members_by_class(data))
    ]
    return sorted(found, key=lambda g: (not g.n_images, _last_if_none(g.certainty), g.class_id))


def members_by_class(data: ReportData) -> list[IntArray]:
    """The rows of every class, in their order."""
    order = np.argsort(data.rows.class_ids, kind="stable")
    starts = np.concatenate([[0], np.cumsum(data.sizes)])
    return [order[a:b] for a, b in pairwise(starts)]


def by_size(data: ReportData) -> list[int]:
    """Class ids, the largest class first."""
    return [int(c) for c in np.argsort(-data.sizes, kind="stable")]


def gallery(data: ReportData, class_id: int, members: IntArray, per_kind: int) -> Gallery:
    """Surest and least sure of the images that were sorted in, and examples of the labeled ones."""
    rows = data.rows
    sorted_in = surest_first(rows, members[~rows.labeled[members]])
    n_border = min(per_kind, len(sorted_in) // 2) if rows.confidence is not None else 0
    examples = surest_first(rows, members[rows.labeled[members]])
    return Gallery(
        class_id,
        sorted_in[: min(per_kind, len(sorted_in) - n_border)],
        sorted_in[::-1][:n_border],
        examples[:per_kind],
        len(members),
        certainty(data, class_id, members),
    )


def certainty(data: ReportData, class_id: int, members: IntArray) -> float | None:
    """Estimated purity or precision of a class; without them the mean confidence of its images."""
    info = data.classes[class_id]
    for estimate in (info.purity, info.precision):
        if estimate is not None and math.isfinite(estimate):
            return estimate
    if data.rows.confidence is None:
        return None
    values = data.rows.confidence[members[~data.rows.labeled[members]]]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _last_if_none(value: float | None) -> float:
    return math.inf if value is None else value


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
    if len(data.rows) <= limit:
        return np.arange(len(data.rows))
    first = np.fromiter(dict.fromkeys(wanted), dtype=np.int64)[:limit]
    rest = _others_by_class(data, first)
    return np.sort(np.concatenate([first, _every_kth(rest, limit - len(first))]))


def listed_rows(data: ReportData, shown: IntArray, *, budget: int = NAMES_BUDGET) -> IntArray:
    """Rows whose names are in the page: the shown ones, then the others as far as names fit."""
    rest = _others_by_class(data, shown)
    if len(rest) == 0:
        return shown
    names = "\n".join(str(data.rows.ids[row]) for row in rest)
    size = len(zlib.compress(names.encode(errors="surrogateescape"), level=6))
    n_fitting = min(len(rest), len(rest) * budget // size)
    return np.concatenate([shown, _every_kth(rest, n_fitting)])


def _others_by_class(data: ReportData, rows: IntArray) -> IntArray:
    others = np.setdiff1d(np.arange(len(data.rows)), rows)
    return others[np.argsort(data.rows.class_ids[others], kind="stable")]


def _every_kth(rows: IntArray, number: int) -> IntArray:
    chosen: IntArray = rows[np.linspace(0, len(rows), number, endpoint=False).astype(np.int64)]
    return chosen
