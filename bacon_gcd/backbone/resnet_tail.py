"""What is trained of a ResNet: its last residual block or that block's last convolution.

`ResNetTail` and `PlainResNetTail` have the same parameters and give the same features; the first
is several times faster on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.backbone.winograd import conv3x3

EPSILON = 1e-5  # BatchNorm's, in torchvision and timm


class FrozenBatchNorm(nn.Module):
    """BatchNorm whose statistics never change; scale and shift are parameters."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(channels)) for _ in range(2))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))

    def scale(self) -> Tensor:
        """(C,) what multiplies the input."""
        return self.weight * (self.running_var + EPSILON).rsqrt()

    def shift(self) -> Tensor:
        """(C,) what is added after that."""
        return self.bias - self.running_mean * self.scale()

    def forward(self, maps: Tensor) -> Tensor:
        """(N, C, H, W) to the same."""
        return maps * self.scale()[:, None, None] + self.shift()[:, None, None]


class ResNetTail(nn.Module):
    """Convolutions with their BatchNorm folded in, on maps with positions first."""

    def __init__(self, state: Mapping[str, Tensor], *, side: int) -> None:
        super().__init__()
        self.side, self.steps = side, _add_convolutions(self, state)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, C) tokens to (N, D) features."""
        maps, shortcut = _open(tokens, self.steps)
        positions_first = maps.transpose(0, 1).contiguous()
        for conv, norm in self.steps[:-1]:
            positions_first = self._convolve(positions_first, conv, norm).relu_()
        result = self._convolve(positions_first, *self.steps[-1])
        # A sum divided afterwards: the gradient of a mean would be written out for every position.
        return result.add_(shortcut.transpose(0, 1)).relu_().sum(dim=0) / maps.shape[1]

    def _convolve(self, maps: Tensor, conv: nn.Conv2d, norm: FrozenBatchNorm) -> Tensor:
        """(T, N, C_in) to (T, N, C_out), normalized."""
        weight = conv.weight * norm.scale()[:, None, None, None]
        if conv.kernel_size == (1, 1):
            return F.linear(maps, weight[:, :, 0, 0], norm.shift())
        return conv3x3(maps, weight, side=self.side).add_(norm.shift())


class PlainResNetTail(nn.Module):
    """The same as torchvision computes it, for comparison."""

    def __init__(self, state: Mapping[str, Tensor], *, side: int) -> None:
        super().__init__()
        self.side, self.steps = side, _add_convolutions(self, state)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, C) tokens to (N, D) features."""
        maps, shortcut = (self._image(part) for part in _open(tokens, self.steps))
        for conv, norm in self.steps[:-1]:
            maps = F.relu(norm(conv(maps)))
        conv, norm = self.steps[-1]
        return F.relu(norm(conv(maps)) + shortcut).mean(dim=(2, 3))

    def _image(self, tokens: Tensor) -> Tensor:
        return tokens.transpose(1, 2).reshape(len(tokens), -1, self.side, self.side)


Steps = tuple[tuple[nn.Conv2d, FrozenBatchNorm], ...]


def _add_convolutions(tail: nn.Module, state: Mapping[str, Tensor]) -> Steps:
    """Give `tail` the convolutions and norms of `state` under their names there, in order."""
    names = sorted(key.split(".")[0] for key in state if key.startswith("conv"))
    steps = []
    with torch.device("meta"):  # no random numbers: every weight comes from `state`
        for name in names:
            n_out, n_in, size, _ = state[f"{name}.weight"].shape
            conv = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False)
            steps.append((conv, FrozenBatchNorm(n_out)))
            tail.add_module(name, conv)
            tail.add_module(name.replace("conv", "bn"), steps[-1][1])
    tail.load_state_dict({key: value.clone() for key, value in state.items()}, assign=True)
    return tuple(steps)


def _open(tokens: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """The first convolution's input and the shortcut: the same channels, or one after the other."""
    tokens = tokens.to(steps[0][0].weight.dtype)
    return tokens[..., : steps[0][0].in_channels], tokens[..., -steps[-1][0].out_channels :]
