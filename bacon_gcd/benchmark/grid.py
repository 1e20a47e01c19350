"""Which cells a person asks for, and the folders that several processes share to run them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bacon_gcd.benchmark.cells import Cell, CellResult, read_result
from bacon_gcd.benchmark.experiments import EXPERIMENTS, Column, Experiment, find_experiment
from bacon_gcd.benchmark.protocols import PLANTED, Protocol, find_protocol
from bacon_gcd.config import UserError
from bacon_gcd.data.datasets import load_dataset
from bacon_gcd.data.longtail import SplitSettings, make_split
from bacon_gcd.system.files import append_line
from bacon_gcd.system.processes import any_says, is_first, wait_for_all
from bacon_gcd.system.text import command

BACKBONE = "resnet18.pypi_in1k"
QUICK = "quick"


@dataclass(frozen=True)
class Request:
    """What a person asks `bacon benchmark` for."""

    experiments: tuple[str, ...]
    protocol: str = "paper"
    backbone: str = BACKBONE
    seeds: tuple[int, ...] = (0,)
    epochs: int | None = None
    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    image_size: int | None = None
    """Side of the images, in pixels; the backbone's own unless given."""
    split: Mapping[str, Any] = field(default_factory=dict)
    """Of datasets that the paper has no number for."""

    @property
    def rules(self) -> Protocol:
        """The protocol itself."""
        return find_protocol(self.protocol)

    def tables(self) -> list[Experiment]:
        """The experiments, narrowed to what is asked for."""
        return [self.table(find_experiment(name)) for name in self.experiments or EXPERIMENTS]

    def table(self, experiment: Experiment) -> Experiment:
        """One experiment with the rows and columns asked for; `quick` has planted vectors."""
        if self.protocol != QUICK:
            return experiment.narrowed(
                datasets=self.datasets, methods=self.methods, split=self.split
            )
        if self.datasets or self.split or self.image_size:
            raise UserError(
                "--quick has planted vectors; leave out --datasets, --image-size and split options"
            )
        toy = experiment.narrowed(datasets=[PLANTED], methods=self.methods)
        return toy

    def cell(self, experiment: Experiment, row: int, column: Column, seed: int) -> Cell:
        """The cell of a row and column of an experiment, for one seed."""
        settings = self.rules.settings(
            experiment.rows[row],
            column,
            backbone="vectors" if self.protocol == QUICK else self.backbone,
            seed=seed,
            epochs=self.epochs,
            image_size=self.image_size,
        )
        return Cell(self.rules, settings)

    def cells(self) -> list[Cell]:
        """Every cell once, all of the first seed before those of the next."""
        found = {
            cell.name: cell
            for seed in self.seeds
            for table in self.tables()
            for column in table.columns
            for row in range(len(table.rows))
            for cell in [self.cell(table, row, column, seed)]
        }
        return list(found.values())

    def words(self) -> list[str]:
        """The options that ask for the same."""
        options: dict[str, Any] = {
            "protocol": self.protocol,
            "backbone": self.backbone,
            "seeds": ",".join(map(str, self.seeds)),
            "epochs": self.epochs,
            "image-size": self.image_size,
            "datasets": self.datasets and ",".join(self.datasets),
            "methods": self.methods and ",".join(self.methods),
        } | {name.replace("_", "-"): _word(value) for name, value in self.split.items()}
        pairs = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
        return [*self.experiments, *(word for pair in pairs for word in pair)]

    def command_of(self, cell: Cell) -> str:
        """The command that runs one cell of this request and, where there is one, no other."""
        fewest: Request | None = None
        for place in self._places(cell):
            names = [each.name for each in place.cells()]
            if cell.name in names and (fewest is None or names == [cell.name]):
                fewest = place
            if names == [cell.name]:
                break
        return command("bacon", "benchmark", "run", *(fewest or self).words())

    def _places(self, cell: Cell) -> Iterator[Request]:
        """A request for each row and column of the cell's dataset, this request's tables first."""
        for table in dict.fromkeys((*self.experiments, *EXPERIMENTS)):
            asked = replace(self, experiments=(table,), seeds=(cell.settings.seed,))
            if self.protocol != QUICK:
                asked = replace(asked, datasets=(cell.settings.dataset,))
            found = replace(asked, methods=None).table(find_experiment(table))
            for row in found.rows:
                for column in found.columns if row.method == cell.settings.method else ():
                    split = {} if self.protocol == QUICK else column.split
                    yield replace(asked, methods=(row.label,), split=split)


def with_images(
    cells: Sequence[Cell], grid: Grid, data: Path | None
) -> tuple[list[Cell], list[str]]:
    """Cells that are finished or whose images can be split, and why the others are left out."""
    reasons: dict[SplitSettings, str] = {}
    for split in dict.fromkeys(cell.settings.split for cell in cells if grid.is_open(cell)):
        try:
            make_split(load_dataset(split.dataset, data), split)
        except UserError as error:
            reasons[split] = str(error)
    kept = [c for c in cells if c.settings.split not in reasons or not grid.is_open(c)]
    unique = list(dict.fromkeys(reasons.values()))
    if unique and not kept:
        raise UserError("; ".join(unique))
    return kept, unique


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def sharded(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """Part i of n of the cells, for `i/n`; every cell is in exactly one part."""
    if shard is None:
        return list(cells)
    part, slash, parts = shard.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UserError(f"--shard {shard!r}: give the part and their number, such as 3/16")
    return list(cells[int(part) - 1 :: int(parts)])


@dataclass(frozen=True)
class Grid:
    """Two folders: where cells are worked on, and where finished ones are kept."""

    folder: Path
    results: Path

    def run_folder(self, cell: Cell) -> Path:
        """Where a cell is trained."""
        return self.folder / "cells" / cell.name

    def result_path(self, cell: Cell) -> Path:
        """The file of the finished cell."""
        return self.results / f"{cell.name}.json"

    def result(self, cell: Cell) -> CellResult | None:
        """The finished cell; None where it is not finished."""
        path = self.result_path(cell)
        return read_result(path) if path.exists() else None

    def is_open(self, cell: Cell) -> bool:
        """Whether a cell is still to be run."""
        return not self.result_path(cell).exists()

    def error_path(self, cell: Cell) -> Path:
        """What a failed cell leaves."""
        return self.run_folder(cell) / "error.log"

    @contextmanager
    def taken(self, cell: Cell) -> Iterator[bool]:
        """Hold a cell while the block runs; False if another process holds it.

        The lock ends with the process, however it ends. Processes of torchrun hold it together.
        """
        with self._locked(cell) if is_first() else nullcontext(False) as free:
            yield any_says(free)
            wait_for_all()  # the first process writes what the others look for next

    @contextmanager
    def _locked(self, cell: Cell) -> Iterator[bool]:
        folder = self.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{cell.name}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def is_taken(self, cell: Cell) -> bool:
        """Whether some process is running a cell now."""
        with self.taken(cell) as free:
            return not free

    def note(self, event: str, cell: Cell, **facts: Any) -> None:
        """Add a line to the grid's log."""
        line = {"event": event, "cell": cell.name, "time": round(time.time(), 1)}
        line |= {"host": socket.gethostname(), "process": os.getpid()}
        append_line(self.folder / "log.jsonl", json.dumps(line | facts))
