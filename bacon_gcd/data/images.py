"""Images in: a folder, a table, files or arrays become one ImageTable; bad files are set aside."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bacon_gcd.config import UserError, choose
from bacon_gcd.data import array_files
from bacon_gcd.data.entries import (
    SPLITS,
    Entry,
    Quarantined,
    describe_ignored,
    encode_labels,
    encode_names,
    extensions,
    folder_entries,
    list_files,
    merge_labels,
    plain_text,
    split_folders,
    table_entries,
)
from bacon_gcd.data.pixels import (
    MISSING,
    ArraySource,
    ByteArray,
    Checked,
    FileSource,
    IntArray,
    PixelSource,
    array_hash,
    check_files,
)
from bacon_gcd.data.remarks import (
    ROW_ALONE,
    is_row_alone,
    labels_alone,
    missing_remark,
    nested_remark,
    similar_names_remark,
    split_remark,
    unused_folders_remark,
)
from bacon_gcd.system.files import digest

TABLES = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True, eq=False)
class ImageTable:
    """What there is: N images, where their pixels are, and what is known of them."""

    ids: tuple[str, ...]
    """Name under the root, `#x,y,width,height` behind it for a box; all different."""
    labels: IntArray
    """(N,) positions in `class_names`, -1 = unlabeled."""
    splits: tuple[str, ...]
    """Each is "train" or "test"."""
    class_names: tuple[str, ...]
    source: PixelSource
    contents: tuple[str, ...]
    """sha256 of each file's or array's bytes: equal for exact duplicates."""
    groups: tuple[str, ...] | None = None
    """Bursts or patients, to be kept together in every hold-out."""
    quarantine: tuple[Quarantined, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Extension -> number of files of the folder that are not named like an image, or hidden."""
    remarks: tuple[str, ...] = ()
    """Lines for the person about how the source was read."""

    def __post_init__(self) -> None:
        parts = (self.labels, self.splits, self.source, self.contents, self.groups)
        if any(part is not None and len(part) != len(self.ids) for part in parts):
            raise ValueError("every column of a table has one value per image")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("two images of a table have the same id")
        if not set(self.splits) <= set(SPLITS):
            raise ValueError(f"a split is not one of {', '.join(SPLITS)}")
        if len(self) and not -1 <= self.labels.min() <= self.labels.max() < len(self.class_names):
            raise ValueError("a label is not a position in class_names")

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies contents, labels, splits and groups, wherever the files are."""
        labels = self.labels.tolist()
        return digest(self.contents_fingerprint, labels, self.class_names, self.splits, self.groups)

    @cached_property
    def contents_fingerprint(self) -> str:
        """Identifies the pixels of every row alone: it stays when labels are corrected."""
        return digest(self.ids, self.contents)

    @property
    def unreadable(self) -> tuple[Quarantined, ...]:
        """The files that were set aside; rows of a table that name no file are none."""
        return tuple(q for q in self.quarantine if not is_row_alone(q.reason))

    def summary(self) -> str:
        """How many files there were and what became of them: nothing is left out silently."""
        n_ignored = sum(self.ignored.values())
        kinds = f": {describe_ignored(self.ignored)}" if n_ignored else ""
        n_alone = len(self.quarantine) - len(self.unreadable)
        alone = f", {labels_alone(n_alone)}" if n_alone else ""
        return (
            f"{len(self)} images, {int((self.labels >= 0).sum())} with a label; "
            f"{len(self.unreadable)} unreadable{alone}, {n_ignored} other files ignored{kinds}"
        )

    def image(self, row: int) -> Image.Image:
        """Open one image: RGB, upright, cut to its box."""
        return self.source.image(row)

    def checked_image(self, row: int) -> Image.Image:
        """The same; refused if its bytes are no longer those that `contents` tells of."""
        image, sha256 = self.source.read(row)
        if sha256 != self.contents[row]:
            raise UserError(f"{self.ids[row]}: changed since the images were listed; start again")
        return image

    def rows(self, split: str) -> IntArray:
        """Positions of the images of one split."""
        return np.flatnonzero(np.array(self.splits) == choose("split", split, SPLITS))

    def take(self, rows: npt.ArrayLike) -> ImageTable:
        """The table of these rows (positions or a mask), in this order, with the same classes."""
        chosen = np.asarray(rows)
        kind = np.bool_ if chosen.dtype == np.bool_ else np.int64  # an empty list has neither
        rows = np.arange(len(self))[chosen.astype(kind)]
        return ImageTable(
            ids=tuple(self.ids[row] for row in rows),
            labels=self.labels[rows],
            splits=tuple(self.splits[row] for row in rows),
            class_names=self.class_names,
            source=self.source.take(rows),
            contents=tuple(self.contents[row] for row in rows),
            groups=self.groups and tuple(self.groups[row] for row in rows),
            quarantine=self.quarantine,
            ignored=self.ignored,
            remarks=self.remarks,
        )


def read_images(
    source: str | Path | Sequence[str | Path] | ByteArray,
    labels: str | Path | None = None,
    *,
    threads: int | None = None,
) -> ImageTable:
    """A folder, a table, an .npz file, one image, a list of image files or an array of images.

    labels: a table that replaces a folder's class names; images it does not name are unlabeled.
    """
    if isinstance(source, str | Path) and Path(source).is_dir():
        return read_folder(source, labels, threads=threads)
    if labels is not None:
        raise UserError(f"labels {labels}: a separate table of labels goes with a folder of images")
    if isinstance(source, np.ndarray):
        return from_arrays(source)
    if not isinstance(source, str | Path):
        return read_files(source, threads=threads)
    match Path(source).suffix.lower():
        case ".npz":
            return read_npz(source)
        case suffix if suffix in TABLES:
            return read_table(source, threads=threads)
        case suffix if suffix in extensions() and os.path.lexists(source):
            return read_files([source], threads=threads)
    problem = "not something to read images from" if Path(source).exists() else "no such file"
    kinds = ", ".join((*TABLES, ".npz", *sorted(extensions())))
    raise UserError(f"{source}: {problem}; give a folder or one of {kinds}")


def read_folder(
    root: str | Path, labels: str | Path | None = None, *, threads: int | None = None
) -> ImageTable:
    """`root/<class>/**`; unlabeled in `_unlabeled/` or loose; train/, val/ and test/ are splits.

    labels: a table that replaces the class folders, with file names relative to `root`.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder")
    found = list_files(root)
    splits = split_folders(found.files, root=root)
    entries = folder_entries(found.files, splits)
    remarks = [*split_remark(splits), *nested_remark(entries, splits)]
    if labels is not None:
        remarks = [*split_remark(splits), *unused_folders_remark(Path(labels), entries)]
        rows = table_entries(Path(labels), root=root)
        if rows and {row.file for row in rows}.isdisjoint(found.files):
            raise UserError(f"{labels}: no row names a file of {root}; first is {rows[0].file!r}")
        entries = merge_labels(entries, rows)
    return table_of(
        root,
        by_id(entries),
        quarantine=found.quarantine,
        ignored=found.ignored,
        remarks=remarks,
        listed=labels,
        threads=threads,
    )


