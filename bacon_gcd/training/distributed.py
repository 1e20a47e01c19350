"""One step by several processes: each computes some rows of a batch, and all have its whole loss.

The tails are where the work is. So a method is given tails that compute this process's share of
the rows and gather the others' with their gradient; its terms are then those of the whole batch, in
every process, and the method does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bacon_gcd.config import UserError
from bacon_gcd.methods.base import TailSource
from bacon_gcd.system.processes import (
    add_up,
    gather_rows,
    n_processes,
    share,
)


class SharedTails:
    """A source of tails that share out the rows they are given."""

    def __init__(self, backbone: TailSource) -> None:
        self.backbone, self.feature_dim = backbone, backbone.feature_dim

    def new_tail(self) -> nn.Module:
        """A fresh tail; parameters and their names are those of the backbone's own."""
        tail = self.backbone.new_tail()
        tail.register_forward_pre_hook(_take_share)
        tail.register_forward_hook(_gather)
        return tail


def _take_share(tail: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
    (tokens,) = given
    tail.n_rows = len(tokens)  # type: ignore[assignment]
    return (_at_least_one(tokens),)


def _at_least_one(rows: Tensor) -> Tensor:
    """This process's share; where it is empty, a row that `_Gather` leaves out again."""
    own = rows[share(len(rows))]
    return own if len(own) else rows[:1]


def _gather(tail: nn.Module, given: tuple[Tensor], features: Tensor) -> Tensor:
    gathered: Tensor = _Gather.apply(features, tail.n_rows)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """All rows from the shares; the gradient of a share is what the whole loss says of it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n_rows: int) -> Tensor:
        part = share(n_rows)
        ctx.part, ctx.n_given, ctx.n_processes = part, len(own), n_processes()
        return gather_rows(own[: part.stop - part.start], n_rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Times the number of processes, because `average_gradients` divides by it.

        Every process has the whole loss, so that what lies behind the gather has its whole
        gradient already, and averaging only keeps the processes equal; a tail has its share.
        """
        own = gradients[0][ctx.part] * ctx.n_processes
        if len(own) < ctx.n_given:
            own = gradients[0].new_zeros(ctx.n_given, *own.shape[1:])
        return own, None


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """The mean of each gradient over the processes, in place."""
    if n_processes() == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            add_up(parameter.grad).div_(n_processes())


def check_batch(batch_size: int) -> None:
    """Refuse more processes than a batch has images."""
    if n_processes() > batch_size:
        raise UserError(
            f"{n_processes()} processes for batches of {batch_size} images; start at most "
            f"{batch_size} processes or choose a larger --batch-size"
        )
