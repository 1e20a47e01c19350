"""Figures: class sizes, colors and symbols of classes, training curves."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bacon_gcd.report.choices import by_size
from bacon_gcd.report.contents import ReportData

# Eight colors that people with any kind of color vision can tell apart (after Okabe and Ito 2008;
# yellow darkened to be seen on white). Classes beyond eight repeat them with another symbol.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7"),
    *("#56b4e9", "#d55e00", "#a89a00", "#808080"),
)
SYMBOLS = ("circle", "square", "triangle-up", "cross", "x", "star")
MARKS = "●■▲✚✖★"  # the same symbols for the legend


# What each term of the loss asks for, for readers who do not know the method.
TERMS = {
    "contrast/unsupervised": "views of one image alike",
    "contrast/supervised": "labeled images of one class alike",
    "contrast/advice": "images of one likely class alike",
    "classify/supervised": "labeled images in their class",
    "classify/distill": "views of one image in one class",
    "classify/pairs": "neighbors in one class",
    "classify/confident": "sure images stay in their class",
    "classify/mixed": "mixed images in the mixed class",
    "classify/prior": "class sizes as expected",
    "balanced/supervised": "labeled images in their class, balanced",
    "balanced/confident": "sure images stay in their class, balanced",
}
SCORES = {"all": "all classes", "old": "known classes", "new": "new classes"}


class Bar(NamedTuple):
    """One class of the size chart; widths in percent of the largest class."""

    class_id: int
    size: int
    labeled: int
    width: float
    labeled_width: float


def class_size_bars(data: ReportData) -> list[Bar]:
    """How many images were sorted into every class, the largest class first."""
    largest = max(data.sizes.tolist(), default=0) or 1
    bars = []
    for number in by_size(data):
        size, labeled = int(data.sizes[number]), int(data.labeled_sizes[number])
        widths = (round(100 * n / largest, 2) for n in (size, labeled))
        bars.append(Bar(number, size, labeled, *widths))
    return bars


class Estimate(NamedTuple):
    """Size of one class as the training estimated it, beside what was sorted in."""

    class_id: int
    estimated: int | None
    size: int


def estimates(data: ReportData) -> list[Estimate]:
    """The estimated distribution, the largest class first; empty where there is none."""
    if data.estimated_counts is None:
        return []
    counts = [round(float(n)) if math.isfinite(n) else None for n in data.estimated_counts]
    if all(n is None for n in counts):
        return []
    order = sorted(range(len(counts)), key=lambda c: -(counts[c] or 0))
    return [Estimate(c, counts[c], int(data.sizes[c])) for c in order]


def class_style(class_id: int) -> dict[str, str]:
    """Color and symbol of a class on the map."""
    shape = class_id // len(COLORS) % len(SYMBOLS)
    color = COLORS[class_id % len(COLORS)]
    return {"color": color, "symbol": SYMBOLS[shape], "mark": MARKS[shape]}


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
    _draw(axes[0], epochs, "terms", title="Training loss, lower is better", words=TERMS)
    if scored:
        _draw(
            axes[1], scored, "test", title="Quick check on test images, percent right", words=SCORES
        )
    return _svg(figure)


def _draw(
    axes: Any,
    epochs: Sequence[Mapping[str, Any]],
    block: str,
    *,
    title: str,
    words: Mapping[str, str],
) -> None:
    """One line per number of the block, told apart by color and by dashes."""
    names = dict.fromkeys(n for e in epochs for n, v in e.get(block, {}).items() if _is_number(v))
    for number, name in enumerate(names):
        values = [(e["epoch"], e.get(block, {}).get(name)) for e in epochs]
        points = [(epoch, value) for epoch, value in values if _is_number(value)]
        style = {"color": COLORS[number % len(COLORS)], "linestyle": ("-", "--", ":")[number % 3]}
        label = f"{words[name]} ({name})" if name in words else name
        axes.plot(*zip(*points, strict=True), label=label, marker=".", markersize=3, **style)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("epoch (one pass over the images)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if names:
        axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _is_number(value: Any) -> bool:
    """A finite number: a run that failed logs NaN, which is no point of a curve."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _svg(figure: Any) -> str:
    """SVG without a date or random ids, black replaced by the text color of the page."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "bacon", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    drawing = text[text.index("<svg") :].replace("#000000", "currentColor")
    return drawing.replace("<svg ", '<svg fill="currentColor" ', 1)
