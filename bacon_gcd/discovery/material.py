"""What a discovery works on: a person's images, the labels there are, a backbone, its features."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.bank import ReadyTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import CATALOGUE, best_cached, cached, find, load_backbone
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.training.loop import TrainProbe

IntArray = npt.NDArray[np.int64]
MIN_IMAGES = 4
VECTOR_NOISE = 0.1  # of the vectors' own spread: what makes two views of one vector differ
AUTO = "auto"
TIMED_ROWS = 256


@dataclass(frozen=True)
class Effort:
    """How much work is done on each image."""

    views: int
    """Training views that are stored of each image."""
    epochs: int
    """0: the backbone's own features are used as they are."""


def effort_for(name: str, n_images: int) -> Effort:
    """Views and epochs of quick, normal and thorough; small sets are seen more often."""
    efforts = {
        "quick": Effort(0, 0),
        "normal": Effort(2, int(np.clip(20_000 // n_images, 4, 20))),
        "thorough": Effort(4, int(np.clip(100_000 // n_images, 10, 60))),
    }
    return efforts[choose("effort", name, efforts)]


@dataclass(frozen=True, eq=False)
class Material:
    """N images with what is known of them."""

    table: ImageTable
    labels: IntArray
    """(N,) positions in `known`, -1 = unlabeled."""
    known: tuple[str, ...]
    """Names of the classes that have a label."""
    backbone: Backbone
    tuned: str
    tokens: TokenSource

    def frozen(self, seed: int) -> Tensor:
        """(N, D) unit features of the untrained backbone."""
        probe = TrainProbe(self.tokens, self.labels, seed)
        return unit(probe.run(self.backbone.new_tail()))


def read_table(source: Path, labels: Path | None) -> ImageTable:
    """The images, or one line when they are too few to find anything in."""
    table = read_images(source, labels)
    if len(table) < MIN_IMAGES:
        found = "1 image" if len(table) == 1 else f"{len(table)} images"
        raise UserError(f"{source}: {found}; there must be at least {MIN_IMAGES} to sort")
    return table


def known_classes(table: ImageTable) -> tuple[IntArray, tuple[str, ...]]:
    """(N,) labels without gaps, and the names of the classes that any image has."""
    used = np.unique(table.labels[table.labels >= 0])
    labels = np.where(table.labels >= 0, np.searchsorted(used, table.labels), -1)
    return labels.astype(np.int64), tuple(table.class_names[c] for c in used)


def pick_backbone(name: str) -> str:
    """The name itself, or the best one in the cache; nothing is downloaded."""
    return best_cached() if name == AUTO else find(name).name


def better_backbone(name: str) -> str | None:
    """The best backbone before this one in the catalogue, if it is not in the cache."""
    first = next(iter(CATALOGUE))
    return None if name in (first, "vectors") or name not in CATALOGUE or cached(first) else first


def open_backbone(name: str) -> tuple[Backbone, str]:
    """The backbone, and how much of it is trained: little of a ResNet, a block of a ViT."""
    tuned = find(name).quick_part
    return load_backbone(name, tuned=tuned), tuned


def from_images(
    table: ImageTable, backbone: Backbone, tuned: str, *, views: int, seed: int, workers: int
) -> Material:
    """Tokens of every image, from the cache where they are already."""
    rows = np.arange(len(table))
    bank = build_bank(table, rows, backbone, n_views=views, seed=seed, workers=workers)
    return Material(table, *known_classes(table), backbone, tuned, bank)


def from_features(table: ImageTable, vectors: npt.NDArray[np.float32]) -> Material:
    """Ready vectors in place of a backbone."""
    tokens = ReadyTokens(vectors, noise=VECTOR_NOISE)
    backbone = Vectors(vectors.shape[1])
    return Material(table, *known_classes(table), backbone, "block", tokens)


@torch.no_grad()
def expected_seconds(backbone: Backbone, effort: Effort, n_images: int) -> float:
    """Time for tokens and training, from a few blank images; stored tokens make it shorter."""
    if isinstance(backbone, Vectors):
        images = torch.zeros(16, backbone.feature_dim)
    else:
        images = torch.zeros(8, 3, backbone.image_size, backbone.image_size)
    tail = backbone.new_tail()
    tail(backbone.trunk(images))  # the first call is slower
    start = time.perf_counter()
    tokens = backbone.trunk(images)
    middle = time.perf_counter()
    many = tokens.repeat(TIMED_ROWS // len(tokens), *[1] * (tokens.ndim - 1))
    tail(many)  # as many as in a training step: some of its work is the same for any number
    trunk, last = middle - start, time.perf_counter() - middle
    # Two branches, two views; forward and backward cost three times a forward.
    each = trunk * (1 + effort.views) / len(images) + last * 12 * effort.epochs / len(many)
    return each * n_images
