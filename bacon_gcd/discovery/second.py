"""Second choices: for each image the likeliest of the classes that it is not in.

They stand behind the other columns of predictions.parquet and predictions.csv. A run of an earlier
version does not have them; every reader goes on without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bacon_gcd.config import UserError, one_line

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
COLUMNS = {"second_class": pa.string(), "second_confidence": pa.float64()}


@dataclass(frozen=True, eq=False)
class Second:
    """One entry per image."""

    class_ids: IntArray
    """-1 where there is none."""
    confidence: FloatArray
    """The probability of that class; 0 where there is none."""

    def without(self, rows: BoolArray) -> Second:
        """None for these images. rows: (N,)."""
        return Second(np.where(rows, -1, self.class_ids), np.where(rows, 0.0, self.confidence))

    def and_of(self, others: Second) -> Second:
        """Of these images, and the others behind them."""
        return Second(
            np.concatenate([self.class_ids, others.class_ids]),
            np.concatenate([self.confidence, others.confidence]),
        )

    def cells(self, class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Column name -> value for each image; no name where there is none."""
        pairs = zip(self.class_ids.tolist(), self.confidence.tolist(), strict=True)
        return [
            {
                "second_class": class_names[number] if number >= 0 else "",
                "second_confidence": round(sure, 4),
            }
            for number, sure in pairs
        ]


def second_of(
    shares: npt.NDArray[np.floating[Any]], class_ids: IntArray, merged: IntArray | None = None
) -> Second:
    """The likeliest other class of each image, and its probability.

    Args:
        shares: (N, C) probabilities.
        class_ids: (N,) the class each image is in.
        merged: (C,) equal for classes that are one by now; None: all differ.
    """
    same = np.arange(shares.shape[1]) if merged is None else merged
    others = np.where(same == same[class_ids][:, None], -1.0, shares)
    best, sure = others.argmax(axis=1), others.max(axis=1)
    return Second(np.where(sure >= 0, best, -1), np.maximum(sure, 0.0).astype(np.float64))


def none_of(n_images: int) -> Second:
    """Nothing is known of what comes second."""
    return Second(np.full(n_images, -1, dtype=np.int64), np.zeros(n_images))


def read_second(folder: Path, positions: Mapping[str, int], n_images: int) -> Second:
    """The second choices of a run; none where it has no such columns.

    positions: the class that each name means; a name that is not in it is none.
    """
    path = folder / "predictions.parquet"
    if not set(COLUMNS) <= set(pq.read_schema(path).names):
        return none_of(n_images)
    try:
        stored = pq.read_table(path, columns=list(COLUMNS)).cast(pa.schema(list(COLUMNS.items())))
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: not the predictions of a run: {one_line(error)}") from None
    names, sure = stored["second_class"].to_pylist(), stored["second_confidence"].to_pylist()
    found = np.array([positions.get(name, -1) for name in names], dtype=np.int64)
    return Second(found, np.array([each or 0.0 for each in sure])).without(found < 0)
