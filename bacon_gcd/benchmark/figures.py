"""Figures of a benchmark from finished cells; t-SNE and confusion also need the trained models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F

from bacon_gcd.benchmark.cell_run import kept_method
from bacon_gcd.benchmark.cells import CellResult
from bacon_gcd.benchmark.evaluation import test_probe, unit_features
from bacon_gcd.benchmark.grid import Grid
from bacon_gcd.benchmark.measures import evenly
from bacon_gcd.benchmark.tables import Table
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.cluster import contingency, kmeans, pair_up
from bacon_gcd.config import UserError, choose
from bacon_gcd.methods.base import Method
from bacon_gcd.report import charts
from bacon_gcd.report.charts import Scattered, Series
from bacon_gcd.system.text import command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IntArray = npt.NDArray[np.int64]
MAPPED = 2000  # test images of a t-SNE
BINS = 6  # groups of classes of like size
TSNE_ROWS = ("GCD", "BaCon-S", "BaCon-S recommended (ours)")  # beside untrained features


@dataclass(frozen=True)
class Source:
    """Where a figure takes its numbers from: one column of a table."""

    table: Table
    grid: Grid
    data: Path | None

    @property
    def column(self) -> str:
        """The label of the only column."""
        return self.table.experiment.columns[0].label

    def rows(self) -> list[tuple[str, tuple[CellResult, ...]]]:
        """Rows that have a cell, with their cells; none at all is an error that says what to do."""
        labels = [row.label for row in self.table.experiment.rows]
        found = [(label, self.table.cells[label, self.column]) for label in labels]
        kept = [(label, cells) for label, cells in found if cells]
        if not kept:
            words = self.table.request.words()
            raise UserError(
                f"{self.grid.results}: no finished cell of {self.column}; run some with: "
                f"{command('bacon', 'benchmark', 'run', *words)}"
            )
        return kept

    def trained(self, label: str) -> tuple[Method, Workbench]:
        """The model of the first seed of a row that is kept here."""
        cells = dict(self.rows()).get(label, ())
        if not cells:
            raise UserError(f"{self.grid.results}: no finished cell of {label}, {self.column}")
        for cell in cells:
            kept = kept_method(cell, self._folder(cell), data=self.data)
            if kept is not None:
                return kept
        raise UserError(
            f"{self._folder(cells[0])}: its model is not kept here; "
            f"run it again, with another --results: {cells[0].command}"
        )

    def _folder(self, cell: CellResult) -> Path:
        return self.grid.folder / "cells" / cell.name


def tsne(source: Source) -> Figure:
    """Maps of the test features: untrained, GCD, BaCon, ours. The paper's figure."""
    available = {label for label, _ in source.rows()}
    chosen = [label for label in TSNE_ROWS if label in available]
    models = [(label, *source.trained(label)) for label in chosen]
    if not models:
        raise UserError(f"{source.grid.results}: t-SNE needs one of {', '.join(TSNE_ROWS)}")
    bench = models[0][2]
    positions = evenly(len(bench.true_test), MAPPED)
    tail = bench.backbone.new_tail()
    named = [("untrained", F.normalize(test_probe(bench).run(tail), dim=1))]
    named += [(label, unit_features(method, test_probe(bench))) for label, method, _ in models]
    panels = [
        Scattered(label, _map(features.cpu().numpy()[positions]), bench.true_test[positions])
        for label, features in named
    ]
    return charts.scatter(panels, bench.class_names, n_known=bench.split.n_known)


