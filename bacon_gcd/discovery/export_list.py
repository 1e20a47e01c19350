"""The list of an export: every image, where it is and where it goes; kept beside the images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, write_atomic
from bacon_gcd.system.text import command

HOW = ("copy", "hardlink", "symlink", "move")
MANIFEST = "bacon-export.json"


@dataclass(frozen=True)
class Item:
    """One image: where it is and where it goes."""

    source: str
    """Absolute."""
    target: str
    """Under the export's folder, forward slashes."""


@dataclass(frozen=True)
class Plan:
    """Everything an export does."""

    run: str
    how: str
    items: tuple[Item, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """File name -> why it stays where it is."""


def write_plan(plan: Plan, to: Path) -> None:
    """Keep the plan in the export's folder."""
    write_atomic(to / MANIFEST, _as_bytes(plan))


def is_cut_off(plan: Plan, to: Path) -> bool:
    """Whether the list in the folder is a beginning of the list of this plan, and no more."""
    stored, whole = (to / MANIFEST).read_bytes(), _as_bytes(plan)
    return len(stored) < len(whole) and whole.startswith(stored)


def _as_bytes(plan: Plan) -> bytes:
    """As JSON in ASCII: names may not be UTF-8."""
    return json.dumps(asdict(plan) | {"version": 1}, indent=1).encode()


def read_plan(to: Path) -> Plan:
    """The plan of an export; one that names files outside its folder is refused."""
    path = to / MANIFEST
    try:
        plan: Plan = read_json(path, _StoredPlan, what="the list of an export").plan()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {to} is not an export") from None
    except UserError as error:
        again = command("bacon", "export", "RUN", "--to", to, "--how", "HOW")
        raise UserError(
            f"{error}; if it was cut off, the command that made the export completes it: {again}"
        ) from None
    parts = [PurePosixPath(item.target).parts for item in plan.items]
    sound = all(len(p) == 2 and not {"..", "/"} & set(p) for p in parts)
    sound = sound and all(_is_plain(Path(item.source)) for item in plan.items)
    if not sound or plan.how not in HOW:
        raise UserError(f"{path}: damaged; it names files outside of {to}")
    return plan


@dataclass(frozen=True)
class _StoredPlan:
    """bacon-export.json."""

    run: str
    how: str
    items: tuple[Item, ...]
    left_out: dict[str, str]
    version: int = 1

    def plan(self) -> Plan:
        return Plan(self.run, self.how, self.items, self.left_out)


def _is_plain(path: Path) -> bool:
    return path.is_absolute() and ".." not in path.parts
