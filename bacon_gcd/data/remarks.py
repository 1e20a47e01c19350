"""Lines for the person about how a folder or a table was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bacon_gcd.data.entries import Entry, Quarantined, plain_text
from bacon_gcd.system.text import count

N_NAMED = 3  # folders in one line
ROW_ALONE = "a label without a file"
"""How the reason begins for a row of a table that names no file."""


def is_row_alone(reason: str) -> bool:
    """Whether this is why a row, which names no file, was set aside."""
    return reason.startswith(ROW_ALONE)


def labels_alone(number: int) -> str:
    """So many such rows, in words."""
    return count(number, "label without a file", "labels without a file")


def split_remark(splits: Mapping[str, str]) -> list[str]:
    """One line that says that splits were recognised, if they were."""
    if not splits:
        return []
    names = ", ".join(f"{plain_text(name)}/" for name in sorted(splits))
    return [f"{names} taken for splits; classes are the folders inside"]


def similar_names_remark(names: Iterable[str]) -> list[str]:
    """One line for each group of class names that differ only in case or blanks."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.casefold().split()), []).append(name)
    return [
        f"classes {', '.join(map(repr, sorted(group)))} differ only in case or blanks;"
        " they are different classes here"
        for group in groups.values()
        if len(group) > 1
    ]


def nested_remark(entries: Iterable[Entry], splits: Mapping[str, str]) -> list[str]:
    """One line where class folders hold folders with images: which label those images have."""
    labeled = [entry for entry in entries if entry.label is not None]
    inner = {_inner_folder(entry.file, splits): str(entry.label) for entry in labeled}
    if not (folders := sorted(set(inner) - {""})):
        return []
    labels = sorted({inner[folder] for folder in folders})
    word = "label" if len(labels) == 1 else "labels"
    line = (
        "folders inside class folders are not classes: "
        f"images in {_some(folders)} have the {word} {_some(labels)}"
    )
    if len(folders) > 1 and len({entry.label for entry in labeled}) == 1:
        line += f"; if they are classes, give the folder {_above(folders[0])} itself"
    return [line]


def _inner_folder(file: str, splits: Mapping[str, str]) -> str:
    """The folder inside the class folder that an image lies in; empty where there is none."""
    *folders, _ = file.split("/")
    depth = 3 if folders[0] in splits else 2
    return plain_text("/".join(folders[:depth])) if len(folders) >= depth else ""


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = [f"{len(names) - N_NAMED} more"] if len(names) > N_NAMED else []
    return ", ".join([*names[:N_NAMED], *more])


def unused_folders_remark(labels: Path, entries: Iterable[Entry]) -> list[str]:
    """One line that says that a table of labels takes the place of class folders, if it does."""
    n_classes = len({entry.label for entry in entries} - {None})
    if not n_classes:
        return []
    names = f"the names of {n_classes} class folders are"
    if n_classes == 1:
        names = "the name of the class folder is"
    return [f"labels of {labels.name} are used; {names} not"]


def missing_remark(table: Path, bad: Iterable[Quarantined]) -> list[str]:
    """One line about rows of a table that name no file, if there are any."""
    missing = [each.id for each in bad if is_row_alone(each.reason)]
    if not missing:
        return []
    if len(missing) == 1:
        return [f"1 row of {table.name} names no image: {missing[0]}"]
    return [f"{len(missing)} rows of {table.name} name no image, first: {missing[0]}"]


def unreadable_remark(bad: Sequence[Quarantined]) -> list[str]:
    """One line about files that cannot be read, if there are any."""
    if not bad:
        return []
    first = f"{bad[0].id} ({bad[0].reason})"
    if len(bad) == 1:
        return [f"1 image cannot be read: {first}"]
    return [f"{len(bad)} images cannot be read, first: {first}"]
