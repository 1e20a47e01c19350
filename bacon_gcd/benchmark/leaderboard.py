"""Results of other people: checked, collected in a folder, and run again to see if they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bacon_gcd.benchmark.cell_run import run_cell
from bacon_gcd.benchmark.cells import (
    ENGINE,
    Cell,
    CellResult,
    read_result,
    trains_with_engine,
    write_result,
)
from bacon_gcd.benchmark.protocols import PROTOCOLS
from bacon_gcd.benchmark.tables import Number, check_means
from bacon_gcd.config import UserError
from bacon_gcd.system.files import digest, write_atomic
from bacon_gcd.system.locks import locked

PARTS = ("all", "old", "new")
BOARD = "README.md"
ALONE = 2.0  # percent: what one result may differ by where no other seed tells the spread
WIDE = 3.0  # standard deviations between seeds that still count as the same


def find_result(path: Path) -> Path:
    """The file of a result: itself, that of a cell's folder, or the only one of a grid folder."""
    if path.is_file():
        return path
    of_cell = path.parent.parent / "results" / f"{path.name}.json"
    if path.is_dir() and of_cell.is_file():  # GRID/cells/NAME
        return of_cell
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    found = sorted(path.glob("*.json")) or sorted(path.glob("results/*.json"))
    if len(found) != 1:
        raise UserError(f"{path}: {len(found)} results in it; name one file")
    return found[0]


def checked_result(path: Path) -> tuple[Cell, CellResult]:
    """A result that says what it is: whole, of a protocol we have, with scores that add up."""
    result = read_result(path)
    known = {protocol.title: protocol for protocol in PROTOCOLS.values()}
    if result.protocol not in known:
        raise UserError(f"{path}: protocol {result.protocol!r}; known are {', '.join(known)}")
    cell = Cell(known[result.protocol], result.run_settings)
    _check_protocol(path, cell)
    if trains_with_engine(cell.settings) and result.engine != ENGINE:
        raise UserError(f"{path}: trained with engine {result.engine}; this version has {ENGINE}")
    if cell.name != result.name:
        raise UserError(f"{path}: its settings are those of {cell.name}, not of {result.name}")
    check_means(result)
    return cell, result


def _check_protocol(path: Path, cell: Cell) -> None:
    """Refuse settings that a protocol fixes otherwise; the length of a run may differ."""
    s, rules = cell.settings, cell.protocol
    fixed = {"tuned": rules.tuned, "views": rules.views, "trunk": "float32", "bfloat16": False}
    for name, value in fixed.items():
        if getattr(s, name) != value:
            raise UserError(f"{path}: {name} is {getattr(s, name)}; {rules.title} has {value}")


def submit(path: Path, board: Path) -> dict[str, Any]:
    """Check a result, keep it in the board's folder and write the board anew."""
    _, result = checked_result(path)
    board.mkdir(parents=True, exist_ok=True)
    with locked(board / ".lock", waiting=f"{board}: waiting for another submission"):
        kept = board / "results" / f"{result.name}.json"
        if kept.exists() and read_result(kept).hash != result.hash:
            raise UserError(f"{kept}: another result of the same run is on the board already")
        write_result(board / "results", result)
        rows = board_rows(read_result(p) for p in sorted((board / "results").glob("*.json")))
        write_atomic(board / BOARD, board_text(rows).encode())
    return {"result": result.name, "board": str(board / BOARD), "rows": len(rows)}


@dataclass(frozen=True)
class BoardRow:
    """All seeds of one run."""

    settings: Mapping[str, Any]
    protocol: str
    headline: str
    scores: Mapping[str, Number]
    """Of the parts that there are: a split without new classes has no `new`."""


def board_rows(results: Iterable[CellResult]) -> list[BoardRow]:
    """Seeds of one run together; the best first within dataset, protocol and backbone."""
    groups: dict[str, list[CellResult]] = {}
    for result in results:
        groups.setdefault(run_key(result), []).append(result)
    rows = []
    for group in groups.values():
        first, found = group[0], {part: _values(group, part) for part in PARTS}
        scores = {part: Number.of(values) for part, values in found.items() if values}
        rows.append(BoardRow(first.settings, first.protocol, first.headline, scores))
    return sorted(rows, key=_order)


