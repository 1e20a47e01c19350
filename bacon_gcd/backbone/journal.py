"""What a bank keeps on disk: one file per view, and a journal of the chunks that are finished.

A chunk's bytes reach the disk before the journal names it, and the journal is replaced as a whole:
after a kill at any moment, what it names is there.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, write_json

FORMAT = 2
JOURNAL = "meta.json"
HALF = np.dtype("<f2")
HalfArray = npt.NDArray[np.float16]


@dataclass
class Journal:
    """Which chunks of which views are finished; on disk it is whole or absent."""

    folder: Path
    key: str
    n_images: int
    token_shape: tuple[int, ...]
    chunk: int
    """Images per chunk; the last chunk may have fewer."""
    backbone: str = ""
    """Its name, for people."""
    checksums: dict[str, list[int | None]] = field(default_factory=dict)
    """View name -> checksum of each chunk, None = unfinished."""
    modified: dict[str, int] = field(default_factory=dict)
    """View name -> when its finished file was last changed: unchanged files need no reading."""

    @property
    def n_chunks(self) -> int:
        """Chunks of each view."""
        return -(-self.n_images // self.chunk)

    @property
    def row_bytes(self) -> int:
        """Bytes of the tokens of one image in one view."""
        return int(np.prod(self.token_shape, dtype=np.int64)) * HALF.itemsize

    def path(self, name: str) -> Path:
        """The file of a view."""
        return self.folder / f"{name}.bin"

    def span(self, number: int) -> range:
        """Positions of the images of a chunk."""
        return range(self.n_images)[number * self.chunk : (number + 1) * self.chunk]

    def done(self, name: str, number: int) -> bool:
        """Whether this chunk of this view is finished."""
        return name in self.checksums and self.checksums[name][number] is not None

    def done_all(self, names: Iterable[str], number: int) -> bool:
        """Whether this chunk of all these views is finished."""
        return all(self.done(name, number) for name in names)

    def is_sound(self) -> bool:
        """Whether sizes are sizes, and every view has a checksum or None for each chunk."""
        sizes = (self.n_images, self.chunk, *self.token_shape)
        return min(sizes) > 0 and all(len(c) == self.n_chunks for c in self.checksums.values())

    def complete(self, names: Iterable[str]) -> bool:
        """Whether every chunk of these views is finished."""
        return all(self.done(name, number) for name in names for number in range(self.n_chunks))

    def missing_bytes(self, names: Iterable[str]) -> int:
        """Size of the unfinished chunks of these views."""
        chunks = product(names, range(self.n_chunks))
        rows = sum(len(self.span(number)) for name, number in chunks if not self.done(name, number))
        return rows * self.row_bytes

    def save(self) -> None:
        """Write the journal, whole or not at all."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        del values["folder"]
        write_json(self.folder / JOURNAL, values | {"format": FORMAT})

    def store(self, number: int, tokens: Mapping[str, HalfArray]) -> dict[str, int]:
        """Write one chunk of some views to disk; view name -> checksum, for `finish`."""
        checksums = {}
        for name, values in tokens.items():
            data = values.astype(HALF, copy=False).tobytes()
            self._write_bytes(name, number * self.chunk * self.row_bytes, data)
            checksums[name] = zlib.crc32(data)
        return checksums

    def finish(self, number: int, checksums: Mapping[str, int]) -> None:
        """Name a chunk that is safely on disk; `save` makes it known."""
        for name, checksum in checksums.items():
            self.checksums.setdefault(name, [None] * self.n_chunks)[number] = checksum
            if self.complete([name]):
                self.modified[name] = self.path(name).stat().st_mtime_ns

    def _write_bytes(self, name: str, offset: int, data: bytes) -> None:
        path = self.path(name)
        try:
            path.touch()  # other processes may write other chunks of the same file
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(
                f"{path}: {error.strerror}; the chunks finished so far are kept"
            ) from error

    def check(self, names: Iterable[str], *, thorough: bool = False) -> None:
        """Refuse files whose finished chunks are not what was written.

        A finished file of the right size and date is trusted, unless the check is thorough.
        """
        for name in names:
            if not any(self.done(name, number) for number in range(self.n_chunks)):
                continue
            path, size = self.path(name), self.n_images * self.row_bytes
            if not path.is_file():
                raise UserError(f"{path}: missing; {_mend(self.folder)}")
            state = path.stat()
            if self.complete([name]) and state.st_size != size:
                raise UserError(
                    f"{path}: has {state.st_size} bytes instead of {size}; {_mend(self.folder)}"
                )
            if thorough or self.modified.get(name) != state.st_mtime_ns:
                self._check_chunks(name)

    def _check_chunks(self, name: str) -> None:
        with self.path(name).open("rb") as file:
            for number, checksum in enumerate(self.checksums[name]):
                if checksum is None:
                    continue
                file.seek(number * self.chunk * self.row_bytes)
                if zlib.crc32(file.read(len(self.span(number)) * self.row_bytes)) != checksum:
                    raise UserError(
                        f"{self.path(name)}: chunk {number} is not what was written; "
                        f"{_mend(self.folder)}"
                    )


def open_journal(empty: Journal) -> Journal:
    """The journal in the folder of `empty`, or `empty` itself; another bank's is refused."""
    if not (empty.folder / JOURNAL).exists():
        return empty
    journal = read_journal(empty.folder)
    if any(getattr(journal, n) != getattr(empty, n) for n in ("key", "n_images", "token_shape")):
        raise UserError(f"{empty.folder / JOURNAL}: another bank's; {_mend(empty.folder)}")
    return journal


class _Stored(TypedDict):
    """meta.json."""

    format: int
    key: str
    n_images: int
    token_shape: list[int]
    chunk: int
    backbone: str
    checksums: dict[str, list[int | None]]
    modified: dict[str, int]


def read_journal(folder: Path) -> Journal:
    """The journal in this folder; refused in one line if it is damaged or of another format."""
    path = folder / JOURNAL
    try:
        stored: _Stored = read_json(path, _Stored)
    except (OSError, UserError):
        raise UserError(f"{path}: not a journal of this version; {_mend(folder)}") from None
    journal = Journal(
        folder,
        stored["key"],
        stored["n_images"],
        tuple(stored["token_shape"]),
        stored["chunk"],
        stored["backbone"],
        stored["checksums"],
        stored["modified"],
    )
    if stored["format"] != FORMAT or not journal.is_sound():
        raise UserError(f"{path}: not a journal of this version; {_mend(folder)}")
    return journal


def _mend(folder: Path) -> str:
    return f"delete the folder {folder} to have it built again"
