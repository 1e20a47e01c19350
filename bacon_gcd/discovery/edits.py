"""A person's corrections: an append-only list on disk, and what they make of the predictions.

`apply_edits` is pure: the run's own files never change, undo leaves an edit out of the replay.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, Prediction
from bacon_gcd.system.files import read_json, sync_folder, write_json

Edit = Mapping[str, Any]
CONSTRAINTS = "constraints.json"
STAMPS = ("n", "time")  # what `append_edit` adds

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


class Applied(NamedTuple):
    """The predictions and classes after the edits."""

    rows: tuple[Prediction, ...]
    classes: tuple[FoundClass, ...]
    constraints: Constraints


def edits_path(run: Path) -> Path:
    """Where the edits of a run are."""
    return run / "edits.jsonl"


def read_edits(path: Path) -> list[Edit]:
    """The edits in order; a last line cut off by a kill never happened."""
    data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")[:-1]  # an edit is there once its line end is
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _parsed(line: bytes, where: str) -> Edit:
    try:
        edit = json.loads(line)
    except ValueError:
        raise UserError(f"{where}: not an edit; restore the file or delete that line") from None
    return checked(edit, where=where)


def checked(edit: Any, *, where: str = "edit") -> Edit:
    """The edit itself if it says what its kind needs."""
    if not isinstance(edit, dict):
        raise UserError(f"{where}: an edit is an object, not {type(edit).__name__}")
    kind = choose(f"{where}: kind", str(edit.get("kind")), KINDS)
    if not isinstance(edit.get("n", 0), int):
        raise UserError(f"{where}: its number {edit['n']!r} is not a whole number")
    for name, needed in KINDS[kind].items():
        value: Any = edit.get(name)
        if not isinstance(value, needed) or isinstance(value, bool):
            raise UserError(f"{where}: {kind} needs {name!r} of type {needed.__name__}")
        lists = {"parts": value}.get(name, [value] if needed is list else [])
        if not all(isinstance(part, list) for part in lists):
            raise UserError(f"{where}: {kind} needs lists of files as {name!r}")
        if not all(isinstance(text, str) for part in lists for text in part):
            raise UserError(f"{where}: {kind} needs texts in {name!r}")
    return edit


def append_edit(path: Path, edit: Edit) -> Edit:
    """Add one edit, numbered and dated, on disk before this returns; nothing is rewritten."""
    with path.open("a+b") as file, _alone(file):
        edits = read_edits(path)
        number = max((each.get("n", 0) for each in edits), default=0) + 1
        time = datetime.now(UTC).isoformat(timespec="seconds")
        said = {name: value for name, value in checked(edit).items() if name not in STAMPS}
        numbered = {"n": number, "time": time, **said}
        file.truncate(_whole_bytes(path))
        file.write(json.dumps(numbered, ensure_ascii=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return numbered


def _whole_bytes(path: Path) -> int:
    """Size without a last line that was cut off: such a line holds no edit."""
    return path.read_bytes().rfind(b"\n") + 1


@contextmanager
def _alone(file: IO[bytes]) -> Iterator[None]:
    """Two review pages of one run take turns, where the system has file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
    yield


def active_edits(edits: Sequence[Edit]) -> list[Edit]:
    """The edits that count: none that was undone, and an undone undo brings its edit back."""
    undone: set[int] = set()
    active = []
    numbers = [edit.get("n", position) for position, edit in enumerate(edits, 1)]
    for position, edit in reversed(list(enumerate(edits))):
        if numbers[position] in undone:
            continue
        if edit["kind"] != "undo":
            active.append(edit)
        elif edit["of"] in numbers[:position]:
            undone.add(edit["of"])
        else:
            raise UserError(f"undo of {edit['of']}: there is no such edit before it")
    return active[::-1]


def novel_number(edits: Sequence[Edit], *, start: int) -> int:
    """The next free number of a novel class; one used by an undone split stays used."""
    names = [name for edit in edits if edit["kind"] == "split" for name in edit["names"]]
    names += [edit["to"] for edit in edits if "to" in edit]
    used = [int(found[1]) for name in names if (found := re.fullmatch(r"novel_(\d{1,9})", name))]
    return max([start, *(number + 1 for number in used)])


def corrected(run: DiscoverRun, *more: Edit) -> Applied:
    """A run with the edits on disk, and some more that are only tried."""
    edits = [*read_edits(edits_path(run.folder)), *more]
    earlier = Constraints.read(run.folder)
    return apply_edits(run.rows, run.classes, edits, earlier=earlier, next_id=run.unused_id)


