"""What a folder or a table says about each image, before any pixel is read."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError, choose, one_line
from bacon_gcd.data.pixels import HEIF_EXTENSIONS, Box, IntArray, heif_problem

JPEG_EXTENSIONS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
EXTENSIONS = JPEG_EXTENSIONS | {".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
UNREAD_IMAGES = frozenset(
    {".avif", ".jxl", ".jp2", ".svg", ".psd", ".dcm"}
    | {".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"}  # of cameras
)
SPLITS = ("train", "test")
SPLIT_FOLDERS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_FOLDERS |= dict.fromkeys(("val", "valid", "validation"), "val")
UNLABELED_FOLDERS = frozenset({"_unlabeled", "unlabeled", "_unlabelled", "unlabelled"})
UNLABELED_TEXTS = frozenset({"", "-1", "-1.0", "nan", "unlabeled"})
BOX_COLUMNS = ("x", "y", "width", "height")
IMAGE, FOLDER, HIDDEN, OTHER = "image", "folder", "hidden", "other file"
NO_EXTENSION = "without extension"
COLUMNS = ("file_name", "label", "split", "group", *BOX_COLUMNS)


class Quarantined(NamedTuple):
    """A file that is left out, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """One image as it was named: None where nothing was said."""

    file: str
    """Name under the root, with forward slashes."""
    label: str | None = None
    split: str | None = None
    group: str | None = None
    box: Box | None = None
    where: str = field(default="", compare=False)
    """Line or row of the table, for errors."""

    @property
    def id(self) -> str:
        """The file's name, and the box behind it."""
        name = plain_text(self.file)
        return name if self.box is None else f"{name}#{','.join(map(str, self.box))}"


@dataclass(frozen=True)
class Listing:
    """What lies under a folder, in the order of names."""

    files: list[str]
    quarantine: list[Quarantined]
    ignored: dict[str, int]
    """Extension -> number of files that are not named like an image; HIDDEN -> hidden files, and
    hidden folders, each of which counts as one."""


def extensions() -> frozenset[str]:
    """Names of image files end in one of these; HEIC only where its decoder works."""
    return EXTENSIONS if heif_problem() else EXTENSIONS | HEIF_EXTENSIONS


def describe_ignored(ignored: Mapping[str, int]) -> str:
    """`50 .heic (pip install 'bacon-gcd[heif]' reads them), 3 .txt`, most first."""
    ranked = sorted(ignored.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} {kind}{_advice(kind)}" for kind, count in ranked)


def _advice(extension: str) -> str:
    if extension in HEIF_EXTENSIONS:
        return f" ({heif_problem()})"
    return " (not read; convert them to JPEG or PNG)" if extension in UNREAD_IMAGES else ""


def plain_text(text: str) -> str:
    r"""Text that UTF-8 can hold: bytes of a file name that are not UTF-8 show as \udcXX."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def label_text(value: object) -> str | None:
    """A label as a class name; None for what means unlabeled: nothing, -1, NaN, "unlabeled"."""
    if isinstance(value, dict | list | bytes):
        raise UserError(f"a {type(value).__name__} where a text or a number is expected")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers with gaps is stored as floats
    text = plain_text("" if value is None else str(value).strip())
    return None if text.lower() in UNLABELED_TEXTS else text


def encode_labels(
    values: npt.ArrayLike | None, n_images: int, class_names: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """(N,) positions in class names, -1 = unlabeled, and those names.

    Integers are positions in `class_names` if these are given. Otherwise classes are those that
    occur, sorted: integers by value, names by code points.
    """
    given = np.asarray(values if values is not None else np.full(n_images, -1))
    if given.shape != (n_images,):
        raise UserError(f"labels have shape {given.shape}, but there are {n_images} images")
    names = None if class_names is None else tuple(plain_text(str(name)) for name in class_names)
    if names is not None and len(set(names)) < len(names):
        raise UserError(f"class name {Counter(names).most_common(1)[0][0]!r} is there twice")
    if given.dtype.kind in "biuf":
        return _encode_numbers(given, names)
    return encode_names([label_text(value) for value in given.tolist()], names)


def _encode_numbers(
    given: npt.NDArray[Any], names: tuple[str, ...] | None
) -> tuple[IntArray, tuple[str, ...]]:
    numbers = np.nan_to_num(given, nan=-1, posinf=-2).astype(np.int64)
    if (numbers < -1).any() or (numbers[numbers >= 0] != given[numbers >= 0]).any():
        raise UserError("labels must be whole numbers, 0 or above, or -1 for unlabeled")
    if names is None:
        classes = np.unique(numbers[numbers >= 0])
        compact = np.where(numbers < 0, -1, np.searchsorted(classes, numbers))
        return compact, tuple(str(number) for number in classes)
    if len(numbers) and numbers.max() >= len(names):
        raise UserError(f"label {numbers.max()} is not one of the {len(names)} class names")
    return numbers, names


def encode_names(
    given: list[str | None], names: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """(N,) positions in `names` (in the sorted names that occur, unless given); None becomes -1."""
    if names is None:
        names = tuple(sorted({name for name in given if name is not None}))
    position: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(names)}
    if unknown := {name for name in given if name not in position}:
        raise UserError(f"label {min(map(str, unknown))!r} is not one of {', '.join(names)}")
    return np.array([position[name] for name in given], dtype=np.int64), tuple(names)


def list_files(root: Path) -> Listing:
    """Every image file under `root`, through links too, sorted by name."""
    known = (IMAGE, FOLDER, HIDDEN, OTHER)
    found = list(_walk(root, extensions()))
    files = sorted(name for name, kind in found if kind == IMAGE)
    bad = [Quarantined(plain_text(name), kind) for name, kind in found if kind not in known]
    ignored = Counter(_extension(name) for name, kind in found if kind == OTHER)
    ignored[HIDDEN] = sum(kind == HIDDEN for _, kind in found)
    return Listing(files, sorted(bad), {kind: n for kind, n in ignored.items() if n})


def _extension(name: str) -> str:
    return plain_text(Path(name).suffix.lower()) or NO_EXTENSION


def _walk(root: Path, images: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Name and kind of everything that is not a folder; each real folder is read once."""
    above = [folder.stat() for folder in root.resolve().parents]
    seen = {(status.st_dev, status.st_ino) for status in above}  # no link leads out of the top
    folders, links = deque([""]), deque[str]()
    while folders or links:
        # Real folders first: a link never replaces the folder it points to.
        name = folders.popleft() if folders else links.popleft()
        try:
            status = (root / name).stat()
            with os.scandir(root / name) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield name, f"folder cannot be read: {error.strerror}"
            continue
        if (status.st_dev, status.st_ino) in seen:
            yield name, "link to a folder that is read already, or above"
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            inner = f"{name}/{entry.name}" if name else entry.name
            kind = _kind(entry, images)
            if kind == FOLDER:
                (links if entry.is_symlink() else folders).append(inner)
            else:
                yield inner, kind


