"""The tree of classes and the threshold between known and new, as the page draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bacon_gcd.classes.tree import ClassTree, Join
from bacon_gcd.report.contents import FloatArray, IntArray, ReportData

MOST_ROWS = 60  # parts that are drawn; what joins earlier is drawn as one
N_BINS = 20
STEPS = 100  # of the threshold's slider


class Leaf(NamedTuple):
    """A row of the drawing: a class, or a part that finer cuts split off from one."""

    part: int
    class_id: int
    """Of the class it belongs to now."""
    split_off: bool
    n_images: int


class Stroke(NamedTuple):
    """A join, drawn in steps from the right; the cut lies left of it while it is not done."""

    number: int
    """Of the join, counted from the finest cut."""
    path: str


class Drawing(NamedTuple):
    """Root on the left, parts on the right; one unit per row and per join."""

    leaves: Sequence[Leaf]
    strokes: Sequence[Stroke]
    stems: str
    """What never joins further runs on to the left edge."""
    width: int
    first: int
    """Joins that are done already in the finest cut that is drawn."""


def draw(tree: ClassTree, n_classes: int) -> Drawing:
    """The joins of at most 60 parts; parts that never join are left out."""
    first = next(k for k in range(len(tree.joins) + 1) if len(_ends(tree.joins[k:])) <= MOST_ROWS)
    joins = tree.joins[first:]
    order = _in_order(joins)
    leaves = _leaves(tree, order, n_classes=n_classes, n_drawn=tree.n_parts - first)
    strokes, stems = _strokes(joins, order, first)
    return Drawing(leaves, strokes, stems, len(joins) + 1, first)


def _leaves(tree: ClassTree, order: Sequence[int], *, n_classes: int, n_drawn: int) -> list[Leaf]:
    """Each drawn part with its size and the class it belongs to in this run."""
    class_of, drawn_in = tree.cores(n_classes), tree.cores(n_drawn)
    sizes = np.bincount(drawn_in, tree.sizes(), minlength=tree.n_parts)
    return [Leaf(p, int(class_of[p]), p >= n_classes, int(sizes[p])) for p in order]


def _strokes(joins: Sequence[Join], order: Sequence[int], first: int) -> tuple[list[Stroke], str]:
    """A bracket per join, from right to left, and the lines on to the left edge."""
    height = {part: row + 0.5 for row, part in enumerate(order)}
    width = len(joins) + 1
    reach = dict.fromkeys(order, width)
    strokes = []
    for number, (kept, gone, _) in enumerate(joins, start=1):
        at = width - number
        path = f"M{reach[kept]} {height[kept]}H{at}V{height[gone]}H{reach[gone]}"
        strokes.append(Stroke(first + number, path))
        height[kept], reach[kept] = (height[kept] + height[gone]) / 2, at
    tops = _ends(joins) - {join.gone for join in joins}
    return strokes, "".join(f"M{reach[part]} {height[part]}H0" for part in sorted(tops))


def _ends(joins: Sequence[Join]) -> set[int]:
    return {part for join in joins for part in join[:2]}


def _in_order(joins: Sequence[Join]) -> list[int]:
    """Parts such that every join is between neighbors: no stroke crosses another."""
    blocks = {part: [part] for part in sorted(_ends(joins))}
    for kept, gone, _ in joins:
        blocks[kept] += blocks.pop(gone)
    return [part for block in blocks.values() for part in block]


def examples(data: ReportData) -> dict[int, int]:
    """Part -> the row that shows it best: the surest one."""
    if data.tree is None:
        return {}
    rows = data.rows
    sure = np.zeros(len(rows)) if rows.confidence is None else np.nan_to_num(rows.confidence)
    order = np.argsort(sure, kind="stable")
    return dict(zip(data.tree.members[order].tolist(), order.tolist(), strict=True))


def tree_columns(data: ReportData, number_of: dict[int, int]) -> dict[str, Any] | None:
    """What the script needs to cut the tree; examples are numbers of thumbnails, -1 = none."""
    if data.tree is None:
        return None
    shown = examples(data)
    parts = range(data.tree.n_parts)
    return {
        "sizes": data.tree.sizes().tolist(),
        "joins": [[join.kept, join.gone] for join in data.tree.joins],
        "examples": [number_of.get(shown.get(part, -1), -1) for part in parts],
    }


class Sides(NamedTuple):
    """The unlabeled images by the probability that their class is a known one."""

    bars: Sequence[float]
    """Heights in percent of the highest, from probability 0 to 1."""
    counts: Sequence[int]
    n_known: int
    """How many are in a known class now."""
    known_at: Sequence[int]
    """How many are known under each threshold 0.00, 0.01, ..., 1.00."""
    to_known: Sequence[int]
    to_new: Sequence[int]
    """How many change sides under it."""


def sides(data: ReportData) -> Sides | None:
    """None where no threshold can be moved: without both kinds of classes, or nothing unlabeled."""
    kinds = np.array([c.known for c in data.classes], dtype=bool)
    free = np.flatnonzero(~data.rows.labeled)
    if data.rows.known_probability is None or kinds.all() or not kinds.any() or not len(free):
        return None
    share = np.nan_to_num(data.rows.known_probability[free])
    counts = np.histogram(share, bins=N_BINS, range=(0, 1))[0]
    now = kinds[data.rows.class_ids[free]]
    n_known = int(now.sum())
    return Sides(
        (100 * counts / counts.max()).round(1).tolist(),
        counts.tolist(),
        n_known,
        _at_least(share),
        _at_least(share[~now]),
        [n_known - stay for stay in _at_least(share[now])],
    )


def _at_least(share: FloatArray) -> list[int]:
    """How many shares reach each threshold 0.00, 0.01, ..., 1.00."""
    below = np.searchsorted(np.sort(share), np.arange(STEPS + 1) / STEPS)
    return [int(number) for number in len(share) - below]


def near_any_threshold(data: ReportData, *, per_step: int = 2) -> IntArray:
    """Rows that are worth a thumbnail, whichever threshold is chosen."""
    if sides(data) is None or data.rows.known_probability is None:
        return np.empty(0, dtype=np.int64)
    free = np.flatnonzero(~data.rows.labeled)
    share = np.nan_to_num(data.rows.known_probability[free])
    thresholds = np.linspace(0, 1, STEPS + 1)
    order = np.argsort(share, kind="stable")
    at = np.searchsorted(share[order], thresholds)[:, None] + np.arange(-per_step, per_step)
    rows: IntArray = free[order[np.unique(at.clip(0, len(free) - 1))]]
    return rows