def _values(results: Sequence[CellResult], part: str) -> list[float]:
    blocks = [block for r in results if (block := r.blocks[r.headline]) is not None]
    return [block[part] for block in blocks if block[part] is not None]


def run_key(result: CellResult) -> str:
    """The same for all seeds of one run."""
    settings = {name: value for name, value in result.settings.items() if name != "seed"}
    engine = result.engine if trains_with_engine(result.run_settings) else None
    return digest(result.protocol, settings, result.identity, engine)


def _order(row: BoardRow) -> tuple[str, str, str, float]:
    s = row.settings
    return (s["dataset"], row.protocol, s["backbone"], -row.scores["all"].mean)


def board_text(rows: Sequence[BoardRow]) -> str:
    """The board as a page."""
    lines = [
        "# Leaderboard",
        "",
        "Accuracy in percent at the last epoch, mean ± standard deviation over seeds.",
        "Add a row: `bacon benchmark submit RESULT.json`.",
        "Check one: `bacon benchmark verify RESULT.json`.",
        "",
        "| dataset | protocol | backbone | epochs | method | scored by | all | old | new | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        s = row.settings
        told = [s["dataset"], row.protocol, s["backbone"], s["recipe.epochs"]]
        told += [f"{s['method']} {s['preset']}", row.headline]
        told += [_number(row.scores.get(part)) for part in PARTS] + [row.scores["all"].seeds]
        lines.append(f"| {' | '.join(str(each) for each in told)} |")
    return "\n".join(lines) + "\n"


def _number(number: Number | None) -> str:
    if number is None:
        return "–"
    return f"{number.mean:.1f}" + ("" if number.std is None else f" ± {number.std:.1f}")


@dataclass(frozen=True)
class Verdict:
    """What a second run says of a result."""

    name: str
    stated: Mapping[str, float | None]
    found: Mapping[str, float | None]
    allowed: float
    """Largest difference of `all` that counts as the same, in percent."""

    @property
    def holds(self) -> bool:
        """Whether the second run lies within the interval."""
        ours, theirs = self.found["all"], self.stated["all"]
        return ours is not None and theirs is not None and abs(ours - theirs) <= self.allowed

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return vars(self) | {"holds": self.holds}

    def text(self) -> str:
        """For a person."""
        said = ", ".join(f"{part} {self.stated[part]}" for part in PARTS)
        found = ", ".join(f"{part} {self.found[part]}" for part in PARTS)
        word = "within" if self.holds else "OUTSIDE"
        return f"stated {said}\nfound  {found}\n{word} ± {self.allowed:.1f} of all"


def verify(
    path: Path, folder: Path, *, data: Path | None, device: torch.device | None = None
) -> Verdict | None:
    """Run the cell of a result again in a folder; None if it was stopped."""
    cell, stated = checked_result(path)
    found = run_cell(cell, folder / cell.name, data=data, command=stated.command, device=device)
    if found is None:
        return None
    for name, value in stated.identity.items():
        if found.identity[name] != value:
            raise UserError(f"{path}: {name} was {value}, here it is {found.identity[name]}")
    blocks = [result.blocks[stated.headline] or {} for result in (stated, found)]
    scores = [{part: block.get(part) for part in PARTS} for block in blocks]
    return Verdict(cell.name, scores[0], scores[1], allowed_difference(path, stated))


def allowed_difference(path: Path, stated: CellResult) -> float:
    """Three standard deviations of the seeds beside the result; `ALONE` where there are none."""
    others = [read_result(other) for other in sorted(path.parent.glob("*.json"))]
    same = [other for other in others if run_key(other) == run_key(stated)]
    values = _values(same, "all")
    return WIDE * float(np.std(values, ddof=1)) if len(values) > 2 else ALONE
