"""Run the cells of a grid: any number of processes and machines, none of them twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import IO, Any

import torch

from bacon_gcd.benchmark.cell_run import place_again, run_cell
from bacon_gcd.benchmark.cells import ENGINE, Cell, CellResult, trains_with_engine, write_result
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.benchmark.settings import start_folder
from bacon_gcd.config import UserError, one_line
from bacon_gcd.system.files import write_atomic
from bacon_gcd.system.processes import agreed, is_first, n_processes

Tell = Callable[[str], None]


@dataclass
class Outcome:
    """What became of the cells of a grid."""

    finished: list[str] = field(default_factory=list)
    """By this process, now."""
    found: list[str] = field(default_factory=list)
    """Already there."""
    failed: dict[str, str] = field(default_factory=dict)
    """Name -> file that says why."""
    busy: list[str] = field(default_factory=list)
    """Being run by another process."""
    left_out: list[str] = field(default_factory=list)
    """Why cells were not tried: images that are not there, or too few for the split."""

    def count_as_run(self, before: set[str]) -> None:
        """What was not there before was run now, by whichever of our processes."""
        self.finished += [name for name in self.found if name not in before]
        self.found = [name for name in self.found if name in before]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dict(vars(self))

    def text(self) -> str:
        """For a person."""
        line = f"{len(self.finished)} cells run, {len(self.found)} were there already"
        if self.busy:
            line += f", {len(self.busy)} are being run by another process"
        lines = [line, *(f"failed: {name}, see {log}" for name, log in self.failed.items())]
        lines += [f"not run: {reason}" for reason in self.left_out]
        return "\n".join(lines)


@dataclass(frozen=True)
class Place:
    """Where the datasets are, and where cells are computed."""

    data: Path | None
    device: torch.device | None


def run_grid(
    request: Request,
    cells: Sequence[Cell],
    grid: Grid,
    *,
    data: Path | None,
    tell: Tell,
    device: torch.device | None = None,
) -> Outcome:
    """Run every cell that is neither finished nor held by another process, one after the other.

    A cell that another process took is looked at once more at the end, in case it was left.
    Processes of torchrun run each cell together. device: torch's default unless given.
    """
    outcome, clock = Outcome(), Clock(cells, grid)
    waiting = list(cells)
    at = Place(data, device)
    for last in (False, True):
        held = [
            cell for cell in waiting if not _turn(cell, request, grid, at, outcome, clock, tell)
        ]
        waiting = held
        if last:
            outcome.busy = [cell.name for cell in held]
    return outcome


def _turn(
    cell: Cell,
    request: Request,
    grid: Grid,
    at: Place,
    outcome: Outcome,
    clock: Clock,
    tell: Tell,
) -> bool:
    """One cell: run it if it is still to be run; False if another process has it."""
    with grid.taken(cell) as free:
        if not free:
            return False
        done = grid.result(cell)
        if done is not None:
            _renew_placed(cell, done, grid, at, tell)
            outcome.found.append(cell.name)
            return True
        tell(f"{cell.label}: starts{clock.left()}")
        try:
            result = _run(cell, request, grid, at)
        except Exception as error:  # whatever it is, the other cells do not depend on it
            if n_processes() > 1:  # the others may be in the middle of the cell
                raise
            outcome.failed[cell.name] = str(_keep_error(cell, grid, error))
            tell(f"{cell.label}: failed: {one_line(error)}; see {grid.error_path(cell)}")
            return True
        outcome.finished.append(cell.name)
        clock.finished(cell, result)
        tell(f"{cell.label}: {_scores(result)}, {result.seconds['train']:.0f} s{clock.left()}")
        return True


def _run(cell: Cell, request: Request, grid: Grid, at: Place) -> CellResult:
    folder = grid.run_folder(cell)
    with agreed():
        if is_first():
            start_folder(folder, cell.settings, resume=(folder / "config.toml").exists())
            grid.note("started", cell)
    command = request.command_of(cell)
    result = run_cell(cell, folder, data=at.data, command=command, device=at.device)
    if result is None:  # a signal asked to stop; the checkpoint is written
        raise KeyboardInterrupt
    if is_first():
        write_result(grid.results, result)
        grid.note("finished", cell, seconds=result.seconds["train"])
        grid.error_path(cell).unlink(missing_ok=True)
    return result


def _renew_placed(cell: Cell, done: CellResult, grid: Grid, at: Place, tell: Tell) -> None:
    """Place the classes of a finished cell again where that is now done otherwise."""
    if done.engine == ENGINE or trains_with_engine(cell.settings):
        return
    try:
        renewed = place_again(done, grid.run_folder(cell), data=at.data, device=at.device)
    except UserError as error:  # such as images that are not here; its other scores stay
        tell(f"{cell.label}: its block placed stays not run: {error}")
        return
    if renewed is None:
        tell(f"{cell.label}: its model is not kept here, so its block placed stays not run")
        return
    if is_first():
        write_result(grid.results, renewed)
        grid.note("placed again", cell)


def _keep_error(cell: Cell, grid: Grid, error: Exception) -> Path:
    path = grid.error_path(cell)
    text = (
        str(error) if isinstance(error, UserError) else "".join(traceback.format_exception(error))
    )
    write_atomic(path, (text + "\n").encode())
    grid.note("failed", cell, reason=one_line(error))
    return path


def _scores(result: CellResult) -> str:
    block = result.block("headline") or {}
    parts = [f"{part} {block[part]:.1f}" for part in ("all", "old", "new") if block.get(part)]
    return f"{result.headline} {', '.join(parts)}"


class Clock:
    """How long the rest of a grid takes, from cells that are like those that are left."""

    def __init__(self, cells: Sequence[Cell], grid: Grid) -> None:
        self.grid, self.waiting = grid, {cell.name: cell for cell in cells}
        self.seconds: dict[tuple[str, ...], list[float]] = {}
        for cell in cells:
            if grid.result_path(cell).exists() and (result := grid.result(cell)) is not None:
                self.finished(cell, result)

    def finished(self, cell: Cell, result: CellResult) -> None:
        """A cell is done. What it took includes its scores, not the views that cells share."""
        seconds = result.seconds["train"] + result.seconds.get("score", 0.0)
        self.waiting.pop(cell.name, None)
        self.seconds.setdefault(kind_of(cell), []).append(seconds)

    def left(self) -> str:
        """Cells and time that are left, as the end of a line; others may have finished some."""
        paths = {name: self.grid.result_path(cell) for name, cell in self.waiting.items()}
        self.waiting = {n: c for n, c in self.waiting.items() if not paths[n].exists()}
        known = [second for each in self.seconds.values() for second in each]
        if not known:
            return f"; {len(self.waiting)} cells to go"
        kinds = [kind_of(cell) for cell in self.waiting.values()]
        total = sum(mean(self.seconds.get(kind, known)) for kind in kinds)
        return f"; {len(self.waiting)} cells to go, about {duration(total)}"


def kind_of(cell: Cell) -> tuple[str, ...]:
    """Cells of one kind take about the same time."""
    s = cell.settings
    return (s.dataset, s.method, str(s.preset), str(s.recipe.epochs))


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as a person says it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def worker_environment(
    slot: int, *, jobs: int, cores: int, devices: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """What one of several processes may use: its share of the cores, one device in turn."""
    threads = str(max(cores // jobs, 1))
    own = dict(environment) | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    if devices:
        own["CUDA_VISIBLE_DEVICES"] = str(slot % devices)
    return own


def run_jobs(words: Sequence[str], *, jobs: int, tell: Tell) -> list[int]:
    """Several processes on one grid; their exit codes. The locks share the cells out."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    started, readers = [], []
    for slot in range(jobs):
        own = worker_environment(
            slot,
            jobs=jobs,
            cores=cores or 1,
            devices=torch.cuda.device_count(),
            environment=os.environ,
        )
        process = subprocess.Popen(  # noqa: S603 (this program itself)
            [sys.executable, "-m", "bacon_gcd", *words],
            env=own,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        readers.append(threading.Thread(target=_pass_on, args=(process.stderr, slot, tell)))
        readers[-1].start()
        started.append(process)
    try:
        codes = [process.wait() for process in started]
    except KeyboardInterrupt:  # the terminal has told the workers too; they save and end
        codes = [process.wait() for process in started]
    for reader in readers:
        reader.join()
    return codes


def _pass_on(stream: IO[str], slot: int, tell: Tell) -> None:
    for line in stream:
        tell(f"[{slot + 1}] {line.rstrip()}")