def _kind(entry: os.DirEntry[str], images: frozenset[str]) -> str:
    """What it is, or the reason for quarantine."""
    try:
        is_folder = entry.is_dir()
    except OSError:  # a looping link
        is_folder = False
    if entry.name.startswith("."):
        return HIDDEN  # such a folder is not read
    is_image = Path(entry.name).suffix.lower() in images
    if is_folder:
        return "a folder named like an image: rename it to have it read" if is_image else FOLDER
    if is_image:
        return IMAGE
    # A link that leads nowhere may have been a folder full of images.
    leads_somewhere = os.path.exists(entry)  # noqa: PTH110 (pathlib's raises without permission)
    return OTHER if leads_somewhere or not entry.is_symlink() else "broken link"


def is_unlabeled_folder(name: str) -> bool:
    """`_unlabeled`, `Unlabeled`, `UNLABELLED`, ...: any capitalisation."""
    return name.casefold() in UNLABELED_FOLDERS


def split_folders(files: Iterable[str], *, root: Path) -> dict[str, str]:
    """Folder -> its split, where train/, val/, test/ (training/, ...) are splits and not classes.

    They are if nothing but splits and unlabeled images is there. val/ belongs to training if there
    is a test/ beside it, and is the test split otherwise.
    """
    parts = [file.split("/") for file in files]
    tops = {names[0] for names in parts if len(names) > 1 and not is_unlabeled_folder(names[0])}
    found = {top: SPLIT_FOLDERS[top.casefold()] for top in tops if top.casefold() in SPLIT_FOLDERS}
    if other := sorted(plain_text(top) for top in tops - set(found)):
        deep = {found[names[0]] for names in parts if len(names) > 2 and names[0] in found}
        if len(deep) < 2:  # a class may be called train
            return {}
        raise UserError(
            f"{root}: {'/, '.join(sorted(found))}/ hold class folders, so {', '.join(other)}/"
            " beside them cannot be a class; move it into one of them, or away"
        )
    validation = "train" if "test" in found.values() else "test"
    return {top: validation if split == "val" else split for top, split in found.items()}


def folder_entries(files: Iterable[str], splits: Mapping[str, str]) -> list[Entry]:
    """The first folder is the class; `_unlabeled/` and the root itself hold unlabeled images.

    splits: what `split_folders` found; classes are the folders inside those.
    """
    return [_folder_entry(file.split("/"), splits) for file in files]


def _folder_entry(names: list[str], splits: Mapping[str, str]) -> Entry:
    split = splits.get(names[0]) if len(names) > 1 else None
    folders = names[1:-1] if split else names[:-1]
    unlabeled = not folders or any(is_unlabeled_folder(name) for name in folders)
    return Entry("/".join(names), None if unlabeled else plain_text(folders[0]), split)


