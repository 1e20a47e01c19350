"""Figures: class sizes, the map of all images, training curves."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bacon_gcd.report.choices import by_size
from bacon_gcd.report.contents import FloatArray, IntArray, ReportData

# Eight colors that people with any kind of color vision can tell apart (after Okabe and Ito 2008;
# yellow darkened to be seen on white). Classes beyond eight repeat them with another symbol.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7"),
    *("#56b4e9", "#d55e00", "#a89a00", "#808080"),
)
SYMBOLS = ("circle", "square", "triangle-up", "cross", "x", "star")
MARKS = "●■▲✚✖★"  # the same symbols for the legend


class Bar(NamedTuple):
    """One class of the size chart; widths in percent of the largest class."""

    class_id: int
    labeled: int
    estimated: int
    labeled_width: float
    estimated_width: float


def class_size_bars(data: ReportData) -> list[Bar]:
    """Labeled and estimated size of every class, the largest first."""
    largest = max([max(c.estimated, c.labeled) for c in data.classes], default=0) or 1
    bars = []
    for number in by_size(data):
        _, _, labeled, estimated = data.classes[number]
        widths = (round(100 * size / largest, 2) for size in (labeled, estimated))
        bars.append(Bar(number, labeled, round(estimated), *widths))
    return bars


def class_style(class_id: int) -> dict[str, str]:
    """Color and symbol of a class on the map."""
    shape = class_id // len(COLORS) % len(SYMBOLS)
    color = COLORS[class_id % len(COLORS)]
    return {"color": color, "symbol": SYMBOLS[shape], "mark": MARKS[shape]}


def map_columns(data: ReportData, shown: IntArray) -> dict[str, list[Any]]:
    """What the page's script needs of every shown image, as columns of plain values.

    Places on the map are scaled to 0..1000 on both axes; neighbors are positions in `shown`, and
    those that are not shown are left out.
    """
    rows = data.rows
    columns: dict[str, list[Any]] = {
        "class_id": rows.class_ids[shown].tolist(),
        "labeled": rows.labeled[shown].astype(int).tolist(),
    }
    if rows.confidence is not None:
        columns["confidence"] = _plain(rows.confidence[shown], digits=3)
    if rows.known_probability is not None:
        columns["known_probability"] = _plain(rows.known_probability[shown], digits=4)
    if rows.outlier is not None:
        columns["outlier"] = rows.outlier[shown].astype(int).tolist()
    if rows.xy is not None:
        x, y = _scaled(np.asarray(rows.xy)).T
        columns |= {"x": _plain(x[shown], digits=1), "y": _plain(y[shown], digits=1)}
    if rows.neighbors is not None:
        columns["neighbors"] = _neighbors(rows.neighbors, shown)
    return columns


def _plain(values: FloatArray, *, digits: int) -> list[float | None]:
    """Rounded numbers, None for what is not finite: JSON has no NaN."""
    return [round(float(v), digits) if np.isfinite(v) else None for v in values]


def _scaled(xy: FloatArray) -> FloatArray:
    finite = xy[np.isfinite(xy).all(axis=1)]
    if len(finite) == 0:
        return xy
    low, span = finite.min(axis=0), np.ptp(finite, axis=0)
    scaled: FloatArray = 1000 * (xy - low) / np.where(span > 0, span, 1.0)
    return scaled


def _neighbors(neighbors: IntArray, shown: IntArray) -> list[list[int]]:
    position = np.full(len(neighbors) + 1, -1)  # the last entry answers for neighbor -1
    position[shown] = np.arange(len(shown))
    return [[int(p) for p in position[near] if p >= 0] for near in neighbors[shown]]


def read_log(path: Path, kind: str = "epoch") -> list[dict[str, Any]]:
    """The lines of one kind in a run's log.jsonl; a last line cut off by a kill is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict) and entry.get("kind") == kind:
            found.append(entry)
    return found


def training_curves(epochs: Sequence[Mapping[str, Any]]) -> str | None:
    """Terms of the loss and test accuracy by epoch, as SVG that takes the page's text color."""
    if not epochs:
        return None
    from matplotlib.figure import Figure  # heavy, and only for those who train

    scored = [e for e in epochs if e.get("test")]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2 if scored else 1, squeeze=False)[0]
    _draw(axes[0], epochs, "terms", title="Loss terms, mean of each epoch")
    if scored:
        _draw(axes[1], scored, "test", title="Test accuracy in percent")
    return _svg(figure)


def _draw(axes: Any, epochs: Sequence[Mapping[str, Any]], block: str, *, title: str) -> None:
    """One line per number of the block, told apart by color and by dashes."""
    names = dict.fromkeys(n for e in epochs for n, v in e[block].items() if _is_number(v))
    for number, name in enumerate(names):
        points = [(e["epoch"], e[block][name]) for e in epochs if _is_number(e[block].get(name))]
        style = {"color": COLORS[number % len(COLORS)], "linestyle": ("-", "--", ":")[number % 3]}
        axes.plot(*zip(*points, strict=True), label=name, marker=".", markersize=3, **style)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _svg(figure: Any) -> str:
    """SVG without a date or random ids, black replaced by the text color of the page."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "bacon", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    drawing = text[text.index("<svg") :].replace("#000000", "currentColor")
    return drawing.replace("<svg ", '<svg fill="currentColor" ', 1)
