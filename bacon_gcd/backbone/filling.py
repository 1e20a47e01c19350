"""Filling a bank: what is neither finished nor in another bank goes through the trunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.journal import HalfArray, Journal
from bacon_gcd.backbone.packing import HALF_TOKENS, pack
from bacon_gcd.backbone.pieces import Aside, pieces_in, remove_pieces
from bacon_gcd.backbone.rendering import PIECE, IntArray, ahead, render_images, trunk_tokens
from bacon_gcd.backbone.reuse import Copies, other_banks, row_hashes, write_rows
from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import PixelArray, ViewSettings
from bacon_gcd.system.files import digest
from bacon_gcd.system.processes import gather_facts, is_first, n_processes, process_number
from bacon_gcd.system.progress import Advance, progress

FEW = 8  # images of a piece where the trunk sees them one after the other in any case


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

    @cached_property
    def name(self) -> str:
        """Under which it is put aside; it ends with the number of its images."""
        views = [view.name for view in self.views]
        return f"{digest(self.positions.tolist(), views)}-{len(self.positions)}"

    def shape(self, token_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of its tokens: views, images and the tokens of one."""
        return (len(self.views), len(self.positions), *token_shape)


@dataclass(frozen=True, eq=False)
class Chunk:
    """An unfinished chunk: it is written as a whole when its pieces are computed."""

    number: int
    views: Sequence[StoredView]
    pieces: Sequence[Piece]


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
    chunks = plan(journal, views, copies, size=FEW if backbone.at_a_time else PIECE)
    own = chunks[process_number() :: n_processes()]
    pieces = [piece for chunk in own for piece in chunk.pieces]
    aside = Aside(journal.folder, {p.name: p.shape(journal.token_shape) for p in pieces})

    def render(piece: Piece) -> PixelArray:
        wanted = [(view.settings, view.number) for view in piece.views]
        part = rows[piece.positions]
        return render_images(table, part, [wanted] * len(part), seed=views[0].seed)

    missing = [piece for piece in pieces if piece.name not in aside.found]
    n_images = sum(gather_facts(sum(len(piece.positions) for piece in missing)))
    n_computed = 0
    with (
        closing(ahead(render, missing, workers=workers)) as rendered,
        progress(backbone.work, n_images) as advance,
    ):
        for turn in range(-(-len(chunks) // n_processes())):
            done = [
                _compute(chunk, journal, copies, aside, rendered, backbone, stored, advance)
                for chunk in own[turn : turn + 1]
            ]
            by_process = gather_facts(done)
            for each in chain(*by_process):
                journal.finish(each["number"], each["checksums"])
                n_computed += each["views"]
            by_process.pop(process_number())
            advance(sum(each["images"] for each in chain(*by_process)))
            if is_first():
                journal.save()
                taken = chunks[turn * n_processes() : (turn + 1) * n_processes()]
                remove_pieces(journal.folder, (p.name for chunk in taken for p in chunk.pieces))
    if is_first():
        remove_pieces(journal.folder, pieces_in(journal.folder))  # of other plans for a chunk
    return n_computed


def _compute(
    chunk: Chunk,
    journal: Journal,
    copies: Mapping[str, Copies],
    aside: Aside,
    rendered: Iterator[PixelArray],
    backbone: Backbone,
    stored: str,
    advance: Advance,
) -> dict[str, Any]:
    """Copy or compute a chunk and write it; what the journal is to say of it."""
    span = journal.span(chunk.number)
    tokens = {v.name: copies[v.name].read(span, journal.token_shape) for v in chunk.views}
    missing = [piece for piece in chunk.pieces if piece.name not in aside.found]
    for piece in chunk.pieces:
        if piece in missing:
            tokens_of = _by_view(backbone, next(rendered), advance)
            made = np.stack([as_stored(each, backbone, stored) for each in tokens_of])
            aside.put(piece.name, made)
        else:
            made = aside.found.pop(piece.name)
        for view, values in zip(piece.views, made, strict=True):
            tokens[view.name][piece.positions - span.start] = values
    checksums = journal.store(chunk.number, tokens)
    aside.all_is_stored()
    return {
        "number": chunk.number,
        "checksums": checksums,
        "images": sum(len(piece.positions) for piece in missing),
        "views": sum(len(piece.positions) * len(piece.views) for piece in missing),
    }


def _by_view(backbone: Backbone, pixels: PixelArray, advance: Advance) -> Iterator[Tensor]:
    """(n, *token_shape) tokens of each view of (V, n, S, S, 3) pixels; progress counts images."""
    n_views, n_images = pixels.shape[:2]
    note = f"{n_views} views each" if n_views > 1 else ""
    size = backbone.at_a_time or n_images
    for view in pixels:
        tokens = []
        for start in range(0, n_images, size):
            part = view[start : start + size]
            tokens.append(trunk_tokens(backbone, part))
            advance(len(part) / n_views, note=note)
        yield torch.cat(tokens)


def plan(
    journal: Journal, views: Sequence[StoredView], copies: Mapping[str, Copies], *, size: int
) -> list[Chunk]:
    """The unfinished chunks in order, in pieces of at most this size. Pieces never cross chunks:
    the trunk sees the same batches whether or not the work was interrupted, so the bytes are the
    same too.
    """
    chunks = []
    for number in range(journal.n_chunks):
        missing = [view for view in views if not journal.done(view.name, number)]
        if missing:
            pieces = _pieces(journal.span(number), missing, copies, size)
            chunks.append(Chunk(number, missing, pieces))
    return chunks


def _pieces(
    span: range, views: Sequence[StoredView], copies: Mapping[str, Copies], size: int
) -> list[Piece]:
    """What must be computed; views that lack the same images are made together."""
    together: dict[tuple[int, ...], list[StoredView]] = {}
    lacking = {view.name: copies[view.name].lacking(span) for view in views}
    for view in views:
        together.setdefault(tuple(lacking[view.name].tolist()), []).append(view)
    return [
        Piece(lacking[group[0].name][start : start + size], group)
        for group in together.values()
        for start in range(0, len(lacking[group[0].name]), size)
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
