"""What the page shows and what its buttons do: numbers in, edits on disk, the new state out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.edits import (
    Applied,
    Edit,
    active_edits,
    append_edit,
    checked,
    corrected,
    edits_path,
    novel_number,
    read_edits,
)
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.system.text import visible

SIZES = {"small": 224, "large": 1024}  # pixels of the longer side
KINDS = ("rename", "merge", "move", "confirm", "wrong", "split", "undo")
MAX_NAME = 200  # characters


class NotThereError(LookupError):
    """A number that stands for nothing."""


class Corrections:
    """A run with its edits. The page knows images and classes by number only."""

    def __init__(self, folder: str | Path) -> None:
        self.run = DiscoverRun.load(folder)
        self.path = edits_path(self.run.folder)
        self.lock = Lock()
        self.applied()  # damaged edits are told before the page opens

    def applied(self, *more: Edit) -> Applied:
        """The run with the edits on disk, and some more that are only tried."""
        return corrected(self.run, *more)

    def state(self) -> dict[str, Any]:
        """Everything the page shows; names are made visible, their raw form is for editing."""
        rows, classes, constraints = self.applied()
        ids = {each.name: each.id for each in classes}
        wrong = set(constraints.cannot_link)
        images = [
            {
                "name": visible(row.file_name),
                "class": ids[row.class_name],
                "confidence": round(row.confidence, 4),
                "confirmed": row.file_name in constraints.confirmed,
                "wrong": (row.file_name, row.class_name) in wrong,
                "labeled": row.labeled,
                "outlier": row.outlier,
                "suggested": visible(row.suggested) if row.suspected else "",
            }
            for row in rows
        ]
        last = next(reversed(active_edits(read_edits(self.path))), None)
        return {
            "title": visible(self.run.folder.resolve().name),
            "images": images,
            "classes": [_shown(each) for each in classes],
            "undo": None if last is None else describe(last),
        }

    def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a button asks: try it, put it on disk, and give the new state."""
        if not isinstance(asked, dict):
            raise UserError("an edit is an object")
        with self.lock:
            edit = self._edit_of(asked)
            edits = read_edits(self.path)
            number = max((each.get("n", 0) for each in edits), default=0) + 1
            self.applied({"n": number, **edit})
            append_edit(self.path, edit)
        return self.state()

    def _edit_of(self, asked: Mapping[str, Any]) -> Edit:
        """The edit in file and class names that stands on disk."""
        kind = choose("edit", str(asked.get("kind")), KINDS)
        rows, classes, _ = self.applied()
        names = {each.id: each.name for each in classes}
        edit: dict[str, Any]
        match kind:
            case "undo":
                return {"kind": kind, "of": self._last()}
            case "split":
                return self._split(_found(names, asked.get("class")), asked.get("parts", 2))
            case "rename":
                edit = {"class": _found(names, asked.get("class")), "to": _name(asked.get("to"))}
            case "merge":
                merged = [_found(names, each) for each in _numbers(asked.get("classes"))]
                edit = {"classes": merged, "to": _found(names, asked.get("to"))}
            case _:
                images = _numbers(asked.get("images"))
                edit = {"files": [rows[self._row(each)].file_name for each in images]}
        if kind == "move":
            to = asked.get("to")
            edit["to"] = _name(to) if isinstance(to, str) else _found(names, to)
        return checked({"kind": kind, **edit})

    def _row(self, number: int) -> int:
        if not 0 <= number < len(self.run.rows):
            raise NotThereError(f"image {number}")
        return number

    def _last(self) -> int:
        active = active_edits(read_edits(self.path))
        if not active:
            raise UserError("there is nothing to undo")
        return int(active[-1]["n"])

    def _split(self, name: str, n_parts: Any) -> Edit:
        """Cluster one class again; its largest part keeps the name."""
        from bacon_gcd.cluster import kmeans  # torch is loaded by the first split only

        if not isinstance(n_parts, int) or not 2 <= n_parts <= 20:
            raise UserError(f"parts {n_parts!r}: a class is split into 2 to 20 parts")
        rows = [i for i, row in enumerate(self.applied().rows) if row.class_name == name]
        if len(rows) < n_parts:
            raise UserError(f"class {name!r} has {len(rows)} images, too few for {n_parts} parts")
        clusters = kmeans(self.run.features[rows], n_parts, n_init=5, seed=0).labels
        return self._split_edit(name, rows, [int(cluster) for cluster in clusters])

    def _split_edit(self, name: str, rows: Sequence[int], clusters: Sequence[int]) -> Edit:
        parts: dict[int, list[str]] = {}
        for row, cluster in zip(rows, clusters, strict=True):
            parts.setdefault(cluster, []).append(self.run.rows[row].file_name)
        if len(parts) < 2:
            raise UserError(f"the images of {name!r} are all alike: no parts were found")
        number = novel_number(read_edits(self.path), start=self.run.next_novel)
        taken = {each.name for each in self.applied().classes}
        fresh = (f"novel_{n:03d}" for n in range(number, number + len(taken) + len(parts)))
        free = [each for each in fresh if each not in taken]
        ordered = sorted(parts.values(), key=len, reverse=True)
        names = [name, *free[: len(ordered) - 1]]
        return {"kind": "split", "class": name, "parts": ordered, "names": names}

    def picture(self, number: int, size: str) -> bytes:
        """One image as JPEG, no larger than the size asked for."""
        try:
            image = self.run.image(self._row(number))
        except UserError as error:
            raise NotThereError(str(error)) from None
        side = SIZES[choose("size", size, SIZES)]
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=88)
        return buffer.getvalue()


def _shown(each: FoundClass) -> dict[str, Any]:
    return {"id": each.id, "name": visible(each.name), "raw": each.name, "known": each.known}


def _found(names: Mapping[int, str], number: Any) -> str:
    if isinstance(number, bool) or not isinstance(number, int) or number not in names:
        raise NotThereError(f"class {number}")
    return names[number]


def _numbers(values: Any) -> list[int]:
    sound = isinstance(values, list) and all(type(value) is int for value in values)
    if not sound or not values:
        raise UserError("an edit names its images and classes by number")
    return list(values)


def _name(text: Any) -> str:
    name = text.strip() if isinstance(text, str) else ""
    if not name or len(name) > MAX_NAME:
        raise UserError(f"a class needs a name of 1 to {MAX_NAME} characters")
    return name.encode("utf-8", "replace").decode()


def describe(edit: Edit) -> str:
    """An edit in a few words, for the undo button."""
    match edit["kind"]:
        case "rename":
            words = f"rename {edit['class']} to {edit['to']}"
        case "merge":
            words = f"merge into {edit['to']}"
        case "split":
            words = f"split {edit['class']}"
        case "move":
            words = f"move {len(edit['files'])} to {edit['to']}"
        case kind:
            words = f"{kind} {len(edit['files'])}"
    return visible(words)
