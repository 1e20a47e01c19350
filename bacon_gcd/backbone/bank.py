"""Tokens on disk: fp16 or packed, memory-mapped, filled chunk by chunk, keyed by what made them.

A bank is a folder with one file per view, whose rows are the images in order. So views can be
added later, and the test view serves banks of any number and kind of training views.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from bacon_gcd.backbone.base import Backbone, Device
from bacon_gcd.backbone.draws import check_view, pick_views
from bacon_gcd.backbone.filling import StoredView, fill
from bacon_gcd.backbone.journal import FORMAT, HALF, Journal, open_journal
from bacon_gcd.backbone.packing import HALF_TOKENS, stored_shape, unpack
from bacon_gcd.backbone.pieces import pieces_in
from bacon_gcd.backbone.rendering import IntArray, check_size
from bacon_gcd.backbone.sources import FreshTokens, ReadyTokens, TokenSource
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import ViewSettings, strong_settings
from bacon_gcd.system.files import cache_dir, digest
from bacon_gcd.system.locks import remove_parts
from bacon_gcd.system.processes import agreed, any_says, is_first, n_processes, wait_for_all

__all__ = ["Bank", "FreshTokens", "ReadyTokens", "TokenSource", "build_bank"]

LOCK = ".lock"
CHUNK = 256  # images that are written at once; where they take long, pieces are put aside
SPARE_BYTES = 64 * 2**20  # what a bank leaves free on the disk


class Bank:
    """Stored tokens of N images: the test view, V weak training views and perhaps strong ones."""

    def __init__(
        self,
        journal: Journal,
        views: Sequence[StoredView],
        *,
        token_shape: tuple[int, ...],
        stored: str = HALF_TOKENS,
        device: torch.device,
        n_computed: int = 0,
    ) -> None:
        """Open the finished files of `views`, the test view first.

        token_shape, device: of the tokens that are handed out.
        stored: how they are kept; see `packing`.
        n_computed: views of images that were computed just now, for the record.
        """
        self._journal, self._names = journal, [view.name for view in views]
        self.device, self.n_computed = device, n_computed
        self.folder, self.key = journal.folder, journal.key
        self.token_shape, self.packed = token_shape, stored != HALF_TOKENS
        kinds = np.array([view.settings.kind for view in views])
        self._stored: dict[str, IntArray] = {
            kind: np.flatnonzero(kinds == kind) for kind in sorted(set(kinds) - {"test"})
        }
        shape = (journal.n_images, *journal.token_shape)
        # Mode "c" is private to us: torch wants memory it may write to, the file stays as it is.
        self._maps = [
            torch.from_numpy(np.memmap(journal.path(name), HALF, mode="c", shape=shape))
            for name in self._names
        ]

    @property
    def n_views(self) -> int:
        """V: the stored weak training views."""
        return len(self._stored.get("weak", ()))

    @property
    def n_bytes(self) -> int:
        """Size of the stored tokens."""
        return len(self._maps) * len(self) * self._journal.row_bytes

    def __len__(self) -> int:
        return self._journal.n_images

    def verify(self) -> None:
        """Read everything and compare it with the checksums; one line if it differs."""
        self._journal.check(self._names, thorough=True)

    def test(self, positions: npt.ArrayLike) -> Tensor:
        """(n, *token_shape): the test view of these images, in this order."""
        return self.stored_view(positions, 0)

    def stored_view(self, positions: npt.ArrayLike, view: int) -> Tensor:
        """(n, *token_shape): weak training view 1..V of these images; 0 is the test view."""
        check_view(view, self.n_views)
        wanted = torch.from_numpy(np.asarray(positions, dtype=np.int64))
        return self._values(self._maps[view].index_select(0, wanted).to(self.device))

    def _values(self, stored: Tensor) -> Tensor:
        """Tokens as they were before they were stored, in float32."""
        return unpack(stored, self.token_shape[-1]) if self.packed else stored.float()

    def batch(
        self, positions: npt.ArrayLike, kinds: Sequence[str], *, seed: int, step: int
    ) -> Tensor:
        """(len(kinds) * n, *token_shape), view-major: a random stored view of each kind in turn."""
        positions = np.asarray(positions, dtype=np.int64)
        for kind in kinds:
            choose("stored view", kind, self._stored)
        views = pick_views(positions, kinds, self._stored, seed=seed, step=step)
        # Row by row straight into float32: one pass over the memory, faster than two in bulk. For
        # another device half the bytes are sent, from memory that it can read by itself.
        at_once = self.device.type == "cpu" and not self.packed
        tokens = torch.empty(
            views.size,
            *self._journal.token_shape,
            dtype=torch.float32 if at_once else torch.float16,
            device=self._maps[0].device,
            pin_memory=self.device.type == "cuda",
        )
        rows = np.tile(positions, len(kinds)).tolist()
        for slot, (row, view) in enumerate(zip(rows, views.ravel().tolist(), strict=True)):
            tokens[slot] = self._maps[view][row]
        return self._values(tokens.to(self.device, non_blocking=True))


def build_bank(
    table: ImageTable,
    rows: npt.ArrayLike,
    backbone: Backbone,
    *,
    n_views: int,
    settings: ViewSettings | None = None,
    strong_views: int = 0,
    strong: ViewSettings | None = None,
    stored: str = HALF_TOKENS,
    seed: int = 0,
    folder: Path | None = None,
    workers: int = 2,
    chunk: int = CHUNK,
    device: Device = None,
) -> Bank:
    """The bank of these rows of a table, of which only what no bank holds yet is computed.

    n_views, strong_views: training views to store of each kind, besides the test view.
    stored: how tokens are kept, half or int8; see `packing`.
    folder: the folder of banks, by default in the cache; the bank is folder/key.
    workers: threads that open images and make views while the trunk is busy with others.
    chunk: images per chunk; a bank that exists keeps its own. A kill can cost a chunk that takes
        seconds, and of a longer one its last seconds; see `pieces`.
    device: of the tokens that are handed out; the backbone's own unless given.
    An image that changed or can no longer be read stops the work with one line; what is finished
    is kept.
    """
    rows = np.asarray(rows, dtype=np.int64)
    if len(rows) == 0:
        raise UserError("there are no images to embed")
    views = _views(backbone, n_views, settings, strong_views, strong, seed)
    names = [view.name for view in views]
    empty = _empty_journal(table, rows, backbone, stored=stored, folder=folder, chunk=chunk)
    n_computed = 0
    # One process may already be filling the bank when another looks: they go by what any has seen.
    if any_says(not open_journal(empty).complete(names)):
        with agreed():
            _check_space(open_journal(empty), names)
        with _one_writer(empty.folder):
            journal = open_journal(empty)
            n_computed = fill(journal, views, table, rows, backbone, stored=stored, workers=workers)
    journal = open_journal(empty)
    journal.check(names)
    return Bank(
        journal,
        views,
        token_shape=tuple(backbone.token_shape),
        stored=stored,
        device=backbone.device if device is None else torch.device(device),
        n_computed=n_computed,
    )


def n_unfinished(
    table: ImageTable,
    backbone: Backbone,
    *,
    n_views: int,
    stored: str = HALF_TOKENS,
    seed: int,
    folder: Path | None = None,
) -> int:
    """Images of a table that are neither in its bank nor put aside, in a view it is to have."""
    rows = np.arange(len(table))
    journal = open_journal(_empty_journal(table, rows, backbone, stored=stored, folder=folder))
    names = [view.name for view in _views(backbone, n_views, None, 0, None, seed)]
    unfinished = (n for n in range(journal.n_chunks) if not journal.done_all(names, n))
    missing = sum(len(journal.span(number)) for number in unfinished)
    return max(0, missing - sum(int(name.rpartition("-")[2]) for name in pieces_in(journal.folder)))


def _empty_journal(
    table: ImageTable,
    rows: IntArray,
    backbone: Backbone,
    *,
    stored: str,
    folder: Path | None,
    chunk: int = CHUNK,
) -> Journal:
    """The journal of the bank of these rows, before anything is in it."""
    key = bank_key(table, rows, backbone, stored=stored)
    shape = stored_shape(tuple(backbone.token_shape), stored)
    return Journal((folder or banks_dir()) / key, key, len(rows), shape, chunk, backbone.name)


def banks_dir() -> Path:
    """Where banks are kept unless said otherwise."""
    return cache_dir() / "banks"


def bank_key(
    table: ImageTable, rows: IntArray, backbone: Backbone, *, stored: str = HALF_TOKENS
) -> str:
    """What every file of a bank depends on, `TRUNK-IMAGES`; a view's name tells the rest.

    Of the table these are the names and contents of the rows: labels may be corrected, and other
    images may come and go.
    """
    ids, contents = ([column[row] for row in rows] for column in (table.ids, table.contents))
    color = [list(backbone.mean), list(backbone.std)]
    packed = [] if stored == HALF_TOKENS else [stored]
    trunk = digest(FORMAT, backbone.hash, list(backbone.token_shape), color, *packed)
    return f"{trunk}-{digest(ids, contents)}"


def _views(
    backbone: Backbone,
    n_views: int,
    settings: ViewSettings | None,
    strong_views: int,
    strong: ViewSettings | None,
    seed: int,
) -> list[StoredView]:
    """The test view, then the weak and the strong ones."""
    if min(n_views, strong_views) < 0:
        raise UserError(f"a bank cannot hold {min(n_views, strong_views)} training views")
    weak = settings or ViewSettings("weak", backbone.image_size)
    strong = strong or strong_settings(backbone.image_size)
    check_size(weak, backbone)
    check_size(strong, backbone)
    return [
        StoredView(weak.for_test(uncropped=backbone.uncropped), 0, seed),
        *(StoredView(weak, number, seed) for number in range(1, n_views + 1)),
        *(StoredView(strong, number, seed) for number in range(1, strong_views + 1)),
    ]


def _check_space(journal: Journal, names: Sequence[str]) -> None:
    """Refuse a bank that the disk cannot hold before anything is computed."""
    folder = journal.folder
    while not folder.exists():
        folder = folder.parent
    needed, free = journal.missing_bytes(names), shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise UserError(
            f"{journal.folder}: the bank needs {needed / 1e9:.2f} GB more, but only "
            f"{free / 1e9:.2f} GB are free; store fewer views or choose another folder with --cache"
        )


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Several processes that fill a bank together are one writer: the first holds the lock.

    A process alone waits for another that fills the bank. Several would lose each other.
    """
    with ExitStack() as held:
        with agreed():  # the others read the journal after the lock is held
            if is_first():
                _hold(held, folder)
        yield
        wait_for_all()  # and go on when it is written


def _hold(held: ExitStack, folder: Path) -> None:
    """Be the only writer until `held` ends; one of several processes does not wait for that."""
    try:
        held.enter_context(only_writer(folder, wait=n_processes() == 1))
    except Timeout:
        raise UserError(
            f"{folder}: another process is filling this bank; start again when it has finished"
        ) from None


@contextmanager
def only_writer(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time change a bank; the others wait, or get a `Timeout` at once."""
    try:
        lock = _acquired(folder, wait=wait)
    except OSError as error:
        if isinstance(error, Timeout):
            raise
        raise UserError(f"{folder}: {error.strerror}; choose another with --cache") from error
    try:
        remove_parts(folder)
        yield
    finally:
        if not any(each.name != LOCK for each in folder.glob("*")):  # nothing could be stored
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _acquired(folder: Path, *, wait: bool) -> FileLock:
    """The lock of a bank's folder, which is made where it is missing."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise
            sys.stderr.write(f"waiting for another process that computes the same ({folder})\n")
            with suppress(FileNotFoundError):  # the folder was removed while we waited
                lock.acquire()
        if lock.is_locked and (folder / LOCK).exists():
            return lock
        lock.release()  # a lock in a folder that is gone keeps nobody out
