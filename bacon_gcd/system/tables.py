"""Tables on disk: CSV that is safe to open in a spreadsheet, and parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bacon_gcd.system.files import write_atomic

RISKY = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes such a cell for a formula


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], *, columns: Sequence[str]) -> None:
    """Write a CSV whose cells no spreadsheet takes for a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([safe_cell(row[column]) for column in columns] for row in rows)
    write_atomic(path, buffer.getvalue().encode())


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], *, schema: pa.Schema) -> None:
    """Write a parquet file with the types of the schema."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), buffer)
    write_atomic(path, buffer.getvalue())


def safe_cell(value: object) -> object:
    """Text that begins like a formula gets a leading '; numbers stay numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(RISKY) else value
