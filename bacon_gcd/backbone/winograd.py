"""3x3 convolutions of small maps with a quarter of the multiplications, for training on a CPU.

A 4x4 tile of outputs is a product of polynomials in two dimensions. Evaluated at 6x6 points it
takes 36 multiplications per channel pair instead of 144, and over the channels these are 36 plain
matrix products (Winograd's minimal filtering, F(4x4, 3x3)). Both gradients are of the same kind.
Maps of side 3, 5 and 6 are cheaper in 3x3 tiles, at 25 points.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bacon_gcd.products import add_stacked, stacked

# By the side of a tile; infinity is one more. Of a dozen choices measured for each, these had the
# smallest float32 error: 1.0e-6 of the output's norm; the usual 0, ±1, ±2 have 2.3e-6, the direct
# convolution has 0.5e-6.
POINTS = {3: (0.0, 1.0, -1 / 2, -2.0), 4: (0.0, 2 / 3, -2 / 3, 3 / 2, -3 / 2)}
TAPS = 3
LARGEST_SIDE = 8  # the transforms are dense over the map and cost more than they save beyond this
# Larger temporary tensors leave the cache, and the allocator gives them back to the system each
# time: their new pages took a fifth of every step.
PIECE_BYTES = 16 << 20


def conv3x3(maps: Tensor, weight: Tensor, *, side: int) -> Tensor:
    """Convolution with padding 1 and stride 1, positions first.

    Args:
        maps: (side*side, N, C_in), row by row.
        weight: (C_out, C_in, 3, 3), as torch keeps it.

    Returns:
        (side*side, N, C_out).
    """
    if suits(maps, side=side):
        result: Tensor = _Winograd.apply(maps, weight, side)  # type: ignore[no-untyped-call]
        return result
    return direct3x3(maps, weight, side=side)


def suits(maps: Tensor, *, side: int) -> bool:
    """Whether maps of this kind are better convolved here than by torch."""
    exact = maps.dtype in (torch.float32, torch.float64)
    return exact and maps.device.type == "cpu" and TAPS <= side <= LARGEST_SIDE


def direct3x3(maps: Tensor, weight: Tensor, *, side: int) -> Tensor:
    """The same by torch's own convolution: for other number types, devices and map sizes."""
    images = maps.reshape(side, side, *maps.shape[1:]).permute(2, 3, 0, 1)
    return F.conv2d(images, weight, padding=1).permute(2, 3, 0, 1).flatten(0, 1)


def frozen3x3(maps: Tensor, kernels: Tensor, *, side: int) -> Tensor:
    """The same without gradient, with `kernels_at_points(weight)` computed once and for all."""
    at = _transforms(side, maps.dtype, maps.device)
    result = maps.new_empty(*maps.shape[:2], kernels.shape[1])
    _from_points(at.outputs, stacked(_to_points(at.inputs, maps), kernels), into=result, add=False)
    return result


def kernels_at_points(weight: Tensor, *, side: int) -> Tensor:
    """(C_out, C_in, 3, 3) weights to their (P, C_out, C_in) values at the points of such maps."""
    taps = _transforms(side, weight.dtype, weight.device).taps
    return (taps @ weight.reshape(-1, TAPS * TAPS).T).view(-1, *weight.shape[:2])


