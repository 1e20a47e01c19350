"""Tokens on disk: fp16, memory-mapped, filled chunk by chunk, keyed by what they depend on.

A bank is a folder with one file per view, whose rows are the images in order. So views can be
added later, and the test view serves banks of any number and kind of training views.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.journal import FORMAT, HALF, HalfArray, Journal, open_journal
from bacon_gcd.backbone.rendering import (
    PIECE,
    IntArray,
    ahead,
    check_size,
    render_images,
    trunk_tokens,
)
from bacon_gcd.backbone.sources import (
    FreshTokens,
    ReadyTokens,
    TokenSource,
    check_view,
    pick_views,
)
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import PixelArray, ViewSettings, strong_settings
from bacon_gcd.system.files import cache_dir, digest
from bacon_gcd.system.locks import locked, remove_parts
from bacon_gcd.system.progress import progress

__all__ = ["Bank", "FreshTokens", "ReadyTokens", "TokenSource", "build_bank"]

SPARE_BYTES = 64 * 2**20  # what a bank leaves free on the disk


@dataclass(frozen=True)
class StoredView:
    """One view of every image, and the name of its file."""

    settings: ViewSettings
    number: int
    seed: int

    @property
    def name(self) -> str:
        """Kind, what else the pixels depend on, and the number."""
        seed = 0 if self.settings.kind == "test" else self.seed
        return f"{self.settings.kind}-{digest(asdict(self.settings), seed)[:8]}-{self.number:02d}"


class Bank:
    """Stored tokens of N images: the test view, V weak training views and perhaps strong ones."""

    def __init__(
        self, journal: Journal, views: Sequence[StoredView], *, n_computed: int = 0
    ) -> None:
        """Open the finished files of `views`, the test view first.

        n_computed: views of images that were computed just now, for the record.
        """
        self._journal, self._names = journal, [view.name for view in views]
        self.n_computed = n_computed
        self.folder, self.key, self.token_shape = journal.folder, journal.key, journal.token_shape
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
        return self._maps[view].index_select(0, wanted).float()

    def batch(
        self, positions: npt.ArrayLike, kinds: Sequence[str], *, seed: int, step: int
    ) -> Tensor:
        """(len(kinds) * n, *token_shape), view-major: a random stored view of each kind in turn."""
        positions = np.asarray(positions, dtype=np.int64)
        for kind in kinds:
            choose("stored view", kind, self._stored)
        views = pick_views(positions, kinds, self._stored, seed=seed, step=step)
        tokens = torch.empty(views.size, *self.token_shape)
        # Row by row straight into float32: one pass over the memory, faster than two in bulk.
        rows = np.tile(positions, len(kinds)).tolist()
        for place, (row, view) in enumerate(zip(rows, views.ravel().tolist(), strict=True)):
            tokens[place] = self._maps[view][row]
        return tokens


def build_bank(
    table: ImageTable,
    rows: npt.ArrayLike,
    backbone: Backbone,
    *,
    n_views: int,
    settings: ViewSettings | None = None,
    strong_views: int = 0,
    strong: ViewSettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
    workers: int = 2,
    chunk: int = 256,
) -> Bank:
    """The bank of these rows of a table, of which only what is missing is computed.

    n_views, strong_views: training views to store of each kind, besides the test view.
    folder: the folder of banks, by default in the cache; the bank is folder/key.
    workers: threads that open images and make views while the trunk is busy with others.
    chunk: images per chunk, what a kill can cost; a bank that exists keeps its own.
    An image that can no longer be read stops the work with one line; finished chunks are kept.
    """
    rows = np.asarray(rows, dtype=np.int64)
    if len(rows) == 0:
        raise UserError("there are no images to embed")
    views = _views(backbone, n_views, settings, strong_views, strong, seed)
    names = [view.name for view in views]
    key = bank_key(table, rows, backbone)
    place = (folder or cache_dir() / "banks") / key
    empty = Journal(place, key, len(rows), tuple(backbone.token_shape), chunk)
    n_computed = 0
    if not open_journal(empty).complete(names):
        _check_space(open_journal(empty), names)
        with _alone(place):
            n_computed = _fill(open_journal(empty), views, table, rows, backbone, workers)
    journal = open_journal(empty)
    journal.check(names)
    return Bank(journal, views, n_computed=n_computed)


def bank_key(table: ImageTable, rows: IntArray, backbone: Backbone) -> str:
    """What every file of a bank depends on; a view's name tells what that view depends on besides.

    Of the table these are the names and contents of the rows: labels may be corrected, and other
    images may come and go.
    """
    ids, contents = ([column[row] for row in rows] for column in (table.ids, table.contents))
    return digest(FORMAT, ids, contents, backbone.hash, list(backbone.token_shape))


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
        StoredView(weak.for_test(), 0, seed),
        *(StoredView(weak, number, seed) for number in range(1, n_views + 1)),
        *(StoredView(strong, number, seed) for number in range(1, strong_views + 1)),
    ]


@dataclass(frozen=True)
class Piece:
    """Images of one chunk that go through the trunk together, and the views they lack."""

    chunk: int
    positions: range
    views: Sequence[StoredView]


def _pieces(journal: Journal, views: Sequence[StoredView]) -> list[Piece]:
    """What is unfinished, in order. Pieces never cross chunks: the trunk sees the same batches
    whether or not the work was interrupted, so the bytes are the same too.
    """
    pieces = []
    for number in range(journal.n_chunks):
        missing = [view for view in views if not journal.done(view.name, number)]
        span = journal.span(number) if missing else range(0)
        pieces += [
            Piece(number, span[start : start + PIECE], missing)
            for start in range(0, len(span), PIECE)
        ]
    return pieces


def _fill(
    journal: Journal,
    views: Sequence[StoredView],
    table: ImageTable,
    rows: IntArray,
    backbone: Backbone,
    workers: int,
) -> int:
    """Compute and store every unfinished chunk; returns how many views of images that were."""
    journal.check([view.name for view in views])
    pieces = _pieces(journal, views)

    def render(piece: Piece) -> PixelArray:
        wanted = [(view.settings, view.number) for view in piece.views]
        part = rows[piece.positions]
        return render_images(table, part, [wanted] * len(part), seed=views[0].seed)

    n_images = sum(len(piece.positions) for piece in pieces)
    with (
        closing(ahead(render, pieces, workers=workers)) as rendered,
        progress("embedding", n_images) as advance,
    ):
        tokens: dict[str, list[HalfArray]] = {}
        for piece, pixels in zip(pieces, rendered, strict=True):
            for view, images in zip(piece.views, pixels, strict=True):
                half = _as_half(trunk_tokens(backbone, images), backbone)
                tokens.setdefault(view.name, []).append(half)
            advance(len(piece.positions), note=f"{len(piece.views)} views each")
            if piece.positions.stop == journal.span(piece.chunk).stop:
                whole = {name: np.concatenate(each) for name, each in tokens.items()}
                journal.write(piece.chunk, whole)
                tokens = {}
    return sum(len(piece.positions) * len(piece.views) for piece in pieces)


def _as_half(tokens: Tensor, backbone: Backbone) -> HalfArray:
    """Tokens in the stored type; a value that fp16 cannot hold is refused, not made infinite."""
    if tuple(tokens.shape[1:]) != tuple(backbone.token_shape):
        found = tuple(tokens.shape[1:])
        raise ValueError(f"{backbone.name} promised tokens {backbone.token_shape}, gave {found}")
    half = tokens.half()
    if not torch.isfinite(half).all():
        raise UserError(f"{backbone.name}: its tokens are not finite or too large for fp16")
    array: HalfArray = half.numpy()
    return array


def _check_space(journal: Journal, names: Sequence[str]) -> None:
    """Refuse a bank that the disk cannot hold before anything is computed."""
    folder = journal.folder
    while not folder.exists():
        folder = folder.parent
    needed, free = journal.missing_bytes(names), shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise UserError(
            f"{journal.folder}: the bank needs {needed / 1e9:.2f} GB more, but only "
            f"{free / 1e9:.2f} GB are free; store fewer views or name another place with --cache"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time fill a bank; the others wait and then find it filled."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; name another place with --cache") from error
    with locked(
        folder / ".lock", waiting=f"{folder}: waiting for the process that is filling this bank"
    ):
        remove_parts(folder)
        yield
