"""What the page asks for, in numbers of images and classes, as edits in names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.edited import EditedRun
from bacon_gcd.discovery.edits import KINDS, Edit, checked
from bacon_gcd.discovery.folder import unused_names
from bacon_gcd.system.text import visible

MAX_NAME = 200  # characters
MAX_PARTS = 20


class NotThereError(LookupError):
    """A number that stands for nothing."""


def kind_of(asked: Mapping[str, Any]) -> str:
    """The kind of edit."""
    return choose("edit", str(asked.get("kind")), KINDS)


def edit_of(asked: Mapping[str, Any], edited: EditedRun) -> Edit:
    """The edit that stands on disk. Splits and undos are made elsewhere."""
    kind = kind_of(asked)
    edit: dict[str, Any]
    match kind:
        case "rename":
            edit = {"class": class_name(edited, asked.get("class")), "to": _name(asked.get("to"))}
        case "merge":
            merged = [class_name(edited, each) for each in _numbers(asked.get("classes"))]
            edit = {"classes": merged, "to": class_name(edited, asked.get("to"))}
        case _:
            images = _numbers(asked.get("images"))
            edit = {"files": [edited.rows[row_of(edited, each)].file_name for each in images]}
    if kind == "move":
        to = asked.get("to")
        edit["to"] = _name(to) if isinstance(to, str) else class_name(edited, to)
    return checked({"kind": kind, **edit})


def split_edit(edited: EditedRun, name: str, clusters: Mapping[int, int]) -> Edit:
    """Part a class; its largest part keeps the name, or that with most images of a person's.

    Images with a label and confirmed ones all stay in it: a person has put them there.

    clusters: row -> part.
    """
    fixed = {row for row in clusters if edited.rows[row].labeled or row in edited.confirmed}
    sizes = Counter(clusters.values())
    of_person = Counter(clusters[row] for row in fixed)
    kept = max(sizes, key=lambda part: (of_person[part], sizes[part]))
    parts: dict[int, list[str]] = {kept: []}
    for row, part in clusters.items():
        target = kept if row in fixed else part
        parts.setdefault(target, []).append(edited.rows[row].file_name)
    if len(parts) < 2:
        raise UserError(f"the images of {name!r} are all alike: no parts were found")
    others = sorted((parts[part] for part in parts if part != kept), key=len, reverse=True)
    ordered = [parts[kept], *others]
    opens = list(range(edited.next_id, edited.next_id + len(parts) - 1))
    names = [name, *unused_names(edited.ordered_classes(), edited.next_id, len(opens))]
    return {"kind": "split", "class": name, "parts": ordered, "names": names, "opens": opens}


def n_parts(value: Any) -> int:
    """Into how many parts a class is split."""
    if type(value) is not int or not 2 <= value <= MAX_PARTS:
        raise UserError(f"parts {value!r}: a class is split into 2 to {MAX_PARTS} parts")
    return value


def row_of(edited: EditedRun, number: int) -> int:
    """The number itself if there is such an image."""
    if not 0 <= number < len(edited.rows):
        raise NotThereError(f"image {number}")
    return number


def class_name(edited: EditedRun, number: Any) -> str:
    """The name of the class with this id."""
    if type(number) is not int or number not in edited.classes:
        raise NotThereError(f"class {number}")
    return edited.classes[number].name


def _numbers(values: Any) -> Sequence[int]:
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
