"""Images of several sources as one table: what a run was made of, and what was added later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from bacon_gcd.data.entries import Quarantined
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.pixels import Box, FileSource, IntArray, PixelSource


@dataclass(frozen=True, eq=False)
class JoinedSource:
    """Opens images of several sources by one row number."""

    parts: tuple[PixelSource, ...]
    part_of: IntArray
    """(N,) which source each row is in."""
    index: IntArray
    """(N,) its row there."""

    def __len__(self) -> int:
        return len(self.index)

    def image(self, row: int) -> Image.Image:
        """RGB image of one row."""
        return self.parts[int(self.part_of[row])].image(int(self.index[row]))

    def read(self, row: int) -> tuple[Image.Image, str]:
        """The same, and the hash of the bytes it was decoded from."""
        return self.parts[int(self.part_of[row])].read(int(self.index[row]))

    def take(self, rows: IntArray) -> JoinedSource:
        """The same source with these rows only, in this order."""
        return JoinedSource(self.parts, self.part_of[rows], self.index[rows])


def boxes_of(source: PixelSource) -> Sequence[Box | None]:
    """(N,) the box of each row, where it has one."""
    if isinstance(source, FileSource):
        return source.boxes
    if not isinstance(source, JoinedSource):
        return [None] * len(source)
    parts = [boxes_of(part) for part in source.parts]
    return [parts[p][i] for p, i in zip(source.part_of, source.index, strict=True)]


def file_of(source: PixelSource, row: int) -> Path | None:
    """The file of one row; None where the pixels are in memory."""
    if isinstance(source, FileSource):
        return source.root / source.files[row]
    if isinstance(source, JoinedSource):
        return file_of(source.parts[int(source.part_of[row])], int(source.index[row]))
    return None


def join(tables: Mapping[str, ImageTable]) -> ImageTable:
    """One table of all rows in order; ids of a table get its key before them, `key/id`.

    An empty key leaves the ids as they are.
    """
    every = list(tables.values())
    names = list(dict.fromkeys(name for table in every for name in table.class_names))
    number = {name: position for position, name in enumerate(names)}
    labels = [
        number[table.class_names[label]] if label >= 0 else -1
        for table in every
        for label in table.labels
    ]
    sizes = [len(table) for table in every]
    bad = [
        Quarantined(_under(key, q.id), q.reason) for key in tables for q in tables[key].quarantine
    ]
    return ImageTable(
        ids=tuple(_under(key, each) for key, table in tables.items() for each in table.ids),
        labels=np.array(labels, dtype=np.int64),
        splits=tuple(split for table in every for split in table.splits),
        class_names=tuple(names),
        source=JoinedSource(
            tuple(table.source for table in every),
            np.repeat(np.arange(len(every)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
        ),
        contents=tuple(content for table in every for content in table.contents),
        groups=_groups(tables),
        quarantine=tuple(bad),
        ignored=dict(sum((Counter(table.ignored) for table in every), Counter())),
        remarks=tuple(dict.fromkeys(line for table in every for line in table.remarks)),
    )


def _groups(tables: Mapping[str, ImageTable]) -> tuple[str, ...] | None:
    """A group may go on in another table; an image without one is its own."""
    if all(table.groups is None for table in tables.values()):
        return None
    return tuple(
        group
        for key, table in tables.items()
        for group in table.groups or [_under(key, each) for each in table.ids]
    )


def _under(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name
