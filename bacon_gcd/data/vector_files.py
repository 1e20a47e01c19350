"""Ready feature vectors of a table's images, from a .npy or .parquet file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bacon_gcd.config import UserError, choose, one_line
from bacon_gcd.data.array_files import read_npy
from bacon_gcd.data.images import ImageTable


def read_features(path: Path, table: ImageTable) -> npt.NDArray[np.float32]:
    """(N, D) vectors of the table's images.

    .npy: rows in the order of the file names; .parquet: by its column file_name, with either one
    column of lists or one number per column.
    """
    choose(f"{path}: kind of file", path.suffix.lower(), (".npy", ".parquet"))
    if not path.exists():
        raise UserError(f"{path}: no such file")
    try:
        if path.suffix.lower() == ".npy":
            found = read_npy(path)
        else:
            found = _by_name(pq.read_table(path), table)
        vectors = np.asarray(found, dtype=np.float32)
    except KeyError as error:
        raise UserError(f"{path}: no row for {error.args[0]!r}") from None
    except UserError:
        raise
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a table of vectors: {one_line(error)}") from None
    if vectors.ndim != 2 or len(vectors) != len(table) or vectors.shape[1] < 2:
        raise UserError(
            f"{path}: has shape {vectors.shape}; {len(table)} readable images need "
            f"({len(table)}, D) with D of at least 2"
        )
    if not np.isfinite(vectors).all():
        raise UserError(f"{path}: holds values that are not finite")
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    if squares.max(initial=0.0) > np.finfo(np.float32).max:
        raise UserError(f"{path}: holds values so large that their squares are not finite")
    return vectors


def _by_name(stored: pa.Table, table: ImageTable) -> npt.NDArray[np.float32]:
    names = stored.column("file_name").to_pylist()
    lists = [f.name for f in stored.schema if pa.types.is_list(f.type) or _fixed(f.type)]
    if lists:
        rows = np.array(stored.column(lists[0]).to_pylist(), dtype=np.float32)
    else:
        numbers = [c for c in stored.column_names if c != "file_name"]
        rows = np.stack([stored.column(c).to_numpy() for c in numbers], axis=1)
    row_of = {name: row for row, name in enumerate(names)}
    return np.asarray(rows[[row_of[i] for i in table.ids]], dtype=np.float32)


def _fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind))
