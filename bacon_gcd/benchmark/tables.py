"""A table of the paper from finished cells: means over seeds, checked, beside the paper's numbers.

Cells of different protocols, splits or backbones are refused, because they do not compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bacon_gcd.backbone.catalogue import find
from bacon_gcd.benchmark.cells import CellResult
from bacon_gcd.benchmark.experiments import Experiment
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.config import UserError, choose

ROUNDING = 0.02  # percent; scores of a cell are rounded to three digits
LOWER_IS_BETTER = ("known_std", "novel_std")
PLACED = "placed"
Key = tuple[str, str]
"""Labels of a row and a column."""


@dataclass(frozen=True)
class Number:
    """A score over seeds."""

    mean: float
    std: float | None
    """Sample standard deviation; None with one seed."""
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Number:
        """Mean and spread of at least one value."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), spread, len(values))


@dataclass(frozen=True)
class Interval:
    """A difference of two rows, paired by seed, with its 95 % interval (Student's t)."""

    mean: float
    half: float | None
    """Half its width; None with one seed in common."""
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval leaves out zero, else 0."""
        if self.half is None or abs(self.mean) <= self.half:
            return 0
        return 1 if self.mean > 0 else -1


@dataclass(frozen=True)
class Table:
    """An experiment and the finished cells there are of it."""

    experiment: Experiment
    request: Request
    cells: Mapping[Key, tuple[CellResult, ...]]

    @property
    def results(self) -> list[CellResult]:
        """All cells."""
        return [cell for cells in self.cells.values() for cell in cells]

    def values(self, key: Key, score: str, block: str | None = None) -> list[float]:
        """A score of every seed that has it; `anchored.all` looks one level deeper."""
        block = block or self.experiment.block
        return [value for cell in self.cells[key] for value in _value(cell, block, score)]

    def number(self, key: Key, score: str, block: str | None = None) -> Number | None:
        """Mean and spread over seeds; None where there is nothing."""
        values = self.values(key, score, block)
        return Number.of(values) if values else None

    def best(self, column: str, score: str) -> float | None:
        """The best mean of a column, as it is printed."""
        found = [self.number((row.label, column), score) for row in self.experiment.rows]
        means = [round(number.mean, 1) for number in found if number is not None]
        if not means:
            return None
        return min(means) if score in LOWER_IS_BETTER else max(means)

    def difference(self, row: str, other: str, column: str, score: str) -> Interval | None:
        """Row minus other over the seeds that both have; None without any."""
        by_seed = [
            {c.settings["seed"]: v for c in self.cells[label, column] for v in self._of(c, score)}
            for label in (row, other)
        ]
        seeds = sorted(set(by_seed[0]) & set(by_seed[1]))
        return paired([by_seed[0][s] - by_seed[1][s] for s in seeds]) if seeds else None

    def _of(self, cell: CellResult, score: str) -> list[float]:
        return _value(cell, self.experiment.block, score)

    def missing(self) -> list[str]:
        """Which cells are not there, a line for each row and column."""
        found = []
        for (row, column), cells in self.cells.items():
            absent = sorted(set(self.request.seeds) - {int(c.settings["seed"]) for c in cells})
            if absent:
                found.append(f"{row}, {column}: seed {', '.join(map(str, absent))}")
        return found


def _value(cell: CellResult, block: str, score: str) -> list[float]:
    scores: Any = cell.block(block)
    for part in score.split("."):
        scores = None if scores is None else scores.get(part)
    return [] if scores is None else [float(scores)]


def paired(differences: Sequence[float]) -> Interval:
    """Mean of paired differences and its 95 % interval."""
    from scipy.stats import t

    n = len(differences)
    if n < 2:
        return Interval(float(np.mean(differences)), None, n)
    error = float(np.std(differences, ddof=1)) / n**0.5
    return Interval(float(np.mean(differences)), float(t.ppf(0.975, n - 1)) * error, n)


def make_table(experiment: Experiment, request: Request, grid: Grid) -> Table:
    """Read the finished cells of an experiment and check that they belong together."""
    table = Table(experiment, request, dict(_cells(experiment, request, grid)))
    refuse_mixture(table)
    for cell in table.results:
        check_means(cell)
    return table


def _cells(
    experiment: Experiment, request: Request, grid: Grid
) -> Iterator[tuple[Key, tuple[CellResult, ...]]]:
    for column in experiment.columns:
        for position, row in enumerate(experiment.rows):
            cells = [request.cell(experiment, position, column, seed) for seed in request.seeds]
            found = [grid.result(cell) for cell in cells]
            yield (row.label, column.label), tuple(each for each in found if each is not None)


def refuse_mixture(table: Table) -> None:
    """Refuse cells that differ in what they must share, and name the difference."""
    _same(table.results, "protocol", lambda cell: cell.protocol)
    _same(table.results, "scoring", lambda cell: cell.identity["protocol"])
    _same(table.results, "backbone", lambda cell: cell.identity["backbone"])
    for column in table.experiment.columns:
        of_column = [
            c for (_, label), cells in table.cells.items() for c in cells if label == column.label
        ]
        _same(of_column, "split", lambda cell: cell.identity["split"])


def _same(cells: Sequence[CellResult], what: str, of: Callable[[CellResult], str]) -> None:
    for cell in cells:
        if of(cell) != of(cells[0]):
            raise UserError(
                f"{cell.name} and {cells[0].name} cannot be in one table: "
                f"{what} {of(cell)} and {of(cells[0])}"
            )


def check_means(cell: CellResult) -> None:
    """All = (K old + (C − K) new) / C where the test set is balanced, or something is wrong."""
    if not cell.task["balanced_test"]:
        return
    known, total = cell.task["n_known"], cell.task["n_classes"]
    for name, block in cell.blocks.items():
        if not block or None in (block["all"], block["old"], block["new"]):
            continue
        if name in ("transductive", "placed_train"):  # training images are not balanced
            continue
        mean = (known * block["old"] + (total - known) * block["new"]) / total
        if abs(mean - block["all"]) > ROUNDING:
            raise UserError(
                f"{cell.name}: {name} has all {block['all']}, but old {block['old']} and new "
                f"{block['new']} of {known} and {total - known} classes make {mean:.3f}"
            )


def backbone_name(table: Table) -> str:
    """What the vectors or tokens come from."""
    r = table.request
    if r.protocol == "quick":
        return "planted vectors"
    return r.backbone if r.image_size is None else f"{r.backbone} at {r.image_size} px"


def facts_line(table: Table) -> str:
    """What a reader must know of the numbers, in one line."""
    r, rules = table.request, table.request.rules
    epochs = rules.epochs if r.epochs is None else r.epochs
    what = backbone_name(table)
    if r.protocol != "quick":
        what += f" (trained on {find(r.backbone).trained_on})"
    seeds = ", ".join(map(str, r.seeds))
    return (
        f"Backbone {what}; {epochs} epochs, last one scored; tuned {rules.tuned}; {rules.views} "
        f"views; seeds {seeds}; protocol {rules.title}"
    )


def warning(table: Table) -> str | None:
    """Said beside every table whose backbone has seen labels of the classes that count as new."""
    if table.request.protocol == "quick" or not find(table.request.backbone).supervised:
        return None
    return (
        f"{table.request.backbone} was trained with ImageNet labels, which cover many of the "
        "classes that count as new here: only the comparison between methods counts, not the level."
    )


def other_row(table: Table, name: str) -> str:
    """The label of the row that others are compared with; an unknown one lists the choices."""
    labels = {row.method: row.label for row in reversed(table.experiment.rows)}
    labels |= {row.label: row.label for row in table.experiment.rows}
    return labels[choose("row", name, labels)]
