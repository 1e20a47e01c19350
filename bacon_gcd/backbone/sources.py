"""Where a training step gets its tokens: one contract, so that the step cannot tell which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.base import Backbone, Device
from bacon_gcd.backbone.draws import check_view, mixed_bits, occurrences, pick_views
from bacon_gcd.backbone.rendering import (
    PIECE,
    IntArray,
    Wanted,
    ahead,
    check_size,
    mixed_trunk_tokens,
    render_images,
    trunk_tokens,
)
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import PixelArray, ViewSettings

TRAINING_KINDS = ("weak", "strong")
FIRST_FRESH = 1 << 32  # fresh views are numbered from here: never one that a bank stores
MAX_SLOTS = 16  # views of one image in one step, at most


class TokenSource(Protocol):
    """Tokens of N images by position 0..N-1, always float32, on the device the source was given."""

    @property
    def n_views(self) -> int:
        """V: the weak training views that `stored_view` can name."""

    @property
    def token_shape(self) -> tuple[int, ...]:
        """Shape of the tokens of one image."""

    def __len__(self) -> int: ...

    def test(self, positions: npt.ArrayLike) -> Tensor:
        """(n, *token_shape): the test view of these images, in this order."""

    def stored_view(self, positions: npt.ArrayLike, view: int) -> Tensor:
        """(n, *token_shape): weak training view 1..V of these images; 0 is the test view."""

    def batch(
        self, positions: npt.ArrayLike, kinds: Sequence[str], *, seed: int, step: int
    ) -> Tensor:
        """(len(kinds) * n, *token_shape), view-major: a random view of each kind in turn.

        What is drawn depends on the seed, the step and the image alone; an image that occurs
        twice gets its own draw each time.
        """


class FreshTokens:
    """New views through the trunk at every step: the paper's own procedure, and the slow one."""

    def __init__(
        self,
        table: ImageTable,
        rows: npt.ArrayLike,
        backbone: Backbone,
        settings: ViewSettings,
        *,
        strong: ViewSettings | None = None,
        stored: TokenSource | None = None,
        n_views: int = 10,
        seed: int = 0,
        workers: int = 2,
        device: Device = None,
    ) -> None:
        """Make a source of fresh tokens.

        stored: a bank of the same rows that holds the test view, which never changes.
        n_views: how many weak views `stored_view` can name; they equal those of a bank with
            this seed.
        device: of the tokens; the backbone's own unless given.
        """
        self.table, self.backbone = table, backbone
        self.rows: IntArray = np.asarray(rows, dtype=np.int64)
        self.settings = {"weak": settings} | ({"strong": strong} if strong else {})
        self.stored, self.n_views, self.seed, self.workers = stored, n_views, seed, workers
        self.device = backbone.device if device is None else torch.device(device)
        for each in self.settings.values():
            check_size(each, backbone)

    @property
    def token_shape(self) -> tuple[int, ...]:
        """Shape of the tokens of one image."""
        return self.backbone.token_shape

    def __len__(self) -> int:
        return len(self.rows)

    def test(self, positions: npt.ArrayLike) -> Tensor:
        """(n, *token_shape): the test view of these images, in this order."""
        if self.stored is not None:
            return self.stored.test(positions).to(self.device)
        return self.stored_view(positions, 0)

    def stored_view(self, positions: npt.ArrayLike, view: int) -> Tensor:
        """(n, *token_shape): weak training view 1..V of these images; 0 is the test view."""
        check_view(view, self.n_views)
        settings = self.settings["weak"]
        if view == 0:
            settings = settings.for_test(uncropped=self.backbone.uncropped)
        positions = np.asarray(positions, dtype=np.int64)
        return self._render(positions, [[(settings, view)]] * len(positions), self.seed)[0]

    def batch(
        self, positions: npt.ArrayLike, kinds: Sequence[str], *, seed: int, step: int
    ) -> Tensor:
        """(len(kinds) * n, *token_shape), view-major: a new view of each kind in turn."""
        positions = np.asarray(positions, dtype=np.int64)
        return self._render(positions, self._new_views(positions, kinds, step), seed).flatten(0, 1)

    def mixed(
        self,
        positions: npt.ArrayLike,
        kinds: Sequence[str],
        share: float,
        rows: Tensor,
        partners: Tensor,
        *,
        seed: int,
        step: int,
    ) -> Tensor:
        """(m, *token_shape): tokens of views that are mixed before the trunk sees them.

        rows, partners: (m,) rows of what `batch` gives for the same positions, kinds, seed and
            step; share of the one and the rest of the other are added, pixel by pixel. The views
            are made a second time, which is cheap beside the trunk.
        """
        positions = np.asarray(positions, dtype=np.int64)
        pieces = self._pixels(positions, self._new_views(positions, kinds, step), seed)
        pixels = np.concatenate([piece for _, piece in pieces], axis=1)
        pixels = pixels.reshape(-1, *pixels.shape[2:])
        tokens = torch.empty(len(rows), *self.token_shape, device=self.device)
        for start in range(0, len(rows), PIECE):
            pair = (
                pixels[each[start : start + PIECE].numpy(force=True)] for each in (rows, partners)
            )
            tokens[start : start + PIECE] = mixed_trunk_tokens(self.backbone, *pair, share=share)
        return tokens

    def _new_views(self, positions: IntArray, kinds: Sequence[str], step: int) -> list[Wanted]:
        """The views of a step, by numbers that no other step, bank or occurrence has."""
        settings = [self.settings[choose("view kind", kind, self.settings)] for kind in kinds]
        first = FIRST_FRESH + step * MAX_SLOTS
        return [
            [(one, first + slot + (int(again) << 64)) for slot, one in enumerate(settings)]
            for again in occurrences(positions)
        ]

    def _render(self, positions: IntArray, wanted: Sequence[Wanted], seed: int) -> Tensor:
        """(V, n, *token_shape): V wanted views of each of these images."""
        n_views = len(wanted[0]) if wanted else 1
        tokens = torch.empty(n_views, len(positions), *self.token_shape, device=self.device)
        for start, pixels in self._pixels(positions, wanted, seed):
            for view in range(n_views):
                tokens[view, start : start + PIECE] = trunk_tokens(self.backbone, pixels[view])
        return tokens

    def _pixels(
        self, positions: IntArray, wanted: Sequence[Wanted], seed: int
    ) -> Iterator[tuple[int, PixelArray]]:
        """Where a piece of the images begins, and its (V, PIECE, S, S, 3) pixels."""

        def render(start: int) -> PixelArray:
            piece = slice(start, start + PIECE)
            return render_images(self.table, self.rows[positions[piece]], wanted[piece], seed=seed)

        starts = range(0, len(positions), PIECE)
        return zip(starts, ahead(render, starts, workers=self.workers), strict=True)