class _Winograd(torch.autograd.Function):
    """To the points, one matrix product at each, and back; some points and rows at a time."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, side: int) -> Tensor:
        at = _transforms(side, maps.dtype, maps.device)
        taps = weight.reshape(-1, TAPS * TAPS).T.contiguous()
        kernels = []
        result = maps.new_empty(*maps.shape[:2], len(weight))
        for group, points in enumerate(_point_groups(at, weight)):
            kernel = (at.taps[points] @ taps).view(-1, *weight.shape[:2])
            for rows in _row_groups(at, maps, points, weight):
                inputs = _to_points(at.inputs[points], maps[:, rows])
                products = stacked(inputs, kernel)
                _from_points(at.outputs[points], products, into=result[:, rows], add=group > 0)
            kernels.append(kernel)
        ctx.side = side
        ctx.save_for_backward(maps, weight, *(kernels if ctx.needs_input_grad[0] else []))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        maps, weight, *kernels = ctx.saved_tensors
        at = _transforms(ctx.side, maps.dtype, maps.device)
        wants_maps, wants_weight, _ = ctx.needs_input_grad
        grad = gradients[0].contiguous()
        grad_maps = torch.empty_like(maps) if wants_maps else None
        grad_taps = weight.new_zeros(TAPS * TAPS, weight.shape[:2].numel())
        for group, points in enumerate(_point_groups(at, weight)):
            grad_kernel = weight.new_zeros(len(at.taps[points]), *weight.shape[:2])
            for rows in _row_groups(at, maps, points, weight):
                outputs = _to_points(at.outputs[points], grad[:, rows])
                if wants_weight:
                    inputs = _to_points(at.inputs[points], maps[:, rows])
                    add_stacked(grad_kernel, outputs.mT, inputs.mT)
                if grad_maps is not None:
                    back = stacked(outputs, kernels[group].mT)
                    into = grad_maps[:, rows]
                    _from_points(at.inputs[points], back, into=into, add=group > 0)
            if wants_weight:
                grad_taps.addmm_(at.taps[points].T, grad_kernel.flatten(1))
        return grad_maps, grad_taps.T.reshape(weight.shape) if wants_weight else None, None


def _to_points(transform: Tensor, maps: Tensor) -> Tensor:
    """(positions, N, C) maps to (G, tiles*N, C): the values of all their tiles at G points."""
    values = transform.flatten(0, 1) @ maps.flatten(1)
    return values.view(len(transform), -1, maps.shape[2])


def _from_points(transform: Tensor, values: Tensor, *, into: Tensor, add: bool) -> None:
    """Put into (positions, N, C) maps what (G, tiles*N, C) values at G points give, or add it."""
    rows = transform.flatten(0, 1)
    into.view(len(into), -1).addmm_(rows.T, values.view(len(rows), -1), beta=int(add))


def _point_groups(at: _Transforms, weight: Tensor) -> list[slice]:
    """The points in parts whose kernels stay below PIECE_BYTES."""
    return _parts(len(at.taps), weight[:, :, 0, 0].numel() * weight.element_size(), PIECE_BYTES)


def _row_groups(at: _Transforms, maps: Tensor, points: slice, weight: Tensor) -> list[slice]:
    """The N rows in parts whose values at these points stay below PIECE_BYTES."""
    values = (points.stop - points.start) * at.inputs.shape[1] * max(weight.shape[:2])
    return _parts(maps.shape[1], values * maps.element_size(), PIECE_BYTES)


def _parts(count: int, unit: int, limit: int) -> list[slice]:
    """`count` units in as few equal parts as stay below `limit` bytes each; none in one part."""
    n_parts = max(-(-count * unit // limit), 1)
    size = max(-(-count // n_parts), 1)
    return [slice(start, min(start + size, count)) for start in range(0, max(count, 1), size)]


class _Transforms(NamedTuple):
    """Values at the points, of maps as inputs, of maps as outputs, and of the nine taps."""

    inputs: Tensor
    """(P, tiles, positions)"""
    outputs: Tensor
    """(P, tiles, positions)"""
    taps: Tensor
    """(P, 9)"""


def tile_of(side: int) -> int:
    """Side of the tiles that cover a map with the fewest multiplications."""
    return min(POINTS, key=lambda tile: -(-side // tile) * (tile + TAPS - 1))


@lru_cache(maxsize=8)
def _transforms(side: int, dtype: torch.dtype, device: torch.device) -> _Transforms:
    """The transforms of a side x side map cut in tiles of outputs."""
    tile = tile_of(side)
    n_tiles, span = -(-side // tile), tile + TAPS - 1
    with device:
        of_inputs, of_outputs, of_taps = _on_a_line(tile)
        inputs = torch.zeros(n_tiles, span, n_tiles * tile + TAPS - 1, dtype=torch.float64)
        outputs = torch.zeros(n_tiles, span, n_tiles * tile, dtype=torch.float64)
    for number in range(n_tiles):
        start = number * tile
        inputs[number, :, start : start + span] = of_inputs
        outputs[number, :, start : start + tile] = of_outputs
    return _Transforms(
        _on_a_map(inputs[:, :, 1 : side + 1]).to(dtype),  # the padding is zero: left out
        _on_a_map(outputs[:, :, :side]).to(dtype),
        torch.kron(of_taps, of_taps).to(dtype),
    )


def _on_a_map(line: Tensor) -> Tensor:
    """(tiles, n, side) transform of a line to (n*n, tiles*tiles, side*side) of a map."""
    square = torch.einsum("aip,bjq->ijabpq", line, line)
    return square.flatten(4).flatten(2, 3).flatten(0, 1).contiguous()


def _on_a_line(tile: int) -> tuple[Tensor, Tensor, Tensor]:
    """(n, n), (n, tile), (n, 3): values at n = tile + 2 points of inputs, outputs and taps.

    With E_m the values at the points of a polynomial of m coefficients (at infinity: the last),
    a product of two is E_n^-1 (E_tile a * E_3 b). The convolution is that map transposed in a:
    outputs = E_tile^T ((E_3 taps) * (E_n^-T inputs)).
    """
    span = tile + TAPS - 1
    powers = torch.tensor(POINTS[tile], dtype=torch.float64)[:, None] ** torch.arange(span)

    def values(n: int) -> Tensor:
        infinity = F.one_hot(torch.tensor([n - 1]), n).double()
        return torch.cat([powers[:, :n], infinity])

    return torch.linalg.inv(values(span)).T, values(tile), values(TAPS)