def table_entries(path: Path, *, root: Path) -> list[Entry]:
    """Rows of a CSV, JSONL or parquet table; equal rows once, rows that contradict are an error.

    File names are relative to `root` and stay inside it: a table may come from somebody else, and
    must not pull in what lies elsewhere. Absolute names inside `root` are fine, so a person whose
    own table names files all over the disk says so by giving `root` as "/".
    """
    readers = {".csv": _csv_rows, ".jsonl": _jsonl_rows, ".parquet": _parquet_rows}
    read = readers[choose(f"{path}: table format", path.suffix.lower(), readers)]
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    first: dict[str, Entry] = {}
    for where, row in read(path):
        entry = _row_entry(row, where=where, path=path, root=root)
        if entry != (before := first.setdefault(entry.id, entry)):
            raise UserError(
                f"{path}: {before.where} and {entry.where} contradict each other about {entry.id!r}"
            )
    return list(first.values())


def _row_entry(row: Mapping[str, Any], *, where: str, path: Path, root: Path) -> Entry:
    try:
        return Entry(
            file=_inside(root, row["file_name"]),
            label=label_text(row["label"]),
            split=_split(row.get("split")),
            group=label_text(row.get("group")),
            box=_box([_number(row.get(column)) for column in BOX_COLUMNS]),
            where=where,
        )
    except UserError as error:
        raise UserError(f"{path}, {where}: {error}") from None


def _inside(root: Path, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UserError(f"file_name {name!r} is not a file name")
    prefix = os.path.join(os.path.normpath(root.absolute()), "")  # noqa: PTH118 (ends in a slash)
    path = os.path.normpath(os.path.join(prefix, name))  # noqa: PTH118 (pathlib keeps "..")
    if not path.startswith(prefix):
        raise UserError(f"file_name {name!r} is outside {root}; name files inside it")
    return path[len(prefix) :].replace(os.sep, "/")


def _split(value: object) -> str | None:
    text = "" if value is None else str(value).strip().lower()
    return choose("split", text, SPLITS) if text not in ("", "nan") else None


def _number(value: object) -> float | None:
    text = "" if value is None else str(value).strip()
    try:
        number = float(text or "nan")
    except ValueError:
        raise UserError(f"box value {text!r} is not a number") from None
    if math.isinf(number):
        raise UserError(f"box value {text!r} is not finite")
    return None if math.isnan(number) else number


def _box(values: list[float | None]) -> Box | None:
    """Edges are rounded to whole pixels."""
    x, y, width, height = values
    if x is None and y is None and width is None and height is None:
        return None
    if x is None or y is None or width is None or height is None:
        raise UserError(f"a box needs all of {', '.join(BOX_COLUMNS)}")
    return Box(round(x), round(y), round(x + width) - round(x), round(y + height) - round(y))


Rows = Iterator[tuple[str, Mapping[str, Any]]]


def csv_columns(path: Path) -> list[str]:
    """The names in the first line; none where it cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
        return [name.strip() for name in next(csv.reader([header], delimiter=_separator(header)))]
    except (OSError, UnicodeDecodeError, csv.Error, StopIteration):
        return []


def _separator(header: str) -> str:
    return max(",;\t", key=header.count)  # spreadsheets write what their country uses


def _csv_rows(path: Path) -> Rows:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=_separator(header), strict=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
            _need_columns(path, reader.fieldnames)
            for row in reader:
                if None in row:
                    raise UserError(f"{path}, line {reader.line_num}: more values than columns")
                yield f"line {reader.line_num}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a valid CSV file in UTF-8: {error}") from None


def _jsonl_rows(path: Path) -> Rows:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)  # with NaN, which others write for no label
            except (ValueError, RecursionError) as error:
                reason = one_line(error)
                raise UserError(f"{path}, line {number}: not valid JSON: {reason}") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}, line {number}: not a JSON object")
            _need_columns(f"{path}, line {number}", row)
            yield f"line {number}", row


def _parquet_rows(path: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        _need_columns(path, names)
        table = pq.read_table(path, columns=[name for name in COLUMNS if name in names])
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a valid parquet file: {one_line(error)}") from None
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


def _need_columns(where: Path | str, names: Iterable[str]) -> None:
    names = list(names)
    for column in ("file_name", "label"):
        if column not in names:
            found = ", ".join(map(str, names)) or "none"
            raise UserError(f"{where}: there is no {column!r}; the columns are {found}")


def merge_labels(listed: list[Entry], rows: list[Entry]) -> list[Entry]:
    """The table's rows, and the folder's other images unlabeled; the folder still gives splits."""
    splits = {entry.file: entry.split for entry in listed}
    named = {row.file for row in rows}
    labeled = [replace(row, split=row.split or splits.get(row.file)) for row in rows]
    return labeled + [replace(entry, label=None) for entry in listed if entry.file not in named]
