"""The folder of a discover run: predictions, classes, features, and the person's own images.

predictions.parquet is what is read again; predictions.csv holds the same rows for spreadsheets.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from bacon_gcd.config import UserError, one_line, read_toml
from bacon_gcd.data.array_files import read_npy
from bacon_gcd.data.entries import extensions
from bacon_gcd.data.images import TABLES, ImageTable, read_npz
from bacon_gcd.data.pixels import Box, FileSource
from bacon_gcd.discovery import second as seconds
from bacon_gcd.system.files import read_json, write_atomic, write_json
from bacon_gcd.system.tables import write_csv, write_parquet

BOX = re.compile(r"(?P<file>.+)#(\d+),(\d+),(\d+),(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Prediction:
    """What was found out about one image."""

    file_name: str
    """The table's id: relative to the source, forward slashes, `#x,y,width,height` for a box."""
    class_name: str
    """Stored as the column `class`."""
    known: bool
    confidence: float
    """0 to 1."""
    known_probability: float = 0.0
    """0 to 1, of all known classes together; 1 for labeled images."""
    labeled: bool = False
    """It came with a label."""
    label: str = ""
    outlier: bool = False
    suspected: bool = False
    """A labeled image that looks like another class, which is `suggested`."""
    suggested: str = ""
    x: float = 0.0
    y: float = 0.0
    neighbors: tuple[str, ...] = ()
    """File names, nearest first."""

    def cells(self) -> dict[str, Any]:
        """Column name -> value, in the order of the files."""
        return {COLUMNS[f.name]: getattr(self, f.name) for f in fields(self)}


