"""Products of rows and weights, by the faster of the two libraries that torch has on a CPU.

torch multiplies float32 matrices with MKL, which leaves half of the AVX-512 units of an AMD
processor unused, and convolves with oneDNN, which does not: 2.2 times as many products a second, in
the same precision (`python -m bench products`). Elsewhere everything is torch's own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEAST_WORK = 1 << 20
"""Multiplications below which the calls themselves take the time."""


class Linear(nn.Linear):
    """torch's layer, parameters and start included, with products by `linear`."""

    def forward(self, rows: Tensor) -> Tensor:
        """(..., D) to (..., M)."""
        return linear(rows, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows times the transposed weight, plus the bias: (..., D), (M, D) and (M,) to (..., M)."""
    if not suits(rows, weight):
        return F.linear(rows, weight, bias)
    result: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return result


def stacked(rows: Tensor, weights: Tensor) -> Tensor:
    """G such products without gradient or bias: (G, N, D) and (G, M, D) to (G, N, M)."""
    if not all_suit(rows, weights):
        return rows @ weights.mT
    result = rows.new_empty(*rows.shape[:2], weights.shape[1])
    for product, some, weight in zip(result, rows, weights, strict=True):
        product.copy_(_times(some, weight))
    return result


def add_stacked(total: Tensor, rows: Tensor, weights: Tensor) -> None:
    """Add them to (G, N, M) sums."""
    if not all_suit(rows, weights):
        total.baddbmm_(rows, weights.mT)
        return
    for product, some, weight in zip(total, rows, weights, strict=True):
        product += _times(some, weight)


def suits(rows: Tensor, weight: Tensor) -> bool:
    """Whether this product is better made by oneDNN."""
    return (
        rows.dtype == weight.dtype == torch.float32
        and rows.device.type == weight.device.type == "cpu"
        and rows.numel() * len(weight) >= LEAST_WORK
        and half_used()
        and not torch.is_autocast_enabled("cpu")
    )


def all_suit(rows: Tensor, weights: Tensor) -> bool:
    """The same of G products, which are all alike."""
    return len(rows) > 0 and suits(rows[0], weights[0])


@cache
def half_used() -> bool:
    """Whether MKL leaves half of this processor's units unused, and oneDNN is here to use them."""
    if not torch.backends.mkldnn.is_available() or _product() is None:  # type: ignore[no-untyped-call]
        return False
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    wide = bool(known.get("avx512_f")) and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and str(known.get("cpu_name")).startswith("AMD")


@cache
def _product() -> Any:
    """torch's entry to oneDNN's product; None: this version of torch has none that takes these."""
    entry = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", None)
    names = [each.name for each in entry._schema.arguments] if entry else []
    return entry if names == ["X", "W", "B", "attr", "scalars", "algorithm"] else None


def _times(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = _product()(rows, weight, bias, "none", [], "")
    return result


class _Linear(torch.autograd.Function):
    """The product and, of what is asked for, the gradients: two products of the same kind."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return _times(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        flat = grad.reshape(-1, grad.shape[-1])
        return (
            _times(grad, weight.mT) if of_rows else None,
            _times(flat.mT, rows.reshape(-1, rows.shape[-1]).mT) if of_weight else None,
            flat.sum(dim=0) if of_bias else None,
        )
