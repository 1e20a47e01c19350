"""CIFAR from whichever files are at hand: official batches, .npz arrays, parquet of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError, one_line
from bacon_gcd.data.images import ImageTable, from_arrays, read_npz
from bacon_gcd.data.pixels import decode
from bacon_gcd.data.safe_pickle import read_pickle
from bacon_gcd.system.files import json_value
from bacon_gcd.system.progress import progress

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Part = tuple[ByteArray, IntArray]
"""(N, 32, 32, 3) images and (N,) labels."""


@dataclass(frozen=True)
class CifarFiles:
    """The official python batches: folder, file names, and keys inside them."""

    stem: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    label_key: str
    names_key: str

    @property
    def wanted(self) -> str:
        """What a person may put into the data folder."""
        return (
            f"put {self.folder}/ (official python batches), {self.stem}.npz or "
            f"{self.stem}/train-*.parquet and test-*.parquet there"
        )


def find_cifar(files: CifarFiles, root: Path) -> ImageTable | None:
    """The first that is there: official batches, .npz arrays, parquet."""
    for folder in (root / files.folder, root):
        if (folder / files.meta).is_file():
            return _read_batches(files, folder)
    for path in (root / f"{files.stem}.npz", root / f"{files.stem}-subset.npz", root):
        if path.suffix == ".npz" and path.is_file():
            return read_npz(path)
    for pattern in (f"{files.stem}/**/", ""):
        train, test = (
            sorted(root.glob(f"{pattern}{split}-*.parquet")) for split in ("train", "test")
        )
        if train and test:
            return _read_parquet(train, test)
    return None


def _read_batches(files: CifarFiles, folder: Path) -> ImageTable:
    names = read_pickle(folder / files.meta).get(files.names_key)
    if not isinstance(names, list):
        raise UserError(f"{folder / files.meta}: no {files.names_key!r} inside")
    train = [_read_batch(folder / name, files.label_key) for name in files.train]
    test = [_read_batch(folder / files.test, files.label_key)]
    return _cifar_table(train, test, [str(name) for name in names])


def _read_batch(path: Path, label_key: str) -> Part:
    """Pixels are stored row by row of each color plane: (N, 3072)."""
    stored = read_pickle(path)
    data, labels = stored.get("data"), stored.get(label_key)
    if not isinstance(data, np.ndarray) or data.shape[1:] != (3072,) or data.dtype != np.uint8:
        raise UserError(f"{path}: no CIFAR images (uint8, N x 3072) under 'data'")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise UserError(f"{path}: {label_key!r} does not hold {len(data)} labels")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(labels, dtype=np.int64)


def _cifar_table(train: list[Part], test: list[Part], names: Sequence[str] | None) -> ImageTable:
    images = np.concatenate([part[0] for part in train + test])
    labels = np.concatenate([part[1] for part in train + test])
    n_train = sum(len(part[1]) for part in train)
    splits = ["train"] * n_train + ["test"] * (len(labels) - n_train)
    return from_arrays(images, labels, names, splits=splits)


def _read_parquet(train: list[Path], test: list[Path]) -> ImageTable:
    """Files of the Hugging Face hub: encoded images in `img` or `image`, labels in `label`."""
    first, second = ([_read_shard(path) for path in shards] for shards in (train, test))
    return _cifar_table(first, second, _hub_names(train[0]))


def _read_shard(path: Path) -> Part:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a parquet file: {' '.join(str(error).split())}") from None
    image = _column(path, table.column_names, ("img", "image"))
    label = _column(path, table.column_names, ("fine_label", "label"))
    cells = table.column(image).to_pylist()
    with progress(f"decode {path.name}", len(cells)) as advance:
        images = np.empty((len(cells), 32, 32, 3), dtype=np.uint8)
        for row, cell in enumerate(cells):
            images[row] = _decode(cell, where=f"{path}, row {row}")
            advance()
    try:
        return images, np.array(table.column(label).to_pylist(), dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{path}: column {label!r} holds other things than numbers") from None


def _column(path: Path, names: Sequence[str], choices: tuple[str, str]) -> str:
    for name in choices:
        if name in names:
            return name
    raise UserError(f"{path}: no column {' or '.join(choices)}; it has {', '.join(names)}")


def _decode(cell: Any, *, where: str) -> ByteArray:
    try:
        pixels = np.asarray(decode(BytesIO(cell["bytes"])))
    except Exception as error:  # decoders raise nearly anything on hostile bytes
        raise UserError(f"{where}: no readable image: {one_line(error)}") from None
    if pixels.shape != (32, 32, 3):
        raise UserError(f"{where}: an image of {pixels.shape[1]} x {pixels.shape[0]}, not 32 x 32")
    return pixels


def _hub_names(path: Path) -> list[str] | None:
    """Class names as the hub stores them beside the columns, if it does."""
    import pyarrow.parquet as pq

    stored = (pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json_value(stored).get("info", {}).get("features", {})
        feature = features.get("fine_label") or features.get("label") or {}
        return [str(name) for name in feature.get("names") or []] or None
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise UserError(f"{path}: damaged description of its columns") from None
