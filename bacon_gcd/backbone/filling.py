"""Filling a bank: what is neither finished nor in another bank goes through the trunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.journal import HalfArray, Journal
from bacon_gcd.backbone.packing import HALF_TOKENS, pack
from bacon_gcd.backbone.rendering import PIECE, IntArray, ahead, render_images, trunk_tokens
from bacon_gcd.backbone.reuse import Copies, other_banks, row_hashes, write_rows
from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import PixelArray, ViewSettings
from bacon_gcd.system.files import digest
from bacon_gcd.system.processes import gather_facts, is_first, n_processes, process_number
from bacon_gcd.system.progress import Advance, progress


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


@dataclass(frozen=True, eq=False)
class Piece:
    """Images that go through the trunk together, and the views they lack."""

    positions: IntArray
    views: Sequence[StoredView]


@dataclass(frozen=True, eq=False)
class Chunk:
    """An unfinished chunk: it is written as a whole when its pieces are computed."""

    number: int
    views: Sequence[StoredView]
    pieces: Sequence[Piece]

    @property
    def n_images(self) -> int:
        """Images that are computed."""
        return sum(len(piece.positions) for piece in self.pieces)


def fill(
    journal: Journal,
    views: Sequence[StoredView],
    table: ImageTable,
    rows: IntArray,
    backbone: Backbone,
    *,
    stored: str,
    workers: int,
) -> int:
    """Copy or compute every unfinished chunk; how many views of images were computed.

    stored: how tokens are kept; see `packing`.
    Several processes take one chunk each, again and again; the first one keeps the journal.
    """
    journal.check([view.name for view in views])
    hashes = row_hashes(table, rows)
    if is_first():
        write_rows(journal.folder, hashes)
    banks = other_banks(journal)
    copies = {view.name: Copies(view.name, hashes, banks) for view in views}
    chunks = plan(journal, views, copies)
    own = chunks[process_number() :: n_processes()]

    def render(piece: Piece) -> PixelArray:
        wanted = [(view.settings, view.number) for view in piece.views]
        part = rows[piece.positions]
        return render_images(table, part, [wanted] * len(part), seed=views[0].seed)

    pieces = [piece for chunk in own for piece in chunk.pieces]
    with (
        closing(ahead(render, pieces, workers=workers)) as rendered,
        progress("embedding", sum(chunk.n_images for chunk in chunks)) as advance,
    ):
        for turn in range(-(-len(chunks) // n_processes())):
            done = [
                _compute(chunk, journal, copies, rendered, backbone, stored, advance)
                for chunk in own[turn : turn + 1]
            ]
            for each in chain(*gather_facts(done)):
                journal.finish(each["number"], each["checksums"])
            taken = chunks[turn * n_processes() : (turn + 1) * n_processes()]
            advance(sum(chunk.n_images for chunk in taken if chunk not in own))
            if is_first():
                journal.save()
    return sum(len(piece.positions) * len(piece.views) for c in chunks for piece in c.pieces)


def _compute(
    chunk: Chunk,
    journal: Journal,
    copies: Mapping[str, Copies],
    rendered: Iterator[PixelArray],
    backbone: Backbone,
    stored: str,
    advance: Advance,
) -> dict[str, Any]:
    """Copy or compute a chunk and write it; what the journal is to say of it."""
    span = journal.span(chunk.number)
    tokens = {v.name: copies[v.name].read(span, journal.token_shape) for v in chunk.views}
    for piece in chunk.pieces:
        for view, images in zip(piece.views, next(rendered), strict=True):
            made = as_stored(trunk_tokens(backbone, images), backbone, stored)
            tokens[view.name][piece.positions - span.start] = made
        n_views = len(piece.views)
        advance(len(piece.positions), note=f"{n_views} views each" if n_views > 1 else "")
    return {"number": chunk.number, "checksums": journal.store(chunk.number, tokens)}


def plan(
    journal: Journal, views: Sequence[StoredView], copies: Mapping[str, Copies]
) -> list[Chunk]:
    """The unfinished chunks in order. Pieces never cross chunks: the trunk sees the same batches
    whether or not the work was interrupted, so the bytes are the same too.
    """
    chunks = []
    for number in range(journal.n_chunks):
        missing = [view for view in views if not journal.done(view.name, number)]
        if missing:
            chunks.append(Chunk(number, missing, _pieces(journal.span(number), missing, copies)))
    return chunks


def _pieces(span: range, views: Sequence[StoredView], copies: Mapping[str, Copies]) -> list[Piece]:
    """What must be computed; views that lack the same images are made together."""
    together: dict[tuple[int, ...], list[StoredView]] = {}
    lacking = {view.name: copies[view.name].lacking(span) for view in views}
    for view in views:
        together.setdefault(tuple(lacking[view.name].tolist()), []).append(view)
    return [
        Piece(lacking[group[0].name][start : start + PIECE], group)
        for group in together.values()
        for start in range(0, len(lacking[group[0].name]), PIECE)
    ]


def as_stored(tokens: Tensor, backbone: Backbone, stored: str) -> HalfArray:
    """Tokens as half floats, or packed into fewer of them."""
    half = as_half(tokens, backbone)
    packed: HalfArray = half if stored == HALF_TOKENS else pack(torch.from_numpy(half)).numpy()
    return packed


def as_half(tokens: Tensor, backbone: Backbone) -> HalfArray:
    """Tokens in the stored type; a value that fp16 cannot hold is refused, not made infinite."""
    if tuple(tokens.shape[1:]) != tuple(backbone.token_shape):
        found = tuple(tokens.shape[1:])
        raise ValueError(f"{backbone.name} promised tokens {backbone.token_shape}, gave {found}")
    half = tokens.half()
    if not torch.isfinite(half).all():
        raise UserError(f"{backbone.name}: its tokens are not finite or too large for fp16")
    array: HalfArray = half.numpy(force=True)
    return array
