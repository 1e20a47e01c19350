"""A run under review: its edits applied as they come, and what the page shows of it.

The page has the columns of all images once; after that it is sent differences only.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from bacon_gcd.config import UserError
from bacon_gcd.discovery.apply import edited_run, replay
from bacon_gcd.discovery.edited import Changed, EditedRun
from bacon_gcd.discovery.edits import Edit, EditLog, edits_path
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.names import read_names
from bacon_gcd.discovery.second import read_second
from bacon_gcd.review.asked import (
    class_name,
    describe,
    edit_of,
    kind_of,
    n_parts,
    row_of,
    split_edit,
)
from bacon_gcd.system.text import visible

CONFIRMED, WRONG, LABELED, OUTLIER = 1, 2, 4, 8  # marks of an image; page.js knows them too
KEPT_DIFFERENCES = 500  # edits after which a page that heard of none of them loads everything
MOST_NAMES = 1000  # file names in one answer
N_NEIGHBORS = 12
N_EXAMPLES = 12


class Session:
    """A run with its edits. The page knows images and classes by number only."""

    def __init__(self, folder: str | Path) -> None:
        self.run = DiscoverRun.load(folder)
        self.proposals = read_names(self.run.folder)
        ids = {each.name: each.id for each in self.run.classes}
        self.seconds = read_second(self.run.folder, ids, len(self.run.rows))
        self.log = EditLog(edits_path(self.run.folder))
        self.lock = RLock()
        self.key = secrets.token_hex(4)
        self._number = 0
        self._differences: deque[Changed] = deque(maxlen=KEPT_DIFFERENCES)
        self.edited: EditedRun
        self.skipped: list[str]
        """What is wrong with the lines of edits.jsonl that could not be applied."""
        self._replay()

    def _replay(self) -> None:
        edited = edited_run(self.run)
        self.skipped = [visible(each) for each in replay(edited, self.log.read())]
        self.edited = edited
        self._number += 1
        self._differences.clear()

    def _catch_up(self) -> None:
        if self.log.changed():
            self._replay()

    # What the page shows

    @property
    def version(self) -> str:
        """Which edits a page has heard of."""
        return f"{self.key}.{self._number}"

    @property
    def undo(self) -> str | None:
        """What would be undone, in words; None: nothing was edited."""
        if not self.edited.n_edits:
            return None
        return describe(self.edited.last) if self.edited.last else "the edit before"

    def state(self) -> dict[str, Any]:
        """Everything: a column per fact, an entry per image."""
        with self.lock:
            everything = range(len(self.run.rows))
            suggested = {row: self.edited.suggested(row) for row in everything}
            return {
                "title": visible(self.run.folder.resolve().name),
                "key": self.key,
                "images": {
                    "class": [self.edited.class_of[row] for row in everything],
                    "confidence": [round(1000 * row.confidence) for row in self.run.rows],
                    "marks": [self._marks(row) for row in everything],
                    "suggested": {row: each for row, each in suggested.items() if each is not None},
                },
                "classes": [self._shown(each) for each in self.edited.ordered_classes()],
                "skipped": self.skipped,
                **self._stand(),
            }

    def _stand(self) -> dict[str, Any]:
        return {"version": self.version, "undo": self.undo}

    def changes(self, since: object) -> dict[str, Any]:
        """What changed since a version; everything, where that is too long ago."""
        with self.lock:
            key, _, number = since.partition(".") if isinstance(since, str) else ("", "", "")
            missed = self._number - int(number) if key == self.key and number.isdecimal() else -1
            if not 0 <= missed <= len(self._differences):
                return self.state()
            return self._difference(list(self._differences)[len(self._differences) - missed :])

    def _difference(self, missed: Iterable[Changed]) -> dict[str, Any]:
        rows: set[int] = set()
        classes: set[int] = set()
        for each in missed:
            rows |= each.rows
            classes |= each.classes
        edited = self.edited
        return {
            "changed": [
                [row, edited.class_of[row], self._marks(row), edited.suggested(row)]
                for row in sorted(rows)
            ],
            "classes": [self._shown(edited.classes[c]) for c in classes if c in edited.classes],
            "gone": [c for c in classes if c not in edited.classes],
            **self._stand(),
        }

    def _marks(self, number: int) -> int:
        row, confirmed = self.run.rows[number], number in self.edited.confirmed
        return (
            CONFIRMED * confirmed
            | WRONG * self.edited.is_wrong(number)
            | LABELED * row.labeled
            | OUTLIER * (row.outlier and not confirmed)
        )

    def _shown(self, each: FoundClass) -> dict[str, Any]:
        """Names are made visible; their raw form is for editing."""
        return {
            "id": each.id,
            "name": visible(each.name),
            "raw": each.name,
            "known": each.known,
            "count": len(self.edited.members[each.id]),
            "position": self.edited.position(each.id),
            "proposed": self._proposed(each),
        }

    def _proposed(self, each: FoundClass) -> list[list[Any]]:
        """Names that a model proposes for a new class nobody has named, with their confidence."""
        first = next((c.name for c in self.run.classes if c.id == each.id), None)
        if each.known or each.name != first:
            return []
        return [[name, round(sure, 2)] for name, sure in self.proposals.get(each.id, ())]

    def names(self, images: object) -> list[str]:
        """File names of some images."""
        if not isinstance(images, list) or not all(type(each) is int for each in images):
            raise UserError("images are named by number")
        if len(images) > MOST_NAMES:
            raise UserError(f"{len(images)} names were asked for; at most {MOST_NAMES} at once")
        rows = [row_of(self.edited, each) for each in images]
        return [visible(self.run.rows[row].file_name) for row in rows]

    def map(self) -> dict[str, list[float]]:
        """Where every image lies on the map."""
        rows = self.run.rows
        return {"x": [round(row.x, 3) for row in rows], "y": [round(row.y, 3) for row in rows]}

    def about(self, number: int) -> dict[str, Any]:
        """One image beside those it looks like and examples of its class, for the large view."""
        with self.lock:
            row = self.run.rows[row_of(self.edited, number)]
            near = [self.edited.row_of.get(name, -1) for name in row.neighbors[:N_NEIGHBORS]]
            own, other = self.edited.class_of[number], self.edited.suggested(number)
            proposed = [own] if other is None or other == own else [own, other]
            return {
                "name": visible(row.file_name),
                "label": visible(row.label),
                "second": self._second(number),
                "neighbors": [each for each in near if each >= 0],
                "examples": [self._examples(each, without=number) for each in proposed],
            }

    def _second(self, number: int) -> list[int] | None:
        """Its second choice and how sure that is, per mille; None: not known, or in it by now."""
        class_id, sure = int(self.seconds.class_ids[number]), self.seconds.confidence[number]
        if class_id not in self.edited.classes or class_id == self.edited.class_of[number]:
            return None
        return [class_id, round(1000 * float(sure))]

    def _examples(self, class_id: int, *, without: int) -> dict[str, Any]:
        """Labeled and confirmed images of a class; where it has none, its surest ones."""
        members = [row for row in self.edited.members[class_id] if row != without]
        right = [row for row in members if not self.edited.is_wrong(row)]
        sure = [r for r in right if self.run.rows[r].labeled or r in self.edited.confirmed]
        rows = sorted(sure or right, key=lambda r: (-self.run.rows[r].confidence, r))
        return {"class": class_id, "labeled": bool(sure), "images": rows[:N_EXAMPLES]}

    # What its buttons do

    def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a button asks: apply it, put it on disk, tell what changed.

        It is tried while no other program can write to the file; if it cannot be applied or
        written, nothing changes.
        """
        clusters = self._clusters(asked) if kind_of(asked) == "split" else {}
        with self.lock:
            since = asked.get("since", self.version)
            with self.log.lock:
                self._catch_up()
                if kind_of(asked) == "undo":
                    changed = self._undo()
                elif clusters:
                    name = class_name(self.edited, asked.get("class"))
                    changed = self._do(split_edit(self.edited, name, clusters))
                else:
                    changed = self._do(edit_of(asked, self.edited))
            self._number += 1
            self._differences.append(changed)
            return self.changes(since)

    def _do(self, edit: Edit) -> Changed:
        numbered = {**edit, "n": self.log.next_number}
        changed = self.edited.apply(numbered)
        opened = {"opens": list(changed.opened)} if changed.opened else {}
        try:
            self.log.append({**numbered, **opened})
        except BaseException:
            self.edited.take_back()
            raise
        return changed

    def _undo(self) -> Changed:
        if not self.edited.n_edits:
            raise UserError("there is nothing to undo")
        if self.edited.last is None:
            self._replay()
        if self.edited.last is None:
            raise UserError("there is nothing to undo")
        self.log.append({"kind": "undo", "of": self.edited.last["n"]})
        return self.edited.take_back()

    def _clusters(self, asked: Mapping[str, Any]) -> dict[int, int]:
        """Row -> part of the class that is to be split; others may edit meanwhile."""
        from bacon_gcd.cluster import kmeans  # torch is loaded by the first split only

        parts = n_parts(asked.get("parts", 2))
        with self.lock:
            name = class_name(self.edited, asked.get("class"))
            rows = sorted(self.edited.members[self.edited.ids[name]])
        if len(rows) < parts:
            raise UserError(f"class {name!r} has {len(rows)} images, too few for {parts} parts")
        found = kmeans(self.run.features[rows], parts, n_init=5, seed=0).labels
        return {row: int(cluster) for row, cluster in zip(rows, found, strict=True)}
