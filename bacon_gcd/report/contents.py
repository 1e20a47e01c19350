"""What a report is made of. Every part is optional; the page says so where one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from bacon_gcd.classes.tree import ClassTree

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Rows:
    """One entry per image, N in all. None: not computed in this run."""

    ids: Sequence[str]
    class_ids: IntArray
    """(N,) positions in `ReportData.classes`."""
    labeled: BoolArray
    """(N,) the image came with a label."""
    confidence: FloatArray | None = None
    """(N,) in 0..1, how sure the class is; NaN = unknown."""
    known_probability: FloatArray | None = None
    """(N,) in 0..1, how likely the class is a known one; 1 for labeled images."""
    outlier: BoolArray | None = None
    """(N,) the image looks like none of the classes."""
    xy: FloatArray | None = None
    """(N, 2) place on the map."""
    neighbors: IntArray | None = None
    """(N, K) rows of the most similar images, nearest first; -1 = none."""

    def __post_init__(self) -> None:
        columns = (self.class_ids, self.labeled, self.confidence, self.known_probability)
        for column in (*columns, self.outlier, self.xy, self.neighbors):
            if column is not None and len(column) != len(self.ids):
                raise ValueError("every column has one entry per image")

    def __len__(self) -> int:
        return len(self.ids)


class ClassInfo(NamedTuple):
    """One class, known or newly found, and its size."""

    name: str
    known: bool
    labeled: int
    estimated: float


class Score(NamedTuple):
    """Accuracy of one method in percent, where the truth is known; None for an empty group."""

    name: str
    all: float | None
    old: float | None
    new: float | None


class Suspect(NamedTuple):
    """A labeled image that looks like another class."""

    row: int
    given: str
    suggested: str


class Duplicate(NamedTuple):
    """Images that show the same thing; `kind` is "exact" or "near"."""

    rows: Sequence[int]
    kind: str


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything the page shows. A list that is None was not searched for; empty: nothing found."""

    title: str
    rows: Rows
    classes: Sequence[ClassInfo]
    thumbnail: Callable[[int], Image.Image]
    """Row -> its picture, any size."""
    notes: Sequence[str] = ()
    """Further sentences of the summary."""
    scores: Sequence[Score] | None = None
    """The baseline first; only where the truth is known."""
    scored_on: str = "test images"
    uncertain: Sequence[int] | None = None
    """Rows, least certain first; None: taken from the confidence."""
    suspected: Sequence[Suspect] | None = None
    duplicates: Sequence[Duplicate] | None = None
    quarantine: Sequence[tuple[str, str]] | None = None
    """(file, reason) of what could not be read."""
    tree: ClassTree | None = None
    """Coarser and finer cuts; None: the run cannot be cut again, nor its threshold moved."""
    threshold: float | None = None
    """Of `known_probability`; None: the likeliest class decided."""
    training: str | None = None
    """SVG of the training curves (`figures.training_curves`)."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = self.rows.class_ids
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.classes):
            raise ValueError("a class id is not a position in classes")