def read_table(
    path: str | Path, root: str | Path | None = None, *, threads: int | None = None
) -> ImageTable:
    """CSV, JSONL or parquet: file_name, label [, split, group, x, y, width, height].

    root: what file names are relative to; the table's own folder unless given.
    """
    root = Path(path).parent if root is None else Path(root)
    entries = by_id(table_entries(Path(path), root=root))
    if not entries:
        raise UserError(f"{path}: there are no rows in it")
    return table_of(root, entries, listed=path, threads=threads)


def read_files(
    paths: Sequence[str | Path],
    labels: npt.ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    *,
    threads: int | None = None,
) -> ImageTable:
    """Image files in the caller's order; ids are relative to the folder they have in common."""
    full = [Path(os.path.normpath(Path(path).absolute())) for path in paths]
    if not full:
        raise UserError("the list of image files is empty")
    path, times = Counter(full).most_common(1)[0]
    if times > 1:
        raise UserError(f"{path} is named {times} times in the list of image files")
    root = Path(os.path.commonpath([path.parent for path in full]))
    numbers, names = encode_labels(labels, len(full), class_names)
    entries = [
        Entry(path.relative_to(root).as_posix(), names[number] if number >= 0 else None)
        for path, number in zip(full, numbers, strict=True)
    ]
    return table_of(root, entries, class_names=names, threads=threads)


def by_id(entries: Iterable[Entry]) -> list[Entry]:
    """In the order of code points, which neither the file system nor the locale can change."""
    return sorted(entries, key=lambda entry: entry.id)


def table_of(
    root: Path,
    entries: Sequence[Entry],
    *,
    class_names: Sequence[str] | None = None,
    quarantine: Iterable[Quarantined] = (),
    ignored: Mapping[str, int] | None = None,
    remarks: Sequence[str] = (),
    listed: str | Path | None = None,
    threads: int | None = None,
) -> ImageTable:
    """Decode every file once, set bad ones aside, keep the order of the rest.

    Args:
        class_names: fixes the numbering; otherwise the sorted names that readable images have.
        listed: the table whose rows are among the entries, if there is one.
    """
    root = root.absolute()
    files = list(dict.fromkeys(entry.file for entry in entries))
    results = check_files([root / file for file in files], threads=threads)
    checked = dict(zip(files, results, strict=True))
    reasons = [(entry, _reason(entry, checked[entry.file])) for entry in entries]
    good = [entry for entry, reason in reasons if not reason]
    bad = sorted([*quarantine, *(Quarantined(e.id, reason) for e, reason in reasons if reason)])
    if not good:
        raise UserError(f"{root}: {_nothing_readable(bad, ignored or {})}")
    missing = missing_remark(Path(listed), bad) if listed is not None else []
    labels, names = encode_names([entry.label for entry in good], class_names)
    return ImageTable(
        ids=tuple(entry.id for entry in good),
        labels=labels,
        splits=tuple(entry.split or "train" for entry in good),
        class_names=names,
        source=FileSource(root, tuple(e.file for e in good), tuple(e.box for e in good)),
        contents=tuple(checked[entry.file].sha256 for entry in good),
        groups=_groups(good),
        quarantine=tuple(bad),
        ignored=ignored or {},
        remarks=(*remarks, *missing, *similar_names_remark(names)),
    )


