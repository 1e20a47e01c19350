"""The batches of an epoch, each read by a thread while the step before it is computed."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.rendering import ahead
from bacon_gcd.backbone.sources import FreshTokens, TokenSource
from bacon_gcd.data.batches import Batch, PixelMixer

IntArray = npt.NDArray[np.int64]
MAX_STEPS = 1_000_000  # of an epoch: no two steps of a run have the same number


@dataclass(frozen=True, eq=False)
class Loader:
    """Makes batches of a source. A batch depends on (seed, epoch, step) alone, not on the past."""

    source: TokenSource
    labels: IntArray
    """(N,) class ids, -1 = unlabeled."""
    views: tuple[str, ...]
    """Kinds of the views that a batch holds of each image."""
    seed: int
    device: torch.device

    def batch(self, positions: IntArray, *, epoch: int, step: int) -> Batch:
        """Tokens of the views of those images, from the bank or fresh: the step cannot tell."""
        number = epoch * MAX_STEPS + step
        tokens = self.source.batch(positions, self.views, seed=self.seed, step=number)
        return Batch(
            tokens=tokens.to(self.device),
            labels=torch.from_numpy(self.labels[positions]).to(self.device),
            image_ids=torch.from_numpy(positions).to(self.device),
            seed=int(np.random.default_rng([self.seed, number]).integers(2**62)),
            epoch=epoch,
            step=step,
            mix_pixels=self._pixel_mixer(positions, number),
        )

    def batches(
        self, positions: Iterable[IntArray], *, epoch: int, first: int = 0
    ) -> Generator[Batch, None, None]:
        """The batches of an epoch from step `first` on. Close it: its thread ends with it.

        Fresh tokens are made in place: their own threads render images ahead, and the trunk would
        compete with the step for the same device.
        """
        steps = enumerate(positions, first)
        if isinstance(self.source, FreshTokens):
            yield from (self.batch(each, epoch=epoch, step=step) for step, each in steps)
            return

        def read(item: tuple[int, IntArray]) -> Batch:
            return self.batch(item[1], epoch=epoch, step=item[0])

        yield from ahead(read, steps, workers=1)

    def _pixel_mixer(self, positions: IntArray, number: int) -> PixelMixer | None:
        """How the views of a step are mixed before the trunk; None where views are stored."""
        source = self.source
        if not isinstance(source, FreshTokens):
            return None

        def mix(share: float, rows: Tensor, partners: Tensor) -> Tensor:
            tokens = source.mixed(
                positions,
                self.views,
                share,
                rows.cpu(),  # pixels are made on the CPU
                partners.cpu(),
                seed=self.seed,
                step=number,
            )
            return tokens.to(self.device)

        return mix
