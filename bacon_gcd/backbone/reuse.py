"""Rows that other banks hold already: adding one image to a set computes that image alone.

A bank keeps two short hashes of each of its rows: of the pixels, on which the test view depends,
and of the image's name, from which the random numbers of its training views are drawn. Banks of one
trunk lie in folders whose names begin alike, so a new bank finds the others and copies from them.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bacon_gcd.backbone.journal import HALF, HalfArray, Journal, read_journal
from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.joined import boxes_of
from bacon_gcd.system.files import write_atomic

IntArray = npt.NDArray[np.int64]
RowHashes = npt.NDArray[np.uint8]
"""(N, 2, 16): of each row, the hash of its pixels and that of its name."""

ROWS = "rows.npy"
HASH_BYTES = 16


def row_hashes(table: ImageTable, rows: IntArray) -> RowHashes:
    """(N, 2, 16) hashes of these rows; boxes of one file have different pixels."""
    boxes = boxes_of(table.source)
    pixels = [f"{table.contents[row]} {boxes[row]}" for row in rows]
    names = [table.ids[row] for row in rows]
    both = b"".join(_short_hash(text) for pair in zip(pixels, names, strict=True) for text in pair)
    return np.frombuffer(both, dtype=np.uint8).reshape(len(rows), 2, HASH_BYTES)


def _short_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()


def write_rows(folder: Path, hashes: RowHashes) -> None:
    """Keep the hashes beside the tokens, for banks that are built later."""
    buffer = io.BytesIO()
    np.save(buffer, hashes, allow_pickle=False)
    write_atomic(folder / ROWS, buffer.getvalue())


@dataclass(frozen=True, eq=False)
class OtherBank:
    """A bank of the same trunk, some of whose rows may be the ones that are wanted."""

    journal: Journal
    hashes: RowHashes

    @cached_property
    def by_pixels(self) -> dict[bytes, int]:
        """Hash of the pixels -> row."""
        return {each.tobytes(): row for row, each in enumerate(self.hashes[:, 0])}

    @cached_property
    def by_both(self) -> dict[bytes, int]:
        """Hashes of pixels and name -> row."""
        return {each.tobytes(): row for row, each in enumerate(self.hashes)}

    def find(self, wanted: RowHashes, name: str) -> IntArray:
        """(n,) rows of the wanted images in the view of this name, -1 where there is none."""
        by_pixels = name.startswith("test-")
        index = self.by_pixels if by_pixels else self.by_both
        keys = wanted[:, 0] if by_pixels else wanted
        rows = np.array([index.get(key.tobytes(), -1) for key in keys], dtype=np.int64)
        done = [self.journal.done(name, n) for n in range(self.journal.n_chunks)]
        return np.where(np.array(done)[rows // self.journal.chunk], rows, -1)

    def view(self, name: str) -> HalfArray:
        """(N, *token_shape) the stored tokens of a view, checked as when the bank is opened."""
        journal = self.journal
        journal.check([name])
        shape = (journal.n_images, *journal.token_shape)
        return np.memmap(journal.path(name), HALF, mode="r", shape=shape)


def other_banks(journal: Journal) -> list[OtherBank]:
    """The banks beside this one that hold tokens of the same trunk; damaged ones are left out."""
    trunk = journal.key.split("-")[0]
    folders = sorted(journal.folder.parent.glob(f"{trunk}-*"))
    return [bank for each in folders if each != journal.folder for bank in _open(each, journal)]


def _open(folder: Path, like: Journal) -> Iterator[OtherBank]:
    try:
        journal = read_journal(folder)
        hashes = np.load(folder / ROWS, allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError):
        return
    fits = hashes.dtype == np.uint8 and hashes.shape == (journal.n_images, 2, HASH_BYTES)
    if fits and journal.token_shape == like.token_shape:
        yield OtherBank(journal, hashes)


class Copies:
    """Where the rows of one view can be copied from."""

    def __init__(self, name: str, wanted: RowHashes, banks: list[OtherBank]) -> None:
        """Look for each wanted row in one bank after the other."""
        self.views: list[HalfArray] = []
        self.view_of: IntArray = np.full(len(wanted), -1)
        self.row_of: IntArray = np.full(len(wanted), -1)
        for bank in banks:
            missing = np.flatnonzero(self.view_of < 0)
            if len(missing) and name in bank.journal.checksums:
                self._take(missing, bank, name, wanted)

    def _take(self, missing: IntArray, bank: OtherBank, name: str, wanted: RowHashes) -> None:
        rows = bank.find(wanted[missing], name)
        found = rows >= 0
        if not found.any():
            return
        try:
            self.views.append(bank.view(name))
        except (UserError, OSError, ValueError):  # damaged or just removed: computed instead
            return
        self.view_of[missing[found]] = len(self.views) - 1
        self.row_of[missing[found]] = rows[found]

    def lacking(self, span: range) -> IntArray:
        """Positions of this span that no other bank holds."""
        return np.flatnonzero(self.view_of[span.start : span.stop] < 0) + span.start

    def read(self, span: range, token_shape: tuple[int, ...]) -> HalfArray:
        """(n, *token_shape) tokens of this span; zeros where there are none to copy."""
        tokens = np.zeros((len(span), *token_shape), dtype=HALF)
        for number, view in enumerate(self.views):
            taken = np.flatnonzero(self.view_of[span.start : span.stop] == number)
            tokens[taken] = view[self.row_of[taken + span.start]]
        return tokens
