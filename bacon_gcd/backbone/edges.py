"""Edges: histograms of oriented gradients (HOG; Dalal and Triggs 2005), without any training.

A network that learned from photographs sees little of what tells letters, digits or drawings apart.
Where their lines lie, and which way they run, tells more (docs/discovery-evidence.md).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.backbone.base import Backbone, Device, device_or_default
from bacon_gcd.backbone.joined import join_backbones
from bacon_gcd.backbone.vectors import VectorTail
from bacon_gcd.system.files import digest

SIDE = 32  # pixels of the gray image in which edges are looked for
CELL = 8  # pixels along the side of a cell; finer ones were no better
DIRECTIONS = 9  # of an edge, over half a turn: its two sides are alike
BLOCK = 2  # cells along the side of a block, in which contrast is set off
MOST = 0.2  # that one direction counts in a block
FAINT = 1e-3  # length of a block's histogram that is no edge: gray levels are 0 to 1
N_BLOCKS = SIDE // CELL - BLOCK + 1
N_VALUES = N_BLOCKS**2 * BLOCK**2 * DIRECTIONS
GRAY = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)


def edge_histograms(gray: Tensor) -> Tensor:
    """(N, N_VALUES) of (N, SIDE, SIDE) gray images from 0 to 1, block by block."""
    strength, direction = gradients(gray)
    cells = cell_histograms(strength, direction)
    blocks = cells.unfold(1, BLOCK, 1).unfold(2, BLOCK, 1).flatten(3)  # (N, blocks, blocks, values)
    length: Tensor = torch.linalg.vector_norm(blocks, dim=3, keepdim=True)
    return (blocks / (length + FAINT)).clamp_max(MOST).flatten(1)


def gradients(gray: Tensor) -> tuple[Tensor, Tensor]:
    """Strength of the edge at each pixel, and its direction, 0 to DIRECTIONS for half a turn."""
    across, down = torch.zeros_like(gray), torch.zeros_like(gray)
    across[:, :, 1:-1] = gray[:, :, 2:] - gray[:, :, :-2]
    down[:, 1:-1] = gray[:, 2:] - gray[:, :-2]
    angle = torch.atan2(down, across).remainder(math.pi)
    return torch.hypot(across, down), angle * (DIRECTIONS / math.pi)


def cell_histograms(strength: Tensor, direction: Tensor) -> Tensor:
    """(N, cells, cells, DIRECTIONS); an edge counts for the two directions that it lies between."""
    lower = direction.floor()
    share = direction - lower
    lower = lower.long() % DIRECTIONS
    votes = strength.new_zeros(*strength.shape, DIRECTIONS)
    votes.scatter_(3, lower[..., None], (strength * (1 - share))[..., None])
    votes.scatter_add_(3, ((lower + 1) % DIRECTIONS)[..., None], (strength * share)[..., None])
    n_cells = SIDE // CELL
    return votes.reshape(-1, n_cells, CELL, n_cells, CELL, DIRECTIONS).sum(dim=(2, 4))


class Edges(Backbone):
    """The histograms as a backbone: nothing is trained but a small tail, if asked for."""

    name = "edges"
    weights = "none"
    work = "edges of the images"

    def __init__(self, image_size: int, *, device: Device = None) -> None:
        super().__init__()
        self.image_size = image_size
        self.feature_dim, self.token_shape = N_VALUES, (N_VALUES,)
        place = device_or_default(device)
        for name, values in (("gray", GRAY), ("of_mean", self.mean), ("of_std", self.std)):
            color = torch.tensor(values, device=place)[:, None, None]
            self.register_buffer(name, color, persistent=False)
        self.gray: Tensor
        self.of_mean: Tensor
        self.of_std: Tensor
        self.hash = digest("edges-1", image_size)

    @torch.no_grad()
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, N_VALUES) histograms."""
        self.check_images(images)
        gray = ((images * self.of_std + self.of_mean) * self.gray).sum(dim=1, keepdim=True)
        return edge_histograms(F.adaptive_avg_pool2d(gray, SIDE)[:, 0])

    def new_tail(self) -> VectorTail:
        """A fresh tail that changes nothing until it is trained."""
        generator = torch.Generator().manual_seed(0)
        return VectorTail(self.feature_dim, generator=generator).to(self.device)


def edges_of(backbone: Backbone) -> Edges:
    """The edges of the same views that a backbone sees."""
    found = Edges(backbone.image_size, device=backbone.device)
    found.uncropped = backbone.uncropped
    return found


def with_edges(backbone: Backbone, factor: float) -> Backbone:
    """The backbone, all of it frozen, with edge histograms of this length beside its features."""
    parts = (backbone, edges_of(backbone))
    found = join_backbones(backbone.name, parts, factors=(1.0, factor), device=backbone.device)
    found.weights, found.uncropped, found.edges = backbone.weights, backbone.uncropped, factor
    return found