def _map(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    from sklearn.manifold import TSNE

    perplexity = min(30, max((len(features) - 1) / 3, 1))
    found: npt.NDArray[np.float32] = TSNE(
        perplexity=perplexity, init="pca", random_state=0
    ).fit_transform(features)
    return found


def class_counts(source: Source) -> Figure:
    """Estimated class sizes of BaCon over the epochs beside the true ones, and their error."""
    with_counts = [(label, cells) for label, cells in source.rows() if cells[0].counts["error"]]
    if not with_counts:
        raise UserError(f"{source.grid.results}: no finished cell estimates class counts")
    label, cells = with_counts[-1] if len(with_counts) == 1 else _plain(with_counts)
    counts, n_known = cells[0].counts, cells[0].task["n_known"]
    true = np.array(counts["true"])
    panels = {}
    for name, part in (("known classes", slice(0, n_known)), ("new classes", slice(n_known, None))):
        ranks = list(range(1, len(true[part]) + 1))
        series = [Series("true", ranks, np.sort(true[part])[::-1].tolist())]
        series += [
            Series(f"epoch {epoch}", ranks, np.sort(np.array(sizes)[part])[::-1].tolist())
            for epoch, sizes in sorted(counts["estimated"].items(), key=lambda each: int(each[0]))
        ]
        panels[f"{label}, {name}"] = series
    return charts.lines(panels, x="class, by size", y="training images")


def _plain(
    rows: Sequence[tuple[str, tuple[CellResult, ...]]],
) -> tuple[str, tuple[CellResult, ...]]:
    """BaCon-S if it is there, else the first that estimates."""
    return next((row for row in rows if row[0] == "BaCon-S"), rows[0])


def count_errors(source: Source) -> Figure:
    """How far estimated class counts are from the truth, over the epochs, mean of the seeds."""
    series = []
    for label, cells in source.rows():
        errors = [dict(map(tuple, cell.counts["error"])) for cell in cells]
        epochs = sorted(set.intersection(*(set(e) for e in errors)))
        if len(epochs) > 1:
            means = [float(np.mean([e[epoch] for e in errors])) for epoch in epochs]
            series.append(Series(label, epochs, means))
    if not series:
        raise UserError(f"{source.grid.results}: no finished cell estimates class counts twice")
    return charts.lines(
        {source.column: series}, x="epoch", y="total variation from the truth", from_zero=True
    )


def by_class_size(source: Source) -> Figure:
    """Accuracy of known and of new classes by the number of their training images."""
    panels: dict[str, list[Series]] = {"known classes": [], "new classes": []}
    for label, cells in source.rows():
        block = cells[0].block("headline")
        if block is None or "per_class" not in block:
            continue
        n_known, sizes = cells[0].task["n_known"], np.array(cells[0].counts["true"])
        accuracy = np.mean([_per_class(cell) for cell in cells], axis=0)
        for name, part in zip(panels, (slice(0, n_known), slice(n_known, None)), strict=True):
            panels[name].append(Series(label, *_binned(sizes[part], accuracy[part])))
    return charts.lines(panels, x="training images of a class", y="accuracy, percent", log_x=True)


def _per_class(cell: CellResult) -> list[float]:
    block: Any = cell.block("headline")
    return [0.0 if value is None else value for value in block["per_class"]]


def _binned(sizes: IntArray, accuracy: npt.NDArray[Any]) -> tuple[list[float], list[float]]:
    """Mean size and mean accuracy of groups of as many classes each, from small to large."""
    order = np.argsort(sizes, kind="stable")
    groups = np.array_split(order, min(BINS, len(order)))
    return (
        [float(sizes[group].mean()) for group in groups],
        [float(accuracy[group].mean()) for group in groups],
    )


def curves(source: Source) -> Figure:
    """Quick scores of the test set over the epochs, mean of the seeds."""
    panels: dict[str, list[Series]] = {"all": [], "old": [], "new": []}
    for label, cells in source.rows():
        if not cells[0].curve:
            continue
        points = np.mean([np.array(cell.curve, dtype=float) for cell in cells], axis=0)
        for number, name in enumerate(panels, start=1):
            panels[name].append(Series(label, points[:, 0].tolist(), points[:, number].tolist()))
    if not panels["all"]:
        raise UserError(f"{source.grid.results}: no finished cell was scored during training")
    return charts.lines(panels, x="epoch", y="accuracy, percent")


def alignment(source: Source) -> Figure:
    """Alignment and uniformity of the test features of every method, mean of the seeds."""
    return charts.named_points(
        feature_points(source),
        x="alignment: mean squared distance inside a class, lower is better",
        y="uniformity, lower is better",
    )


def feature_points(source: Source) -> dict[str, tuple[float, float]]:
    """Alignment and uniformity by name; methods on equal features are one point."""
    names: dict[tuple[float, float], list[str]] = {}
    for label, cells in source.rows():
        point = _mean(cells, "alignment"), _mean(cells, "uniformity")
        if None not in point:
            names.setdefault(cast(tuple[float, float], point), []).append(label)
    return {"\n".join(labels): point for point, labels in names.items()}


def _mean(cells: Sequence[CellResult], measure: str) -> float | None:
    values = [v for cell in cells if (v := cell.measures[measure]) is not None]
    return float(np.mean(values)) if values else None


def confusion(source: Source) -> Figure:
    """True classes against the clusters of the test features, matched once."""
    available = source.rows()
    label = next((name for name, _ in available if name == "BaCon-S"), available[-1][0])
    method, bench = source.trained(label)
    n_classes = bench.split.n_classes
    found = kmeans(unit_features(method, test_probe(bench)), n_classes, n_init=10, seed=0).labels
    hits = contingency(found, bench.true_test, n_clusters=n_classes, n_classes=n_classes)
    column = pair_up(hits)
    by_class = np.zeros_like(hits)
    by_class[:, column] = hits.T  # rows: true class; columns: the class a cluster is matched to
    shares = by_class / np.maximum(by_class.sum(axis=1, keepdims=True), 1)
    title = f"{label} on {source.column}, k-means on test features"
    return charts.heatmap(shares, title=title, n_known=bench.split.n_known)


FIGURES: dict[str, Callable[[Source], Figure]] = {
    "tsne": tsne,
    "counts": class_counts,
    "count-errors": count_errors,
    "sizes": by_class_size,
    "confusion": confusion,
    "curves": curves,
    "alignment": alignment,
}


def draw(name: str, source: Source, stem: Path) -> list[Path]:
    """Draw a figure and write it as PNG and SVG; an unknown name lists the choices."""
    return charts.save(FIGURES[choose("figure", name, FIGURES)](source), stem)
