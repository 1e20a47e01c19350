"""What one training step sees, and the one sampler that decides which images are in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.config import UserError, choose

IntArray = npt.NDArray[np.int64]
PixelMixer = Callable[[float, Tensor, Tensor], Tensor]
SAMPLERS = ("half", "proportional", "equal")


@dataclass(frozen=True)
class Batch:
    """Tokens of B images in V views. Rows are view-major: view 1 of all images, then view 2, ..."""

    tokens: Tensor
    """(V*B, ...) what the frozen trunk gives."""
    labels: Tensor
    """(B,) class ids, -1 = unlabeled."""
    image_ids: Tensor
    """(B,) positions in the training set."""
    seed: int = 0
    """Seeds whatever the step draws at random, so that any step can be replayed alone."""
    epoch: int = 0
    """0-based epoch of the run."""
    step: int = 0
    """0-based step of the epoch."""
    mix_pixels: PixelMixer | None = None
    """(share, rows, partners) to tokens of share * pixels of `rows` + the rest of `partners`, both
    (n,) rows of `tokens`. Only fresh views have pixels left to mix."""

    @property
    def labeled(self) -> Tensor:
        """(B,) bool: which images have a label."""
        return self.labels >= 0

    @property
    def n_views(self) -> int:
        """How many views of each image there are."""
        return len(self.tokens) // max(len(self.labels), 1)

    def generator(self) -> torch.Generator:
        """Random numbers of this step, the same whenever it is replayed."""
        return torch.Generator(device=self.labels.device).manual_seed(self.seed)

    def view(self, number: int) -> Tensor:
        """Tokens of one view of all images, 0-based."""
        size = len(self.labels)
        return self.tokens[number * size : (number + 1) * size]

    def present_classes(self, n_classes: int) -> Tensor:
        """(C,) bool: classes that have a labeled image in this batch, Y_B of BaCon Eq. (5)."""
        present = torch.zeros(n_classes, dtype=torch.bool, device=self.labels.device)
        present[self.labels[self.labeled]] = True
        return present


def sample_epoch(
    labels: IntArray, *, batch_size: int, kind: str, seed: int, epoch: int
) -> Iterator[IntArray]:
    """Positions of the images of each batch of one epoch; the last, incomplete batch is dropped.

    half: with replacement, labeled images weigh as much as unlabeled ones (authors' code, GCD).
    proportional: labeled and unlabeled in their true proportion, each without replacement (ORCA).
    equal: exactly half of each batch is labeled, both streams shuffled and cycled (FixMatch).
    """
    choose("sampler", kind, SAMPLERS)
    n_images = len(labels)
    if n_images == 0:
        raise UserError("there are no training images to sample from")
    batch_size = min(batch_size, n_images)
    # Seeded by (seed, epoch) alone, so that any epoch can be replayed without the ones before it.
    rng = np.random.default_rng([seed, epoch])
    labeled, unlabeled = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    n_batches = n_images // batch_size
    if kind == "half":
        order = _half(labeled, unlabeled, n_images, rng)
        for start in range(0, n_batches * batch_size, batch_size):
            yield order[start : start + batch_size]
        return
    share = 0.5 if kind == "equal" else len(labeled) / n_images
    n_labeled = round(batch_size * share) if len(unlabeled) else batch_size
    n_labeled = min(max(n_labeled, int(len(labeled) > 0)), batch_size) if len(labeled) else 0
    first = _cycle(labeled, n_batches * n_labeled, rng)
    second = _cycle(unlabeled, n_batches * (batch_size - n_labeled), rng)
    for number in range(n_batches):
        known = first[number * n_labeled : (number + 1) * n_labeled]
        rest = batch_size - n_labeled
        yield np.concatenate([known, second[number * rest : (number + 1) * rest]])


def _half(labeled: IntArray, unlabeled: IntArray, draws: int, rng: np.random.Generator) -> IntArray:
    """Draws with replacement; a labeled image weighs 1, an unlabeled one |labeled|/|unlabeled|."""
    if len(labeled) == 0 or len(unlabeled) == 0:
        return rng.integers(len(labeled) + len(unlabeled), size=draws)
    from_labeled = rng.random(draws) < 0.5
    chosen = unlabeled[rng.integers(len(unlabeled), size=draws)]
    chosen[from_labeled] = labeled[rng.integers(len(labeled), size=int(from_labeled.sum()))]
    return chosen


def _cycle(members: IntArray, length: int, rng: np.random.Generator) -> IntArray:
    """Shuffled passes over `members`, one after the other, cut at `length`."""
    if length == 0 or len(members) == 0:
        return np.empty(0, dtype=np.int64)
    passes = [rng.permutation(members) for _ in range(-(-length // len(members)))]
    return np.concatenate(passes)[:length]
