"""Pieces of chunks that are not finished, put aside on disk: a kill costs seconds, not a chunk.

A bank writes a chunk as a whole. Where that takes long, the pieces that are computed meanwhile are
put aside: a file for each, whole or absent, with a checksum. They go when the journal names the
chunk. A machine that computes a chunk within seconds puts nothing aside.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from bacon_gcd.backbone.journal import HALF, HalfArray
from bacon_gcd.system.files import write_atomic

ENDING = ".piece"
EVERY = 2.0  # seconds of work that a kill may cost
SHARE = 0.01  # of the time that putting aside may take: on a slow disk it is done less often
CHECKSUM_BYTES = 4


class Aside:
    """What was put aside before this run, and what this run puts aside."""

    def __init__(self, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Read the pieces that are there.

        shapes: of each piece that this run needs, by its name.
        """
        self.folder = folder
        read = {name: read_piece(folder, name, shape) for name, shape in shapes.items()}
        self.found = {name: tokens for name, tokens in read.items() if tokens is not None}
        self._waiting: dict[str, HalfArray] = {}
        self._cost = 0.0  # seconds that the last writing took
        self.all_is_stored()

    def put(self, name: str, tokens: HalfArray) -> None:
        """Keep a piece; it is written with those before it when it is time."""
        self._waiting[name] = tokens
        start = time.monotonic()
        if start - self._since < max(EVERY, self._cost / SHARE):
            return
        for each, values in self._waiting.items():
            write_piece(self.folder, each, values)
        self._cost = time.monotonic() - start
        self.all_is_stored()

    def all_is_stored(self) -> None:
        """Nothing waits any more: it was written, here or with its chunk."""
        self._waiting.clear()
        self._since = time.monotonic()


def write_piece(folder: Path, name: str, tokens: HalfArray) -> None:
    """Checksum and values of a piece, whole or not at all."""
    data = tokens.astype(HALF, copy=False).tobytes()
    checksum = zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")
    write_atomic(folder / f"{name}{ENDING}", checksum + data)


def read_piece(folder: Path, name: str, shape: tuple[int, ...]) -> HalfArray | None:
    """The values of a piece; None if they are not there, or not what was written."""
    try:
        stored = (folder / f"{name}{ENDING}").read_bytes()
    except OSError:
        return None
    checksum, data = stored[:CHECKSUM_BYTES], stored[CHECKSUM_BYTES:]
    if len(data) != math.prod(shape) * HALF.itemsize:
        return None
    if zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little") != checksum:
        return None
    return np.frombuffer(data, dtype=HALF).reshape(shape)


def remove_pieces(folder: Path, names: Iterable[str]) -> None:
    """Delete what a finished chunk holds."""
    for name in names:
        (folder / f"{name}{ENDING}").unlink(missing_ok=True)


def pieces_in(folder: Path) -> list[str]:
    """Names of all pieces that are put aside."""
    return [path.stem for path in folder.glob(f"*{ENDING}")]
