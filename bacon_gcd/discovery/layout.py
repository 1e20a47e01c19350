"""A folder that was given one level too high: its only class folder holds every image."""

from __future__ import annotations

import os
from pathlib import Path

from bacon_gcd.config import UserError
from bacon_gcd.data.entries import csv_columns, table_entries
from bacon_gcd.data.images import ImageTable
from bacon_gcd.system.text import command


def refuse_one_folder(
    table: ImageTable, source: Path, out: Path, features: str | Path | None = None
) -> None:
    """Refuse a folder whose every image has the name of the only class folder as its label."""
    if not source.is_dir() or len(table.class_names) != 1 or (table.labels < 0).any():
        return
    name = table.class_names[0]
    raise UserError(
        f"{source}: the only class folder is {name!r} and holds all {len(table)} images, so "
        f"nothing would be left to sort; {_remedy(table, source, out, features)}"
    )


def _remedy(table: ImageTable, source: Path, out: Path, features: str | Path | None) -> str:
    """What to do: sort what is inside, with the labels of a table beside it."""
    inside = source / os.path.commonpath([Path(name).parent for name in table.ids])
    if inside == source:
        return "move images without a label to the folder _unlabeled"
    words, hint = _with_labels(source, inside)
    words += [] if features is None else ["--features", features]
    return f"{hint}sort them with: {command('bacon', 'discover', *words, '-o', out)}"


def _with_labels(source: Path, inside: Path) -> tuple[list[object], str]:
    """What to sort, with the labels of a table beside it; and why that table cannot give any."""
    hint = ""
    for path in sorted(source.glob("*.csv")):
        if folder := _labeled_by(path, (inside, source)):
            return [folder, "--labels", path], ""
        if "file_name" in (columns := csv_columns(path)) and "label" not in columns:
            hint = f"--labels {path} needs a column label, it has {', '.join(columns)}; "
    return [inside], hint


def _labeled_by(path: Path, folders: tuple[Path, ...]) -> Path | None:
    """The folder that the file names of a table of labels are relative to; None: neither."""
    for folder in folders:
        try:
            rows = table_entries(path, root=folder)
        except UserError:
            continue
        if any((folder / row.file).is_file() for row in rows):
            return folder
    return None
