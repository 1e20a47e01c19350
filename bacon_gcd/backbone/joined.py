"""NAME+NAME: several frozen networks as one backbone, their features side by side.

What that is worth depends on the networks and the images (docs/discovery-evidence.md), so nothing
is joined unless asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bacon_gcd.backbone.base import Backbone, Color, Device
from bacon_gcd.backbone.pooled import PooledBackbone, Preprocessing, Whole, as_it_is
from bacon_gcd.system.files import digest

Colors = tuple[Color, Color]
"""Mean and standard deviation."""
LENGTH = 32.0  # of the features: about that of a ResNet's; unit vectors are hard to train on


class _SideBySide(nn.Module):
    """(N, 3, S, S) images, normalized for the first network, to (N, D) features of all."""

    def __init__(self, parts: Sequence[Backbone], factors: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(Whole(part) for part in parts)
        self.colors = [(part.mean, part.std) for part in parts]
        self.factors = factors

    def forward(self, images: Tensor) -> Tensor:
        """See `side_by_side`."""
        found: list[Tensor] = [
            network(renormalized(images, self.colors[0], colors))
            for network, colors in zip(self.networks, self.colors, strict=True)
        ]
        return side_by_side(found, self.factors)


def side_by_side(parts: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
    """(N, D) features of several networks, each of the length of its factor before it is joined."""
    found = [normalize(part, dim=1) * factor for part, factor in zip(parts, factors, strict=True)]
    return torch.cat(found, dim=1) * float(LENGTH / math.hypot(*factors))


def renormalized(images: Tensor, before: Colors, after: Colors) -> Tensor:
    """Images with the mean and standard deviation of one network as another one wants them."""
    if before == after:
        return images
    mean, std, new_mean, new_std = (
        images.new_tensor(color)[:, None, None] for color in (*before, *after)
    )
    return (images * std + mean - new_mean) / new_std


def join_backbones(
    name: str,
    parts: Sequence[Backbone],
    *,
    factors: Sequence[float] | None = None,
    device: Device = None,
) -> Backbone:
    """One backbone of several that see images of one size.

    factors: lengths of their features; all count the same unless given.
    """
    first, lengths = parts[0], factors or (1.0,) * len(parts)
    whole = PooledBackbone(
        _SideBySide(parts, lengths),
        as_it_is,
        Preprocessing(first.image_size, first.mean, first.std),
        name=name,
        weights="+".join(part.weights for part in parts),
        device=device,
    )
    counted = () if factors is None else (list(factors),)
    whole.hash = digest("joined-1", *(part.hash for part in parts), *counted)
    return whole