COLUMNS = {f.name: "class" if f.name == "class_name" else f.name for f in fields(Prediction)}
SCHEMA = pa.schema(
    [
        ("file_name", pa.string()),
        ("class", pa.string()),
        ("known", pa.bool_()),
        ("confidence", pa.float64()),
        ("known_probability", pa.float64()),
        ("labeled", pa.bool_()),
        ("label", pa.string()),
        ("outlier", pa.bool_()),
        ("suspected", pa.bool_()),
        ("suggested", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("neighbors", pa.list_(pa.string())),
    ]
)


class ListedDuplicates(TypedDict):
    """An entry of duplicates.json."""

    kind: str
    files: list[str]


@dataclass(frozen=True)
class FoundClass:
    """A known class or a newly found one."""

    id: int
    """Stable for ever."""
    name: str
    known: bool
    labeled: int = 0
    count: float = 0.0
    """Estimated number of images."""
    named: bool = False
    """A new class whose name a person chose."""


def unused_names(
    classes: Iterable[FoundClass], next_id: int, n_names: int, *, taken: Iterable[str] = ()
) -> list[str]:
    """Names for new classes with the ids `next_id`, `next_id` + 1, ...: novel_000, novel_001, ...

    The number is the id without counting the known classes, so that it only grows while ids do;
    names that a class has already, or that are in `taken`, are passed over.
    """
    classes = tuple(classes)
    used = {each.name for each in classes} | set(taken)
    numbers = count(next_id - sum(each.known for each in classes))
    names = (f"novel_{number:03d}" for number in numbers)
    return list(islice((name for name in names if name not in used), n_names))


@dataclass(frozen=True, eq=False)
class DiscoverRun:
    """A discover run as it was written, before any edit."""

    folder: Path
    config: Mapping[str, Any]
    rows: tuple[Prediction, ...]
    classes: tuple[FoundClass, ...]
    next_id: int
    """The first id that no class has or had; no id is used twice."""

    @classmethod
    def load(cls, folder: str | Path) -> DiscoverRun:
        """Read a run; a missing or damaged file is one line that names it."""
        folder = Path(folder)
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; make a run with: bacon discover")
        classes, next_id = read_classes(folder / "classes.json")
        rows = read_predictions(folder / "predictions.parquet")
        if unknown := {row.class_name for row in rows} - {c.name for c in classes}:
            raise UserError(f"{folder / 'classes.json'}: class {min(unknown)!r} is not in it")
        return cls(folder, read_toml(folder / "config.toml"), rows, classes, next_id)

    @property
    def source(self) -> Path:
        """What the person gave: a folder, a table or an .npz file."""
        if not isinstance(given := self.config.get("source"), str) or not given:
            raise UserError(f"{self.folder / 'config.toml'}: no `source` in it")
        return Path(given)

    @property
    def root(self) -> Path:
        """The folder that file names are relative to, those of added images excepted."""
        return _root(self.source)

    @cached_property
    def added(self) -> dict[str, Path]:
        """Sources of later updates by the first part of their images' names."""
        return {key: Path(each["source"]) for key, each in self.config.get("added", {}).items()}

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of all sources."""
        return (self.root, *(_root(source) for source in self.added.values()))

    def source_of(self, row: int) -> tuple[Path, str]:
        """Where one image comes from, and its name there."""
        name = self.rows[row].file_name
        key, _, rest = name.partition("/")
        return (self.added[key], rest) if key in self.added else (self.source, name)

    @cached_property
    def features(self) -> npt.NDArray[np.float32]:
        """(N, D) unit features, rows as the predictions, memory-mapped."""
        return self._matrix("features.npy")

    @cached_property
    def probabilities(self) -> npt.NDArray[np.float32] | None:
        """(N, C) of each class for each image; None where the model's centroids tell them."""
        if not (self.folder / "probabilities.npy").exists():
            return None
        found = self._matrix("probabilities.npy")
        if found.shape[1] != len(self.classes):
            raise UserError(
                f"{self.folder / 'probabilities.npy'}: has {found.shape[1]} columns, but there "
                f"are {len(self.classes)} classes"
            )
        return found

    def _matrix(self, name: str) -> npt.NDArray[np.float32]:
        """A stored matrix with a row for each image, memory-mapped."""
        path = self.folder / name
        found = read_npy(path, mapped=True)
        if found.ndim != 2 or len(found) != len(self.rows):
            raise UserError(
                f"{path}: has shape {found.shape}, but there are {len(self.rows)} images"
            )
        return np.asarray(found)

    def listed_duplicates(self) -> list[ListedDuplicates]:
        """The groups of images that show the same, as duplicates.json lists them."""
        path = self.folder / "duplicates.json"
        try:
            found = read_json(path, list[ListedDuplicates], what="the duplicates of a run")
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        names = {row.file_name for row in self.rows}
        if not all(names.issuperset(group["files"]) for group in found):
            raise UserError(f"{path}: names an image that the run does not have")
        return list(found)

    def file_of(self, row: int) -> Path:
        """The image's file; a name that leads out of the source folder is refused.

        Links inside the folder are followed, as discover does.
        """
        source, name = self.source_of(row)
        root = _root(source)
        path = root / _on_disk(root, name)
        if ".." in Path(name).parts or not path.absolute().is_relative_to(root.absolute()):
            raise UserError(f"{name!r} leads out of {root}")
        if root.is_file():
            raise UserError(f"{name!r} is inside {root} and has no file of its own")
        return path

    def image(self, row: int) -> Image.Image:
        """Open one image: RGB, upright, cut to its box."""
        source, name = self.source_of(row)
        if source.suffix.lower() == ".npz":
            arrays, rows = self._arrays(source)
            return arrays.image(rows[name])
        file, box = self.file_of(row), _box(_root(source), name)
        return FileSource(file.parent, (file.name,), (box,)).image(0)

    @cached_property
    def _opened(self) -> dict[Path, tuple[ImageTable, dict[str, int]]]:
        return {}

    def _arrays(self, source: Path) -> tuple[ImageTable, dict[str, int]]:
        """The images of an .npz file, read once, and the row of each name."""
        if source not in self._opened:
            table = read_npz(source)
            self._opened[source] = table, {name: row for row, name in enumerate(table.ids)}
        return self._opened[source]


def _root(source: Path) -> Path:
    """The folder that a source's file names are relative to."""
    is_file = source.suffix.lower() in (*TABLES, *extensions()) and not source.is_dir()
    return source.parent if is_file else source


def _on_disk(root: Path, name: str) -> str:
    """The file's own name: without a box, and with the bytes that UTF-8 cannot hold."""
    found = BOX.fullmatch(name)
    if "\0" in name:
        raise UserError(f"{name!r} cannot be a file's name")
    file = found["file"] if found and not os.path.lexists(root / name) else name
    if os.path.lexists(root / file):
        return file
    return re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda code: chr(int(code[1], 16)), file)


