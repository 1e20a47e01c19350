"""Charts of a benchmark, in colors that people with any color vision can tell apart."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bacon_gcd.report.figures import COLORS
from bacon_gcd.system.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]
MARKERS = ("o", "s", "^", "P", "X", "*", "D", "v")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.")
KINDS = ("png", "svg")


class Series(NamedTuple):
    """One line of a chart."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


class Scattered(NamedTuple):
    """Images as points, with their classes."""

    title: str
    points: FloatArray
    """(N, 2)."""
    classes: IntArray


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes for the same figure."""
    import matplotlib

    written = []
    with matplotlib.rc_context({"svg.hashsalt": "bacon"}):
        for kind in KINDS:
            buffer = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
            path = stem.parent / f"{stem.name}.{kind}"
            write_atomic(path, buffer.getvalue())
            written.append(path)
    return written


def new_figure(n_panels: int, *, width: float = 5.0, height: float = 3.6) -> tuple[Figure, Any]:
    """A figure with panels side by side, and their axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_panels, height), layout="constrained")
    return figure, figure.subplots(1, n_panels, squeeze=False)[0]


def style_of(number: int) -> dict[str, Any]:
    """Color, marker and dashes of a line; no two of 24 are alike."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[(number + 3 * (number // len(COLORS))) % len(MARKERS)],
        "linestyle": DASHES[number // len(COLORS) % len(DASHES)],
    }


def lines(
    panels: Mapping[str, Sequence[Series]],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    from_zero: bool = False,
) -> Figure:
    """Panels of lines that share one legend to the right.

    Args:
        panels: title -> lines.
        x: what goes to the right.
        y: what goes up.
        log_x: a logarithmic scale to the right.
        from_zero: the scale upwards begins at 0, so that small changes look small.
    """
    figure, axes = new_figure(len(panels))
    names = list(dict.fromkeys(each.label for series in panels.values() for each in series))
    for axis, (title, series) in zip(axes, panels.items(), strict=True):
        for each in series:
            axis.plot(
                each.x, each.y, label=each.label, markersize=4, **style_of(names.index(each.label))
            )
        _label(axis, title, x, y)
        if from_zero:
            axis.set_ylim(0, 1.05 * axis.get_ylim()[1])
        if log_x:
            _few_ticks(axis)
        else:
            axis.xaxis.get_major_locator().set_params(integer=True)
    handles = {h.get_label(): h for axis in axes for h in axis.get_lines()}
    figure.legend(
        [handles[n] for n in names], names, loc="outside right upper", fontsize=8, frameon=False
    )
    return figure


def named_points(points: Mapping[str, tuple[float, float]], *, x: str, y: str) -> Figure:
    """A point for each name, with the name beside it."""
    figure, axes = new_figure(1, width=6.5, height=4.5)
    for number, (name, (across, up)) in enumerate(points.items()):
        style = style_of(number) | {"linestyle": ""}
        axes[0].plot([across], [up], markersize=8, label=name, **style)
    _label(axes[0], "", x, y)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


def scatter(panels: Sequence[Scattered], class_names: Sequence[str], *, n_known: int) -> Figure:
    """Maps side by side; a class has the same color and marker in each, new classes are hollow."""
    figure, axes = new_figure(len(panels), width=3.6, height=4.0)
    for axis, panel in zip(axes, panels, strict=True):
        for number in range(len(class_names)):
            chosen = panel.points[panel.classes == number]
            color = COLORS[number % len(COLORS)]
            face = color if number < n_known else "none"
            axis.scatter(
                *chosen.T,
                s=9,
                marker=MARKERS[number % len(MARKERS)],
                facecolors=face,
                edgecolors=color,
                linewidths=0.6,
                label=class_names[number] + ("" if number < n_known else " (new)"),
            )
        axis.set(xticks=[], yticks=[], title=panel.title)
    if len(class_names) <= 20:
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=5, fontsize=8, frameon=False
        )
    return figure


def heatmap(shares: FloatArray, *, title: str, n_known: int) -> Figure:
    """(C, C) shares of each true class, row by row; lines part known from new classes."""
    figure, axes = new_figure(1, width=6.0, height=5.2)
    picture = axes[0].imshow(shares, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    for draw in (axes[0].axhline, axes[0].axvline):
        draw(n_known - 0.5, color="white", linewidth=0.8, linestyle="--")
    axes[0].set(title=title, xlabel="class given", ylabel="true class, known ones first")
    figure.colorbar(picture, ax=axes[0], label="share of the true class")
    return figure


def _few_ticks(axis: Any) -> None:
    """A logarithmic axis whose ticks are plain numbers that do not overlap."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator([1, 3, 10, 30, 100, 300, 1000, 3000]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))


def _label(axis: Any, title: str, x: str, y: str) -> None:
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.5)