def first_unused_id(run: DiscoverRun, applied: Applied) -> int:
    """The first id that no class of the run has or had, before the edits or after."""
    used = (each.id + 1 for each in applied.classes)
    return max([run.unused_id, applied.constraints.next_id, *used])


def apply_edits(
    rows: Sequence[Prediction],
    classes: Sequence[FoundClass],
    edits: Sequence[Edit],
    *,
    earlier: Constraints | None = None,
    next_id: int = 0,
) -> Applied:
    """The edits in order. A moved or confirmed image is certain; a merged class is one class.

    Moves of different files commute, and so do confirmations; other edits depend on their order.

    Args:
        earlier: what the rows were refitted to; it holds, except where an edit says otherwise.
        next_id: no class that is opened gets an id below it.
    """
    earlier = earlier or Constraints()
    active = active_edits(edits)
    if not active:
        return Applied(tuple(rows), tuple(classes), earlier)
    sorting = _Sorting.start(rows, classes, earlier, next_id)
    for edit in active:
        sorting.apply(edit)
    return sorting.finish(rows)


@dataclass
class _Sorting:
    """Which class every file is in, by class id, so that names can change meanwhile."""

    place: dict[str, int]
    classes: dict[int, FoundClass]
    origin: dict[str, int]
    """The name a class began with -> what became of it."""
    next_id: int
    """Of the next class that is opened: the id of a merged one is not used again."""
    touched: set[int] = field(default_factory=set)
    """Classes whose members changed."""
    confirmed: set[str] = field(default_factory=set)
    linked: dict[str, int] = field(default_factory=dict)
    """File -> number of its must-link group."""
    groups: int = 0
    apart: set[tuple[str, int]] = field(default_factory=set)
    used_ids: int = 0
    """`next_id` of the earlier constraints."""

    @classmethod
    def start(
        cls,
        rows: Sequence[Prediction],
        classes: Sequence[FoundClass],
        earlier: Constraints,
        next_id: int,
    ) -> _Sorting:
        ids = {each.name: each.id for each in classes}
        place = {row.file_name: ids[row.class_name] for row in rows}
        next_id = max([next_id, earlier.next_id, *(number + 1 for number in ids.values())])
        new = cls(place, {each.id: each for each in classes}, ids, next_id)
        new.used_ids = earlier.next_id
        new.confirmed = {file for file in earlier.confirmed if file in place}
        new.groups = len(earlier.must_link)
        new.linked = {f: n for n, files in enumerate(earlier.must_link, 1) for f in files}
        new.apart = {(file, ids[name]) for file, name in earlier.cannot_link if name in ids}
        return new

    def apply(self, edit: Edit) -> None:
        match edit["kind"]:
            case "rename":
                self.rename(self.id_of(edit["class"]), edit["to"])
            case "merge":
                self.merge([self.id_of(name) for name in edit["classes"]], edit["to"])
            case "move":
                self.move(self.files_of(edit["files"]), edit["to"])
            case "confirm":
                self.confirm(self.files_of(edit["files"]))
            case "wrong":
                self.mark_wrong(self.files_of(edit["files"]))
            case "split":
                parts = [self.files_of(part) for part in edit["parts"]]
                self.split(self.id_of(edit["class"]), parts, edit["names"])

    def id_of(self, name: str) -> int:
        for each in self.classes.values():
            if each.name == name:
                return each.id
        names = ", ".join(sorted(c.name for c in self.classes.values()))
        raise UserError(f"class {name!r} is not known; choose from {names}")

    def files_of(self, files: Iterable[str]) -> list[str]:
        files = list(files)
        for file in files:
            if file not in self.place:
                raise UserError(f"file {file!r} is not one of the {len(self.place)} of this run")
        return files

    def has(self, name: str) -> bool:
        return any(each.name == name for each in self.classes.values())

    def new_class(self, name: str) -> int:
        if not name.strip():
            raise UserError(f"class name {name!r} is empty")
        new = self.next_id
        self.next_id += 1
        self.classes[new] = FoundClass(new, name, known=False)
        return new

    def rename(self, class_id: int, name: str) -> None:
        if not name.strip():
            raise UserError(f"class name {name!r} is empty")
        if self.has(name) and self.classes[class_id].name != name:
            raise UserError(f"there is a class {name!r} already; merge them to make them one")
        self.classes[class_id] = replace(self.classes[class_id], name=name)

    def merge(self, ids: list[int], name: str) -> None:
        if not ids:
            raise UserError(f"merge into {name!r} names no class")
        # A known class gives the merged one its id, so that what was learned of it stays.
        first = min(ids, key=lambda each: (not self.classes[each].known, ids.index(each)))
        target = self.id_of(name) if self.has(name) else first
        ids = list(dict.fromkeys([target, *ids]))
        known = any(self.classes[each].known for each in ids)
        self.apart = set(self._apart_after_merge(ids))
        self.groups += 1
        for file in [file for file, place in self.place.items() if place in ids]:
            self.place[file] = target
            if (file, target) not in self.apart:
                self.linked[file] = self.groups
        self.origin = {n: target if c in ids else c for n, c in self.origin.items()}
        for gone in ids[1:]:
            del self.classes[gone]
        self.touched.add(target)
        self.rename(target, name)
        self.classes[target] = replace(self.classes[target], known=known)

    def _apart_after_merge(self, ids: list[int]) -> Iterator[tuple[str, int]]:
        """Pairs inside the merged class go, except images that are wrong where they are."""
        for file, other in self.apart:
            if other not in ids:
                yield file, other
            elif self.place[file] == other or self.place[file] not in ids:
                yield file, ids[0]

    def move(self, files: list[str], name: str) -> None:
        target = self.id_of(name) if self.has(name) else self.new_class(name)
        for file in files:
            self.put(file, target)
        self.confirm(files)

    def put(self, file: str, target: int) -> None:
        """Put a file into a class; what tied it to another is gone."""
        if self.place[file] != target:
            self.linked.pop(file, None)
            self.touched |= {self.place[file], target}
            self.place[file] = target

    def confirm(self, files: list[str]) -> None:
        self.confirmed.update(files)
        self.apart -= {(file, self.place[file]) for file in files}

    def mark_wrong(self, files: list[str]) -> None:
        self.confirmed.difference_update(files)
        self.apart |= {(file, self.place[file]) for file in files}
        for file in files:
            self.linked.pop(file, None)

    def split(self, class_id: int, parts: list[list[str]], names: list[str]) -> None:
        name = self.classes[class_id].name
        _check_split(name, parts, names)
        for file in (file for part in parts for file in part):
            if self.place[file] != class_id:
                raise UserError(f"split of {name!r}: file {file!r} is not in it")
        for new in names:
            if new != name and self.has(new):
                raise UserError(f"split of {name!r}: there is a class {new!r} already")
        ids = [class_id if new == name else self.new_class(new) for new in names]
        for target, part in zip(ids, parts, strict=True):
            for file in part:
                self.linked.pop(file, None)
                if target != class_id:
                    self.put(file, target)
                self.apart |= {(file, other) for other in ids if other != target}

    def finish(self, rows: Sequence[Prediction]) -> Applied:
        result = tuple(self._row(row) for row in rows)
        sizes = Counter(self.place.values())
        labeled = Counter(self.place[row.file_name] for row in rows if row.labeled)
        classes = tuple(
            replace(each, count=float(sizes[each.id]), labeled=labeled[each.id])
            if each.id in self.touched
            else each
            for each in self.classes.values()
        )
        return Applied(result, classes, self._constraints())

    def _row(self, row: Prediction) -> Prediction:
        home = self.classes[self.place[row.file_name]]
        became = self.classes.get(self.origin.get(row.suggested, -1))
        suggested = became.name if became else row.suggested
        row = replace(row, class_name=home.name, known=home.known, suggested=suggested)
        if row.file_name not in self.confirmed:
            return row
        return replace(row, confidence=1.0, suspected=False, suggested="", outlier=False)

    def _constraints(self) -> Constraints:
        groups: dict[int, list[str]] = {}
        for file, group in self.linked.items():
            groups.setdefault(group, []).append(file)
        name = {each.id: each.name for each in self.classes.values()}
        confirmed = {f: name[self.place[f]] for f in self.place if f in self.confirmed}
        apart = sorted((file, name[c]) for file, c in self.apart if c in name)
        linked = tuple(tuple(sorted(files)) for files in groups.values() if len(files) > 1)
        return Constraints(confirmed, linked, tuple(apart), self.used_ids)


def _check_split(name: str, parts: Sequence[Collection[str]], names: Sequence[str]) -> None:
    files = [file for part in parts for file in part]
    if len(parts) < 2 or len(parts) != len(names) or not all(parts):
        raise UserError(f"split of {name!r} needs two or more parts with images, and their names")
    if len(set(names)) < len(names):
        raise UserError(f"split of {name!r}: two parts have the same name")
    if len(set(files)) < len(files):
        raise UserError(f"split of {name!r}: a file is in two parts")