def _box(root: Path, name: str) -> Box | None:
    found = BOX.fullmatch(name)
    if found is None or os.path.lexists(root / name):
        return None
    return Box(*(int(number) for number in found.groups()[1:]))


def write_predictions(
    folder: Path,
    rows: Iterable[Prediction],
    classes: Iterable[FoundClass],
    *,
    next_id: int,
    second: seconds.Second | None = None,
) -> None:
    """Write predictions.parquet, predictions.csv and classes.json, each whole or not at all.

    second: the second choices of the images, which stand behind the other columns.
    """
    cells, schema = [row.cells() for row in rows], SCHEMA
    listed = [asdict(each) for each in classes]
    if second is not None:
        more = second.cells([each["name"] for each in listed])
        cells = [own | beside for own, beside in zip(cells, more, strict=True)]
        schema = pa.schema([*SCHEMA, *seconds.COLUMNS.items()])
    write_parquet(folder / "predictions.parquet", cells, schema=schema)
    flat = [cell | {"neighbors": ";".join(cell["neighbors"])} for cell in cells]
    write_csv(folder / "predictions.csv", flat, columns=schema.names)
    write_json(folder / "classes.json", {"classes": listed, "next_id": next_id})


def write_matrix(path: Path, values: npt.NDArray[np.floating[Any]]) -> None:
    """Write a .npy of float32 with a row for each image, in the order of the predictions."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values, dtype=np.float32), allow_pickle=False)
    write_atomic(path, buffer.getvalue())


def read_predictions(path: Path) -> tuple[Prediction, ...]:
    """The rows of predictions.parquet."""
    try:
        cells = pq.read_table(path).select(SCHEMA.names).cast(SCHEMA).to_pylist()
        rows = tuple(_prediction(each) for each in cells)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is this the folder of a discover run?") from None
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not the predictions of a run: {one_line(error)}") from None
    names = {row.file_name for row in rows}
    if len(names) < len(rows):
        raise UserError(f"{path}: two rows have the same file_name")
    if not all(names.issuperset(row.neighbors) for row in rows):
        raise UserError(f"{path}: a neighbor is not one of the images")
    return rows


def _prediction(cells: dict[str, Any]) -> Prediction:
    if any(value is None for value in cells.values()):
        raise TypeError(f"an empty cell in the row of {cells['file_name']!r}")
    neighbors = tuple(cells.pop("neighbors"))
    return Prediction(class_name=cells.pop("class"), neighbors=neighbors, **cells)


@dataclass(frozen=True)
class _StoredClasses:
    """classes.json."""

    classes: tuple[FoundClass, ...]
    next_id: int | None = None
    next_novel: int | None = None
    """Of version 0.1, in place of `next_id`."""


def read_classes(path: Path) -> tuple[tuple[FoundClass, ...], int]:
    """The classes of classes.json, and the first id that none of them has or had."""
    try:
        stored: _StoredClasses = read_json(path, _StoredClasses, what="the classes of a run")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is this the folder of a discover run?") from None
    classes = stored.classes
    if stored.next_id is not None:
        next_id = max([stored.next_id, *(each.id + 1 for each in classes)])
    elif stored.next_novel is not None:
        classes, next_id = _from_version_0_1(classes, stored.next_novel)
    else:
        raise UserError(f"{path}: not the classes of a run: it has no `next_id`")
    for what in ("id", "name"):
        if len({getattr(each, what) for each in classes}) < len(classes):
            raise UserError(f"{path}: two classes have the same {what}")
    return classes, next_id


def _from_version_0_1(
    classes: Sequence[FoundClass], next_novel: int
) -> tuple[tuple[FoundClass, ...], int]:
    """Version 0.1 had numbers in place of ids (`next_novel`), and did not say who chose a name."""
    chosen = re.compile(r"novel_\d+")
    found = (replace(c, named=not c.known and not chosen.fullmatch(c.name)) for c in classes)
    by_number = next_novel + sum(each.known for each in classes)
    return tuple(found), max([by_number, *(each.id + 1 for each in classes)])
