"""What a person's corrections demand of a refit, and the file that keeps it: constraints.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict

from bacon_gcd.system.files import read_json, write_json

CONSTRAINTS = "constraints.json"


class _Stored(TypedDict):
    confirmed: dict[str, str]
    must_link: list[list[str]]
    cannot_link: list[tuple[str, str]]
    next_id: int


@dataclass(frozen=True)
class Constraints:
    """What a refit must respect."""

    confirmed: dict[str, str] = field(default_factory=dict)
    """File -> class: a person put it there or said that it is right."""
    must_link: tuple[tuple[str, ...], ...] = ()
    """Groups of files that belong to one class, from merges; each has two or more."""
    cannot_link: tuple[tuple[str, str], ...] = ()
    """(file, class): the file must not be in the class."""
    next_id: int = 0
    """Class ids below this one are used up, also those of classes that are gone."""

    @classmethod
    def read(cls, run: Path) -> Constraints:
        """What earlier corrections said, which the run was refitted to; nothing for other runs."""
        path = run / CONSTRAINTS
        if not path.exists():
            return cls()
        stored: _Stored = read_json(path, _Stored, what="the constraints of a run")
        must_link = tuple(tuple(files) for files in stored["must_link"])
        cannot_link = tuple(stored["cannot_link"])
        return cls(stored["confirmed"], must_link, cannot_link, stored["next_id"])

    def write(self, run: Path) -> None:
        """Remember them beside a run that was refitted to them."""
        write_json(run / CONSTRAINTS, asdict(self))