class ReadyTokens:
    """Tokens or feature vectors that are already there, in memory."""

    def __init__(
        self,
        tokens: npt.ArrayLike | Tensor,
        *,
        n_views: int = 0,
        noise: float = 0.0,
        dropout: float = 0.0,
        device: Device = None,
    ) -> None:
        """Make a source of what is given.

        tokens: (N, ...), the same for every view of an image; or, where n_views says V,
            (N, V + 1, ...): the test view, then V training views, which serve as weak and strong.
        noise: what training views get added, as a share of the tokens' own standard deviation.
        dropout: the share of a training view's entries that become zero.
        device: of the tokens; where they are already unless given.
        """
        tokens = tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.asarray(tokens))
        tokens = tokens.float()
        if not torch.isfinite(tokens).all():
            raise UserError("the given tokens hold values that are not finite")
        if n_views and (tokens.ndim < 2 or tokens.shape[1] != n_views + 1):
            raise UserError(
                f"tokens of {n_views} training views have shape (N, {n_views + 1}, ...), "
                f"not {tuple(tokens.shape)}"
            )
        # Without training views, the one vector of an image is its test view and its view 1.
        every = tokens if n_views else tokens[:, None].expand(-1, 2, *tokens.shape[1:])
        self._tokens = every.to(tokens.device if device is None else device)
        self.n_views, self.dropout = max(n_views, 1), dropout
        self.noise = noise * float(tokens.std(unbiased=False)) if noise else 0.0

    @property
    def token_shape(self) -> tuple[int, ...]:
        """Shape of the tokens of one image."""
        return tuple(self._tokens.shape[2:])

    def __len__(self) -> int:
        return len(self._tokens)

    def test(self, positions: npt.ArrayLike) -> Tensor:
        """(n, *token_shape): the test view of these images, in this order."""
        return self.stored_view(positions, 0)

    def stored_view(self, positions: npt.ArrayLike, view: int) -> Tensor:
        """(n, *token_shape): training view 1..V of these images; 0 is the test view."""
        check_view(view, self.n_views)
        return self._tokens[np.asarray(positions, dtype=np.int64), view]

    def batch(
        self, positions: npt.ArrayLike, kinds: Sequence[str], *, seed: int, step: int
    ) -> Tensor:
        """(len(kinds) * n, *token_shape), view-major: a view of each kind, with noise if asked."""
        positions = np.asarray(positions, dtype=np.int64)
        for kind in kinds:
            choose("view kind", kind, TRAINING_KINDS)
        stored = {kind: np.arange(1, self.n_views + 1) for kind in TRAINING_KINDS}
        views = pick_views(positions, kinds, stored, seed=seed, step=step)
        tokens = self._tokens[positions, views].flatten(0, 1)
        return self._disturbed(tokens, seed, step)

    def _disturbed(self, tokens: Tensor, seed: int, step: int) -> Tensor:
        # Drawn where the generator is and moved: the same numbers on every device.
        generator = torch.Generator().manual_seed(int(mixed_bits(np.uint64(0), seed, step) >> 1))
        where = generator.device
        if self.noise:
            noise = torch.randn(tokens.shape, generator=generator, device=where)
            tokens = tokens + self.noise * noise.to(tokens.device)
        if self.dropout:
            kept = torch.rand(tokens.shape, generator=generator, device=where) >= self.dropout
            tokens = tokens * kept.to(tokens.device)
        return tokens
