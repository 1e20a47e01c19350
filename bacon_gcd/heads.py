"""What stands on the features: classifier, projector, prototypes, and a slow copy of a module."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bacon_gcd.products import Linear, linear
from bacon_gcd.pseudo_labels import rank_within

GRAM_ROWS = 64
"""From this many rows on, the Gram form of the wide layer is cheaper than the direct one."""


class CosineClassifier(nn.Module):
    """Cosine between a feature and each class's weight row. BaCon App. C.3.

    Gain frozen at 1, no bias; the temperature lives in the losses.
    """

    def __init__(self, dim: int, n_classes: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, n_classes, bias=False).weight

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) features to (N, C) cosines."""
        return linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class Projector(nn.Module):
    """MLP to a unit bottleneck u, then a wide layer V of unit rows: z = unit(V u). BaCon App. C.3.

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
            Linear(dim, hidden),
            nn.GELU(),
            Linear(hidden, hidden),
            nn.GELU(),
            Linear(hidden, bottleneck),
        )
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.wide = nn.Linear(bottleneck, width, bias=False).weight if width else None

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) features to (N, width or bottleneck) unit vectors z."""
        u = F.normalize(self.mlp(features), dim=1)
        # Dividing the result by the rows' lengths spares a second array as large as the weights.
        return u if self.wide is None else F.normalize(u @ self.wide.T / _lengths(self.wide).T)

    def cosines(self, features: Tensor) -> Tensor:
        """(N, D) features to the (N, N) cosines of their z, which is only formed for few rows."""
        if self.wide is None or len(features) < GRAM_ROWS:
            z: Tensor = self(features)
            return z @ z.T
        u = F.normalize(self.mlp(features), dim=1)
        return gram_cosines(u, unit_row_gram(self.wide))


class NoProjector(nn.Module):
    """Features are contrasted themselves: what the loss asks for, they must show. Ours."""

    def cosines(self, features: Tensor) -> Tensor:
        """(N, D) features to their (N, N) cosines."""
        z = F.normalize(features, dim=1)
        return z @ z.T


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
    """G and its gradient, each in one pass over W: no second (M, D) array is made but dW itself."""

    ROWS = 4096  # per chunk: few enough to stay in the cache while they are worked on
    COLUMNS = 64

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        gram = weight.new_zeros(weight.shape[1], weight.shape[1])
        for start in range(0, len(weight), _UnitRowGram.ROWS):
            rows = weight[start : start + _UnitRowGram.ROWS]
            unit = rows / _lengths(rows)
            for first in range(0, len(gram), _UnitRowGram.COLUMNS):  # G is symmetric: no lower half
                strip = slice(first, first + _UnitRowGram.COLUMNS)
                gram[strip, first:].addmm_(unit[:, strip].T, unit[:, first:])
        return gram.triu() + gram.triu(1).T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """With S = dG + dG^T: dw = (S w - w (w.S w) / |w|^2) / |w|^2, row by row."""
        (weight,) = ctx.saved_tensors
        both = grads[0] + grads[0].T
        gradient = torch.empty_like(weight)
        for start in range(0, len(weight), _UnitRowGram.ROWS):
            rows = weight[start : start + _UnitRowGram.ROWS]
            out = gradient[start : start + _UnitRowGram.ROWS]
            square = _lengths(rows).square()
            torch.mm(rows, both, out=out)
            along = torch.linalg.vecdot(rows, out)[:, None] / square
            out.addcmul_(rows, along, value=-1.0).div_(square)
        return gradient


def _lengths(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return lengths.clamp_min(1e-12)


class SmallProjector(nn.Module):
    """Two layers to unit vectors. OpenCon."""

    def __init__(self, dim: int, width: int = 128) -> None:
        super().__init__()
        self.mlp = nn.Sequential(Linear(dim, dim), nn.ReLU(), Linear(dim, width))

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) features to (N, width) unit vectors z."""
        return F.normalize(self.mlp(features), dim=1)


class Prototypes(nn.Module):
    """One unit vector per class, moved by hand towards its members. OpenCon.

    Args:
        n_classes: how many.
        dim: of z.
        momentum: how much of a prototype stays at each member.
        generator: of the random directions at the start.
    """

    vectors: Tensor

    def __init__(
        self, n_classes: int, dim: int, momentum: float = 0.9, *, generator: Generator
    ) -> None:
        super().__init__()
        self.momentum = momentum
        start = torch.randn(n_classes, dim, generator=generator, device=generator.device)
        self.register_buffer("vectors", F.normalize(start, dim=1))

    def scores(self, z: Tensor) -> Tensor:
        """(N, D) unit vectors to (N, C) cosines with the prototypes."""
        return z @ self.vectors.T

    @torch.no_grad()
    def update(self, z: Tensor, labels: Tensor, *, generator: Generator) -> None:
        """One member after the other, in random order: p <- unit(m p + (1 - m) z).

        Classes do not disturb each other, so the first members of all classes go together, then
        the second ones: the same result in fewer steps.
        """
        order = torch.randperm(len(z), generator=generator, device=generator.device).to(z.device)
        turns = rank_within(labels[order])
        for turn in range(int(turns.max()) + 1 if len(turns) else 0):
            rows = order[turns == turn]
            moved = self.momentum * self.vectors[labels[rows]] + (1 - self.momentum) * z[rows]
            self.vectors[labels[rows]] = F.normalize(moved, dim=1)


class Ema(nn.Module):
    """A slow copy of a module: its weights follow by a small share each step. TRSSL, ABC, DARP.

    Args:
        module: what is copied.
        decay: share that stays, in the end (`early_decay`).
    """

    def __init__(self, module: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.steps = nn.Buffer(torch.tensor(0))

    @torch.no_grad()
    def update(self, live: nn.Module, *, shrink: float = 0.0) -> None:
        """Follow `live`; then shrink its trained weights (TRSSL 2e-5, ABC 0.02 x the rate)."""
        self.steps.add_(1)
        share = 1 - early_decay(int(self.steps), final=self.decay)
        for slow, fast in zip(self.module.parameters(), live.parameters(), strict=True):
            slow.lerp_(fast, share)
            if shrink and fast.requires_grad:
                fast.mul_(1 - shrink)
        for kept, current in zip(self.module.buffers(), live.buffers(), strict=True):
            kept.copy_(current)

    def forward(self, *inputs: Any) -> Any:
        """What the slow copy gives."""
        return self.module(*inputs)


def early_decay(step: int, *, final: float) -> float:
    """Decay of a slow copy after `step` steps, growing to `final`. Ours.

    The references take 0.999 over 200,000 steps or more; in a short run such a copy would still be
    what it started as.
    """
    return min(final, (1 + step) / (10 + step))
