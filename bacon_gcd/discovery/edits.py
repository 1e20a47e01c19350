"""A person's corrections as records, and the append-only file that keeps them: edits.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from bacon_gcd.config import UserError, choose
from bacon_gcd.system.files import sync_folder

Edit = Mapping[str, Any]
STAMPS = ("n", "time")  # what `EditLog.append` adds
LOCK_SECONDS = 30

# What each kind of edit must say, and the type of it.
KINDS: dict[str, dict[str, type[Any]]] = {
    "rename": {"class": str, "to": str},
    "merge": {"classes": list, "to": str},
    "move": {"files": list, "to": str},
    "confirm": {"files": list},
    "wrong": {"files": list},
    "split": {"class": str, "parts": list, "names": list},
    "undo": {"of": int},
}


@dataclass(frozen=True)
class Line:
    """One line of the file: an edit, or what is wrong with it."""

    number: int
    """The first line is 1."""
    edit: Edit | None
    problem: str = ""

    @property
    def n(self) -> int:
        """The number by which an undo names the edit."""
        return self.number if self.edit is None else int(self.edit.get("n", self.number))


def edits_path(run: Path) -> Path:
    """Where the edits of a run are."""
    return run / "edits.jsonl"


def read_edits(path: Path) -> list[Edit]:
    """The edits in order; lines that hold none are left out."""
    return [line.edit for line in read_lines(path) if line.edit is not None]


def read_lines(path: Path) -> list[Line]:
    """Every line of the file; a last line cut off by a kill never happened."""
    data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")[:-1]  # an edit is there once its line end is
    return [_parsed(number, line) for number, line in enumerate(lines, 1)]


def _parsed(number: int, line: bytes) -> Line:
    try:
        return Line(number, checked(json.loads(line)))
    except UserError as error:
        return Line(number, None, str(error))
    except (ValueError, RecursionError):
        return Line(number, None, "not an edit")


def checked(edit: Any) -> Edit:
    """The edit itself if it says what its kind needs."""
    if not isinstance(edit, dict):
        raise UserError(f"an edit is an object, not {type(edit).__name__}")
    kind = choose("edit: kind", str(edit.get("kind")), KINDS)
    for name, needed in KINDS[kind].items():
        _check_value(kind, name, edit.get(name), needed)
    if type(edit.get("n", 0)) is not int:
        raise UserError(f"edit: its number {edit['n']!r} is not a whole number")
    _check_characters(edit)
    opens = edit.get("opens", [])
    if not isinstance(opens, list) or not all(type(each) is int and each >= 0 for each in opens):
        raise UserError(f"edit: {kind} needs class ids in 'opens'")
    return edit


def _check_characters(edit: Edit) -> None:
    """Refuse half of a surrogate pair, which JSON can name and no file can hold."""
    try:
        json.dumps(edit, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(error.object[error.start]):04X}"
        raise UserError(f"edit: holds {code}, which is no character") from None


def _check_value(kind: str, name: str, value: Any, needed: type[Any]) -> None:
    """A text or a number of the needed type, a list of texts, or (parts) a list of such lists."""
    if not isinstance(value, needed) or isinstance(value, bool):
        raise UserError(f"edit: {kind} needs {name!r} of type {needed.__name__}")
    lists = value if name == "parts" else [value] if needed is list else []
    if not all(isinstance(part, list) for part in lists):
        raise UserError(f"edit: {kind} needs lists of files as {name!r}")
    if not all(isinstance(text, str) for part in lists for text in part):
        raise UserError(f"edit: {kind} needs texts in {name!r}")


def undone_lines(lines: Sequence[Line]) -> tuple[set[int], list[str]]:
    """Numbers of the lines that an undo takes back, and undos that name no earlier edit.

    An undone undo brings its edit back.
    """
    undone: set[int] = set()
    problems = []
    first: dict[int, int] = {}
    for line in lines:
        first.setdefault(line.n, line.number)
    for line in reversed(lines):
        if line.edit is None or line.edit["kind"] != "undo" or line.number in undone:
            continue
        target = first.get(line.edit["of"], line.number)
        if target < line.number:
            undone.add(target)
        else:
            of = line.edit["of"]
            problems.append(f"line {line.number}: undo of {of}: there is no such edit before it")
    return undone, problems[::-1]


def append_edit(path: Path, edit: Edit) -> Edit:
    """Add one edit, numbered and dated, on disk before this returns."""
    log = EditLog(path)
    with log.lock:
        log.read()
        return log.append(edit)


class EditLog:
    """The file of edits as one program sees it; nothing in it is ever rewritten.

    Use `lock` around `changed`, `read` and `append`: two programs that edit one run take turns.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = FileLock(path.with_name(".edits.lock"), timeout=LOCK_SECONDS)
        self._stamp: tuple[int, int] = (0, 0)
        self._whole = 0
        self.next_number = 1

    def read(self) -> list[Line]:
        """Every line, remembered as known."""
        self._stamp = self._stamp_now()
        lines = read_lines(self.path)
        self._whole = _whole_bytes(self.path)
        self.next_number = max((line.n for line in lines), default=0) + 1
        return lines

    def changed(self) -> bool:
        """Whether another program wrote to the file since it was read or appended to here."""
        return self._stamp_now() != self._stamp

    def append(self, edit: Edit) -> Edit:
        """Add one edit, numbered and dated, on disk before this returns; after an error, nothing.

        The cost does not depend on the length of the file.
        """
        time = datetime.now(UTC).isoformat(timespec="seconds")
        said = {name: value for name, value in checked(edit).items() if name not in STAMPS}
        numbered = {"n": self.next_number, "time": time, **said}
        line = json.dumps(numbered, ensure_ascii=True).encode() + b"\n"
        created = not self.path.exists()
        self._write(line)
        if created:
            sync_folder(self.path.parent)
        self._whole += len(line)
        self.next_number += 1
        self._stamp = self._stamp_now()
        return numbered

    def _write(self, line: bytes) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.truncate(self._whole)  # without a last line that a kill cut off
            try:
                if file.write(line) < len(line):
                    raise OSError("the disk is full")
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(self._whole)
                raise

    def _stamp_now(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return (0, 0)
        return status.st_size, status.st_mtime_ns


def _whole_bytes(path: Path) -> int:
    """Size without a last line that was cut off: such a line holds no edit."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