def _nothing_readable(bad: Sequence[Quarantined], ignored: Mapping[str, int]) -> str:
    other = f"; ignored: {describe_ignored(ignored)}" if ignored else ""
    if not bad:
        kinds = ", ".join(sorted(extensions()))
        return f"there are no images in it; images are files that end in {kinds}{other}"
    first = f"{bad[0].id!r}: {bad[0].reason}"
    return f"no readable image ({len(bad)} bad, first: {first}{other})"


def _reason(entry: Entry, checked: Checked) -> str:
    if checked.reason == MISSING and entry.where:
        return f"{ROW_ALONE} ({entry.where} of the table)"
    if checked.reason or entry.box is None or entry.box.fits(checked.size):
        return checked.reason
    return f"box outside the image of {checked.size[0]} x {checked.size[1]} pixels"


def _groups(entries: Sequence[Entry]) -> tuple[str, ...] | None:
    """An image without a group is its own; boxes of one file belong together in any case."""
    if all(entry.group is None and entry.box is None for entry in entries):
        return None
    return tuple(entry.group or plain_text(entry.file) for entry in entries)


def from_arrays(
    images: ByteArray,
    labels: npt.ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    *,
    splits: Sequence[str] | None = None,
) -> ImageTable:
    """Images of equal size in memory: uint8 (N, H, W, 3) or (N, H, W), in the caller's order.

    labels: (N,) integers or names; -1, NaN, None, "" and "unlabeled" mean unlabeled.
    splits: (N,) "train" or "test"; all "train" unless given.
    """
    images = np.asarray(images)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise UserError(
            f"images are {images.dtype} of shape {images.shape};"
            " they must be uint8 of shape (N, H, W, 3) or (N, H, W)"
        )
    if images.size == 0:
        raise UserError(f"images have shape {images.shape}: there is nothing in them")
    numbers, names = encode_labels(labels, len(images), class_names)
    splits = tuple(splits) if splits is not None else ("train",) * len(images)
    return ImageTable(
        ids=_numbered(splits),
        labels=numbers,
        splits=splits,
        class_names=names,
        source=ArraySource(images, np.arange(len(images))),
        contents=tuple(array_hash(image) for image in images),
    )


def _numbered(splits: Sequence[str]) -> tuple[str, ...]:
    """train/000000, train/000001, ...: the position inside the split."""
    counters = {split: itertools.count() for split in set(splits)}
    return tuple(f"{split}/{next(counters[split]):06d}" for split in splits)


def read_npz(path: str | Path) -> ImageTable:
    """train_images, train_labels [, test_images, test_labels], class_names; or images, labels.

    Rows keep the file's order, train before test. Nothing in the file is executed.
    """
    wanted = [f"{p}{what}" for p in ("train_", "test_", "") for what in ("images", "labels")]
    arrays = array_files.read_npz(Path(path), [*wanted, "class_names"])
    prefixes = [p for p in ("train_", "test_", "") if f"{p}images" in arrays]
    images = [arrays[f"{prefix}images"] for prefix in prefixes]
    if prefixes not in (["train_"], ["train_", "test_"], [""]):
        found = ", ".join(arrays) or "nothing"
        raise UserError(f"{path}: needs train_images (and test_images) or images; it has {found}")
    if len({part.shape[1:] for part in images}) > 1:
        raise UserError(f"{path}: train_images and test_images differ in size")
    splits = np.repeat([p[:-1] or "train" for p in prefixes], [len(part) for part in images])
    names = arrays["class_names"].tolist() if "class_names" in arrays else None
    try:
        labels = np.concatenate([_npz_labels(arrays, prefix) for prefix in prefixes])
        return from_arrays(np.concatenate(images), labels, names, splits=splits.tolist())
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _npz_labels(arrays: dict[str, npt.NDArray[Any]], prefix: str) -> npt.NDArray[Any]:
    n_images = len(arrays[f"{prefix}images"])
    labels = arrays.get(f"{prefix}labels", np.full(n_images, -1)).reshape(-1)
    if len(labels) != n_images:
        raise UserError(f"{prefix}labels has {len(labels)} values for {n_images} images")
    return labels
