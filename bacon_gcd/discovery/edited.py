"""Images and classes of a run under a person's edits, changed one edit at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bacon_gcd.config import UserError
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.edits import Edit
from bacon_gcd.discovery.folder import FoundClass, Prediction
from bacon_gcd.discovery.journal import Change, Journal


class Applied(NamedTuple):
    """The predictions and classes after the edits."""

    rows: tuple[Prediction, ...]
    classes: tuple[FoundClass, ...]
    constraints: Constraints
    next_id: int
    """The first id that no class has or had, before the edits or after."""


@dataclass(frozen=True)
class Changed:
    """What an edit or its undo changed."""

    rows: frozenset[int]
    """Rows of images that show otherwise now."""
    classes: frozenset[int]
    """Ids of classes that were opened, changed or are gone."""
    opened: tuple[int, ...] = ()
    """Ids of the classes that the edit opened."""


class EditedRun:
    """Images and classes of a run under its edits.

    All state is in tables (dicts) that change through a journal. So an edit that fails leaves
    nothing behind, the last edit can be taken back, and what an edit changed is known, each at the
    cost of that edit alone.

    Args:
        earlier: what the rows were refitted to; it holds, except where an edit says otherwise.
        next_id: no class that is opened gets an id below it.
    """

    def __init__(
        self,
        rows: Sequence[Prediction],
        classes: Sequence[FoundClass],
        *,
        earlier: Constraints | None = None,
        next_id: int = 0,
    ) -> None:
        earlier = earlier or Constraints()
        self.rows = tuple(rows)
        self.row_of = {row.file_name: number for number, row in enumerate(self.rows)}
        self.classes = {each.id: each for each in classes}
        self.ids = {each.name: each.id for each in classes}
        self.first_id = dict(self.ids)
        self.class_of = {number: self.ids[row.class_name] for number, row in enumerate(self.rows)}
        self.members: dict[int, dict[int, None]] = {each.id: {} for each in classes}
        for number, class_id in self.class_of.items():
            self.members[class_id][number] = None
        self.next_id = max([next_id, earlier.next_id, *(each.id + 1 for each in classes)])
        self._position = {each.id: number for number, each in enumerate(classes)}
        self._earlier = earlier
        self._became: dict[int, int] = {}  # class id of the run -> the class it was merged into
        self._changed_size: dict[int, None] = {}  # classes whose members changed
        self.confirmed: dict[int, None] = {}
        self._group: dict[int, int] = {}  # row -> number of its must-link group
        self._next_group = len(earlier.must_link) + 1
        self.barred: dict[int, frozenset[int]] = {}  # row -> classes that it must not be in
        self._barred_rows: dict[int, dict[int, None]] = {}  # the same by class
        self._suggesting: dict[int, list[int]] = {}  # class id of the run -> rows it is proposed to
        self._journal = Journal()
        self._set, self._drop = self._journal.set, self._journal.drop
        self._begin(earlier)

    def _begin(self, earlier: Constraints) -> None:
        row_of, ids = self.row_of, self.ids
        self.confirmed = {row_of[file]: None for file in earlier.confirmed if file in row_of}
        for number, files in enumerate(earlier.must_link, 1):
            self._group |= {row_of[file]: number for file in files if file in row_of}
        for file, name in earlier.cannot_link:
            if file in row_of and name in ids:
                self._bar(row_of[file], ids[name])
        for number, row in enumerate(self.rows):
            if row.suggested in ids:
                self._suggesting.setdefault(ids[row.suggested], []).append(number)
        self._journal.changes.clear()

    def apply(self, edit: Edit) -> Changed:
        """One more edit; one that cannot be applied changes nothing and says why."""
        next_id = self.next_id
        try:
            opened = self._apply(edit)
        except UserError:
            self._journal.cancel_step()
            self.next_id = next_id
            raise
        return self._summary(self._journal.end_step(edit), opened)

    @property
    def n_edits(self) -> int:
        """Edits that count, without those that were taken back."""
        return self._journal.n_steps

    @property
    def last(self) -> Edit | None:
        """The edit that `take_back` undoes; None: there is none, or it is too long ago."""
        return self._journal.last.edit if self._journal.last else None

    def take_back(self) -> Changed:
        """Undo the `last` edit; an id that it used is not used again."""
        if self._journal.last is None:
            raise UserError("there is no edit to take back")
        summary = self._summary(self._journal.last.changes)
        self._journal.take_back()
        return summary

    def skip(self, edit: Edit) -> None:
        """An edit that was undone: the ids of its classes stay used."""
        self.next_id = max([self.next_id, *(each + 1 for each in edit.get("opens", ()))])

    def _summary(self, changes: Sequence[Change], opened: Iterable[int] = ()) -> Changed:
        rows: set[int] = set()
        classes: set[int] = set()
        for table, key, before in changes:
            if table is self.class_of:
                rows.add(key)
                classes |= {before, self.class_of[key]}
            elif table is self.confirmed or table is self.barred:
                rows.add(key)
            elif table is self.classes:
                classes.add(key)
            elif table is self._became:
                rows.update(self._suggesting.get(key, ()))
        return Changed(frozenset(rows), frozenset(classes), tuple(opened))

    def _apply(self, edit: Edit) -> list[int]:
        """Do what the edit says. Returns the ids of the classes it opened."""
        match edit["kind"]:
            case "rename":
                self._rename(self.id_of(edit["class"]), edit["to"])
            case "merge":
                self._merge([self.id_of(name) for name in edit["classes"]], edit["to"])
            case "confirm":
                self._confirm(self._rows_of(edit["files"]))
            case "wrong":
                self._mark_wrong(self._rows_of(edit["files"]))
            case "move":
                rows = self._rows_of(edit["files"])
                return self._move(rows, edit["to"], deque(edit.get("opens", ())))
            case "split":
                parts = [self._rows_of(part) for part in edit["parts"]]
                opens = deque(edit.get("opens", ()))
                return self._split(self.id_of(edit["class"]), parts, edit["names"], opens)
        return []

    def id_of(self, name: str) -> int:
        """The id of the class that has this name now."""
        if name not in self.ids:
            raise UserError(f"class {name!r} is not known; choose from {', '.join(self._names())}")
        return self.ids[name]

    def _names(self) -> list[str]:
        return sorted(self.ids)

    def _rows_of(self, files: Iterable[str]) -> list[int]:
        files = list(dict.fromkeys(files))
        for file in files:
            if file not in self.row_of:
                raise UserError(f"file {file!r} is not one of the {len(self.rows)} of this run")
        return [self.row_of[file] for file in files]

    def _open(self, name: str, opens: deque[int]) -> int:
        """A new class; with the id that the edit recorded for it, or the next unused one."""
        new = opens.popleft() if opens else self.next_id
        if new in self.classes or new in self._position:
            raise UserError(f"class {name!r}: its id {new} belongs to another class")
        self._set(self.classes, new, FoundClass(new, "", known=False))
        self._set(self.members, new, {})
        self._name(new, name)
        self.next_id = max(self.next_id, new + 1)
        return new

    def _name(self, class_id: int, name: str) -> None:
        if not name.strip():
            raise UserError(f"class name {name!r} is empty")
        if self.ids.get(name, class_id) != class_id:
            raise UserError(f"there is a class {name!r} already; merge them to make them one")
        self._drop(self.ids, self.classes[class_id].name)
        self._set(self.ids, name, class_id)
        self._set(self.classes, class_id, replace(self.classes[class_id], name=name))

    _rename = _name

    def _merge(self, ids: list[int], name: str) -> None:
        if not ids:
            raise UserError(f"merge into {name!r} names no class")
        # A known class gives the merged one its id, so that what was learned of it stays.
        first = min(ids, key=lambda each: (not self.classes[each].known, ids.index(each)))
        target = self.ids.get(name, first)
        ids = list(dict.fromkeys([target, *ids]))
        known = any(self.classes[each].known for each in ids)
        self._bar_after_merge(ids)
        for row in sorted(row for each in ids for row in self.members[each]):
            self._put(row, target)
            if target not in self.barred.get(row, ()):
                self._set(self._group, row, self._next_group)
        self._next_group += 1
        for first_id in self.first_id.values():
            if self._became.get(first_id, first_id) in ids[1:]:
                self._set(self._became, first_id, target)
        for gone in ids[1:]:
            self._drop(self.ids, self.classes[gone].name)
            self._drop(self.classes, gone)
        self._set(self._changed_size, target, None)
        self._name(target, name)
        self._set(self.classes, target, replace(self.classes[target], known=known))

    def _bar_after_merge(self, ids: list[int]) -> None:
        """Pairs inside the merged class go, except images that are wrong where they are."""
        pairs = [(row, other) for other in ids for row in self._barred_rows.get(other, ())]
        now = self.class_of
        stays = {row for row, other in pairs if now[row] == other or now[row] not in ids}
        for row, other in pairs:
            self._unbar(row, other)
        for row in sorted(stays):
            self._bar(row, ids[0])

    def _move(self, rows: list[int], name: str, opens: deque[int]) -> list[int]:
        opened = [] if name in self.ids else [self._open(name, opens)]
        for row in rows:
            self._put(row, self.ids[name])
        self._confirm(rows)
        return opened

    def _put(self, row: int, target: int) -> None:
        """Put an image into a class; the group that tied it to another class is gone."""
        before = self.class_of[row]
        if before != target:
            self._drop(self._group, row)
            self._set(self.class_of, row, target)
            self._drop(self.members[before], row)
            self._set(self.members[target], row, None)
            self._set(self._changed_size, before, None)
            self._set(self._changed_size, target, None)

    def _confirm(self, rows: list[int]) -> None:
        for row in rows:
            self._set(self.confirmed, row, None)
            self._unbar(row, self.class_of[row])

    def _mark_wrong(self, rows: list[int]) -> None:
        for row in rows:
            self._drop(self.confirmed, row)
            self._bar(row, self.class_of[row])
            self._drop(self._group, row)

    def _bar(self, row: int, class_id: int) -> None:
        self._set(self.barred, row, self.barred.get(row, frozenset()) | {class_id})
        self._set(self._barred_rows.setdefault(class_id, {}), row, None)

    def _unbar(self, row: int, class_id: int) -> None:
        left = self.barred.get(row, frozenset()) - {class_id}
        if left:
            self._set(self.barred, row, left)
        else:
            self._drop(self.barred, row)
        self._drop(self._barred_rows.get(class_id, {}), row)

    def _split(
        self, class_id: int, parts: list[list[int]], names: list[str], opens: deque[int]
    ) -> list[int]:
        name = self.classes[class_id].name
        _check_split(name, parts, names)
        for row in (row for part in parts for row in part):
            if self.class_of[row] != class_id:
                raise UserError(
                    f"split of {name!r}: file {self.rows[row].file_name!r} is not in it"
                )
        for new in names:
            if new != name and new in self.ids:
                raise UserError(f"split of {name!r}: there is a class {new!r} already")
        ids = [class_id if new == name else self._open(new, opens) for new in names]
        for target, part in zip(ids, parts, strict=True):
            for row in part:
                self._drop(self._group, row)
                self._put(row, target)
                for other in ids:
                    if other != target:
                        self._bar(row, other)
        return [each for each in ids if each != class_id]

    def suggested(self, row: int) -> int | None:
        """The class that a labeled image looks like, if it is not its own and nobody decided."""
        said = self.rows[row]
        first = self.first_id.get(said.suggested)
        if not said.suspected or row in self.confirmed or first is None:
            return None
        return self._became.get(first, first)

    def is_wrong(self, row: int) -> bool:
        """Whether the image is marked as wrong where it is."""
        return self.class_of[row] in self.barred.get(row, ())

    def position(self, class_id: int) -> int:
        """A number to order classes by: those of the run in their order, then opened ones."""
        return self._position.get(class_id, len(self._position) + class_id)

    def ordered_classes(self) -> list[FoundClass]:
        """The classes of the run in their order, then those that edits opened."""
        return [self.classes[each] for each in sorted(self.classes, key=self.position)]

    def result(self) -> Applied:
        """The run as corrected; without an edit, as it was written."""
        if not self.n_edits:
            return Applied(self.rows, tuple(self.ordered_classes()), self._earlier, self.next_id)
        rows = tuple(self._corrected_row(number) for number in range(len(self.rows)))
        classes = tuple(self._counted(each) for each in self.ordered_classes())
        return Applied(rows, classes, self._constraints(), self.next_id)

    def _counted(self, each: FoundClass) -> FoundClass:
        if each.id not in self._changed_size:
            return each
        members = self.members[each.id]
        labeled = sum(self.rows[row].labeled for row in members)
        return replace(each, count=float(len(members)), labeled=labeled)

    def _corrected_row(self, number: int) -> Prediction:
        row, own = self.rows[number], self.classes[self.class_of[number]]
        if number in self.confirmed:
            return replace(
                row,
                class_name=own.name,
                known=own.known,
                confidence=1.0,
                suspected=False,
                suggested="",
                outlier=False,
            )
        first = self.first_id.get(row.suggested, -1)
        became = self.classes.get(self._became.get(first, first))
        suggested = became.name if became else row.suggested
        if (own.name, own.known, suggested) == (row.class_name, row.known, row.suggested):
            return row
        return replace(row, class_name=own.name, known=own.known, suggested=suggested)

    def _constraints(self) -> Constraints:
        groups: dict[int, list[str]] = {}
        for row, group in self._group.items():
            groups.setdefault(group, []).append(self.rows[row].file_name)
        linked = tuple(tuple(sorted(groups[each])) for each in sorted(groups))
        apart = sorted(
            (self.rows[row].file_name, self.classes[each].name)
            for row, barred in self.barred.items()
            for each in barred
            if each in self.classes
        )
        confirmed = {
            self.rows[row].file_name: self.classes[self.class_of[row]].name
            for row in sorted(self.confirmed)
        }
        linked = tuple(files for files in linked if len(files) > 1)
        return Constraints(confirmed, linked, tuple(apart), self._earlier.next_id)


def _check_split(name: str, parts: Sequence[Collection[int]], names: Sequence[str]) -> None:
    rows = [row for part in parts for row in part]
    if len(parts) < 2 or len(parts) != len(names) or not all(parts):
        raise UserError(f"split of {name!r} needs two or more parts with images, and their names")
    if len(set(names)) < len(names):
        raise UserError(f"split of {name!r}: two parts have the same name")
    if len(set(rows)) < len(rows):
        raise UserError(f"split of {name!r}: a file is in two parts")
