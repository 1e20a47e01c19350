"""What a report is made of. Every part is optional; the page says so where one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
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
    second_choice: IntArray | None = None
    """(N,) position of the class that comes next, -1 = none."""
    nearest_known: IntArray | None = None
    """(N,) position of the most similar known class, -1 = none."""
    outlier: BoolArray | None = None
    """(N,) the image looks like none of the classes."""
    xy: FloatArray | None = None
    """(N, 2) coordinates on the map."""
    neighbors: IntArray | None = None
    """(N, K) rows of the most similar images, nearest first; -1 = none."""

    def __post_init__(self) -> None:
        first = (self.class_ids, self.labeled, self.confidence, self.known_probability)
        second = (self.second_choice, self.nearest_known, self.outlier, self.xy, self.neighbors)
        for column in (*first, *second):
            if column is not None and len(column) != len(self.ids):
                raise ValueError("every column has one entry per image")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class ClassInfo:
    """One class, known or newly found. Its size is the number of rows that were sorted into it."""

    name: str
    known: bool
    _: KW_ONLY
    purity: float | None = None
    """0..1, estimated share of its images that belong together."""
    precision: float | None = None
    """0..1, estimated share of the images put into this known class that belong to it."""
    recall: float | None = None
    """0..1, estimated share of the images of this known class that were put into it."""
    nearest_known: str = ""
    """Name of the known class it looks most like."""
    second_choice: str = ""
    """Name of the class that most of its images would go to otherwise."""
    suggested_names: Sequence[tuple[str, float]] = ()
    """(name, confidence in 0..1) proposed for a new class, best first; never applied."""


class Score(NamedTuple):
    """Accuracy of one method in percent, where the truth is known; None for an empty group."""

    name: str
    all: float | None
    old: float | None
    new: float | None


class Share(NamedTuple):
    """An estimated share in 0..1 and its 95 % interval, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Expected:
    """How many unlabeled images are right, estimated from known classes hidden as if new."""

    accuracy: Share
    """Over all unlabeled images, known and new classes together."""
    known_recall: Share | None = None
    """Of the images of known classes: found again in their class."""
    known_precision: Share | None = None
    """Of the images put into a known class: belong to it."""
    new_recall: Share | None = None
    """Of the images of new classes: put into the new class that is theirs."""
    new_precision: Share | None = None
    """Of the images put into a new class: belong to it."""
    n_images: int = 0
    """Labeled images it was measured on."""
    n_classes: int = 0
    """Known classes that were hidden as if new."""
    halves: float | None = None
    """Images that half of the features puts into the same class; None: not asked."""


@dataclass(frozen=True)
class Inputs:
    """What became of the files that were not sorted. Files in = sorted + set aside + ignored."""

    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of files that could not be used."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Kind, such as ".txt" or "hidden" -> number of files that are no images."""


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
    file: Callable[[int], Path | None] | None = None
    """Row -> its file, None where it is none; the page links to it by a relative path."""
    notes: Sequence[str] = ()
    """Further sentences of the summary."""
    expected: Expected | None = None
    chosen: Sequence[str] = ()
    """Sentences: which way of sorting was chosen, by which evidence."""
    inputs: Inputs | None = None
    estimated_counts: Sequence[float] | None = None
    """(C,) class sizes as the training estimated them; NaN = none for this class."""
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
        ids, counts = self.rows.class_ids, self.estimated_counts
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.classes):
            raise ValueError("a class id is not a position in classes")
        if counts is not None and len(counts) != len(self.classes):
            raise ValueError("estimated_counts has one entry per class")

    @cached_property
    def sizes(self) -> IntArray:
        """(C,) images sorted into each class, labeled ones included."""
        return np.bincount(self.rows.class_ids, minlength=len(self.classes))

    @cached_property
    def labeled_sizes(self) -> IntArray:
        """(C,) how many of them came with a label."""
        labeled = self.rows.class_ids[self.rows.labeled]
        return np.bincount(labeled, minlength=len(self.classes))
