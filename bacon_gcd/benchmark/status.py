"""How far a grid is: what is finished, running, failed and waiting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bacon_gcd.benchmark.cells import Cell
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.benchmark.runner import Clock

STATES = ("finished", "running", "failed", "waiting")


@dataclass
class Status:
    """Cells of each experiment by state."""

    experiments: dict[str, Counter[str]] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        counts = {n: {s: c[s] for s in STATES} for n, c in self.experiments.items()}
        return {"experiments": counts, "running": self.running, "failed": self.failed}

    def text(self) -> str:
        """For a person."""
        lines = [f"{'':<12}" + "".join(f"{state:>10}" for state in STATES)]
        for name, found in self.experiments.items():
            lines.append(f"{name:<12}" + "".join(f"{found[state]:>10}" for state in STATES))
        lines += [f"running: {name}" for name in self.running]
        lines += [f"failed: {name}, see {log}" for name, log in self.failed.items()]
        return "\n".join([*lines, self.left.removeprefix("; ")])


def status_of(request: Request, grid: Grid) -> Status:
    """Look at every cell of the request; cells that experiments share are counted in each."""
    status, states = Status(), {cell.name: _state(cell, grid) for cell in request.cells()}
    for experiment in request.tables():
        cells = [
            request.cell(experiment, row, column, seed)
            for seed in request.seeds
            for column in experiment.columns
            for row in range(len(experiment.rows))
        ]
        status.experiments[experiment.name] = Counter(
            states[name] for name in dict.fromkeys(cell.name for cell in cells)
        )
    for cell in request.cells():
        if states[cell.name] == "running":
            status.running.append(cell.name)
        if states[cell.name] == "failed":
            status.failed[cell.name] = str(grid.error_path(cell))
    status.left = Clock(request.cells(), grid).left()
    return status


def _state(cell: Cell, grid: Grid) -> str:
    if grid.result_path(cell).exists():
        return "finished"
    if (grid.folder / "locks" / f"{cell.name}.lock").exists() and grid.is_taken(cell):
        return "running"
    return "failed" if grid.error_path(cell).exists() else "waiting"
