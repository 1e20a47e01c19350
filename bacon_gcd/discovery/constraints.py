"""What a person's corrections demand of a refit, and the file that keeps it: constraints.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, write_json

CONSTRAINTS = "constraints.json"


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
        try:
            stored = read_json(path)
            must_link = tuple(tuple(files) for files in stored["must_link"])
            cannot_link = tuple((file, name) for file, name in stored["cannot_link"])
            return cls(dict(stored["confirmed"]), must_link, cannot_link, int(stored["next_id"]))
        except (ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: not the constraints of a run: {reason}") from None

    def write(self, run: Path) -> None:
        """Remember them beside a run that was refitted to them."""
        write_json(run / CONSTRAINTS, asdict(self))
