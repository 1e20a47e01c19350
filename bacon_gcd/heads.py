"""What stands on the features: classifier, projector, prototypes, and a slow copy of a module."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.pseudo_labels import rank_within

GRAM_ROWS = 128
"""From this many rows on, the Gram form of the wide layer is cheaper than the direct one."""


class CosineClassifier(nn.Module):
    """Cosine between a feature and each class's weight row. BaCon App. C.1.

    Gain frozen at 1, no bias; the temperature lives in the losses.
    """

    def __init__(self, dim: int, n_classes: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, n_classes, bias=False).weight

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) features to (N, C) cosines."""
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class Projector(nn.Module):
    """MLP to a unit bottleneck u, then a wide layer V with unit rows; z = V u / |V u|. BaCon 4.1.

    Args:
        dim: of the features.
        hidden: of the two hidden layers.
        bottleneck: length of u.
        width: rows of V; None leaves V out, so that z = u (SimGCD).
    """

    def __init__(
        self, dim: int, hidden: int = 2048, bottleneck: int = 256, width: int | None = 65536
    ) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, bottleneck),
        )
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.wide = nn.Linear(bottleneck, width, bias=False).weight if width else None

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) features to (N, width or bottleneck) unit vectors z."""
        u = F.normalize(self.mlp(features), dim=1)
        if self.wide is None:
            return u
        return F.normalize(u @ F.normalize(self.wide, dim=1).T, dim=1)

    def cosines(self, features: Tensor) -> Tensor:
        """(N, D) features to the (N, N) cosines of their z, which is only formed for few rows."""
        if self.wide is None or len(features) < GRAM_ROWS:
            z = self(features)
            return z @ z.T
        u = F.normalize(self.mlp(features), dim=1)
        return gram_cosines(u, unit_row_gram(self.wide))


def gram_cosines(u: Tensor, gram: Tensor) -> Tensor:
    """Cosines of V u from G = V^T V alone: u_i G u_j / (|u_i|_G |u_j|_G). Ours.

    Args:
        u: (N, D).
        gram: (D, D), symmetric.
    """
    products = u @ gram @ u.T
    length = products.diagonal().clamp_min(torch.finfo(u.dtype).tiny).sqrt()
    return products / length[:, None] / length


def unit_row_gram(weight: Tensor) -> Tensor:
    """(M, D) rows w to (D, D): G = sum over rows of w w^T / |w|^2. Ours."""
    gram: Tensor = _UnitRowGram.apply(weight)  # type: ignore[no-untyped-call]
    return gram


class _UnitRowGram(torch.autograd.Function):
    """G with a gradient that reads W once and writes once: no (M, D) value is kept or copied."""

    CHUNK = 4096  # rows that stay in the cache between the operations on them

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        gram = weight.new_zeros(weight.shape[1], weight.shape[1])
        for rows in weight.split(_UnitRowGram.CHUNK):
            gram.addmm_(F.normalize(rows, dim=1).T, F.normalize(rows, dim=1))
        return gram

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (weight,) = ctx.saved_tensors
        both_sides = grads[0] + grads[0].T
        out = torch.empty_like(weight)
        return out


class Ema(nn.Module):
    pass
