"""EfficientNet-Lite0 as a frozen network (Tan and Le 2019; Lite: without squeeze-and-excitation).

Its weights were trained in TensorFlow, whose convention it keeps: the padding of a convolution with
stride 2 is one pixel larger on the right, and BatchNorm's epsilon is 1e-3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.backbone.base import Device
from bacon_gcd.backbone.pooled import PooledBackbone, Preprocessing, as_it_is
from bacon_gcd.backbone.state import check_state, state_digest
from bacon_gcd.backbone.whitening import Whitening, find_whitening
from bacon_gcd.system.files import digest

ARCHITECTURE = "efficientnet_lite0"
POOLING = "root-mean-square"  # a model that was fitted to other features must not be used
EPSILON = 1e-3
STEM, HEAD = 32, 1280  # channels of the first and the last convolution
MEAN, STD = 127 / 255, 128 / 255  # of all three colors
# torch convolves fewer images in another order of sums, with other last bits; from how many on it
# does not differs from processor to processor (4 on one, 6 on another).
SMALLEST = 16
BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first of them has the stride."""

    depth: int
    channels: int
    kernel: int
    stride: int
    expansion: int


STAGES = (
    Stage(1, 16, 3, 1, 1),
    Stage(2, 24, 3, 2, 6),
    Stage(2, 40, 5, 2, 6),
    Stage(3, 80, 3, 2, 6),
    Stage(3, 112, 5, 1, 6),
    Stage(4, 192, 5, 2, 6),
    Stage(1, 320, 3, 1, 6),
)


@dataclass(frozen=True)
class Conv:
    """One convolution and the BatchNorm after it, by their names in the state dict."""

    weight: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors it needs."""
        norms = {f"{self.norm}.{each}": (self.shape[0],) for each in BATCH_NORM}
        return {f"{self.weight}.weight": self.shape, **norms}

    def folded(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Kernel and bias of the convolution and the frozen BatchNorm in one."""
        gain, bias, mean, variance = (state[f"{self.norm}.{each}"].double() for each in BATCH_NORM)
        scale = gain / (variance + EPSILON).sqrt()
        kernel = state[f"{self.weight}.weight"].double() * scale[:, None, None, None]
        return kernel.float(), (bias - mean * scale).float()


def block_convs(number: int, before: int, stage: Stage, stride: int) -> list[Conv]:
    """The convolutions of one block: expand (unless by 1), depthwise, project."""
    name, wide = f"_blocks.{number}.", before * stage.expansion
    depthwise = (wide, 1, stage.kernel, stage.kernel)
    convs = [
        Conv(f"{name}_depthwise_conv", f"{name}_bn1", depthwise, stride),
        Conv(f"{name}_project_conv", f"{name}_bn2", (stage.channels, wide, 1, 1)),
    ]
    if stage.expansion > 1:
        convs.insert(0, Conv(f"{name}_expand_conv", f"{name}_bn0", (wide, before, 1, 1)))
    return convs


def blocks() -> list[list[Conv]]:
    """The convolutions of all blocks, in order."""
    found: list[list[Conv]] = []
    before = STEM
    for stage in STAGES:
        for number in range(stage.depth):
            stride = stage.stride if number == 0 else 1
            found.append(block_convs(len(found), before, stage, stride))
            before = stage.channels
    return found


FIRST = Conv("_conv_stem", "_bn0", (STEM, 3, 3, 3), 2)
LAST = Conv("_conv_head", "_bn1", (HEAD, STAGES[-1].channels, 1, 1))


def every_conv() -> list[Conv]:
    """The convolutions of the whole network, in order."""
    return [FIRST, *(conv for block in blocks() for conv in block), LAST]


class EfficientNetLite(nn.Module):
    """(N, 3, S, S) normalized images to (N, 1280) features, pooled over all positions."""

    def __init__(self, state: Mapping[str, Tensor], whitening: Whitening | None = None) -> None:
        super().__init__()
        self.blocks, self.whitening = blocks(), whitening or nn.Identity()
        for conv in every_conv():
            kernel, bias = conv.folded(state)
            kernel = kernel.contiguous(memory_format=torch.channels_last)
            self.register_buffer(_kept(conv), kernel, persistent=False)
            self.register_buffer(f"{_kept(conv)}_bias", bias, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) to (N, 1280)."""
        n_images = len(images)
        if n_images < SMALLEST:
            images = torch.cat([images, images.new_zeros(SMALLEST - n_images, *images.shape[1:])])
        features: Tensor = self.whitening(root_mean_square(self.maps(images)))
        return features[:n_images]

    def maps(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) to the (N, 1280, S / 32, S / 32) values that are pooled."""
        x = images.contiguous(memory_format=torch.channels_last)
        x = F.relu6(self._convolved(x, FIRST))
        for block in self.blocks:
            x = self._through(x, block)
        return F.relu6(self._convolved(x, LAST))

    def _through(self, x: Tensor, block: list[Conv]) -> Tensor:
        """One block; its input is added where shapes allow."""
        inner = x
        for conv in block[:-1]:
            inner = F.relu6(self._convolved(inner, conv))
        inner = self._convolved(inner, block[-1])
        return x + inner if x.shape == inner.shape else inner

    def _convolved(self, x: Tensor, conv: Conv) -> Tensor:
        kernel, bias = self.get_buffer(_kept(conv)), self.get_buffer(f"{_kept(conv)}_bias")
        groups = x.shape[1] // kernel.shape[1]
        padded = same_padded(x, conv.shape[2], conv.stride)
        return F.conv2d(padded, kernel, bias, stride=conv.stride, groups=groups)


def root_mean_square(maps: Tensor) -> Tensor:
    """(N, C) of (N, C, H, W) maps: generalized-mean pooling (Radenovic and others 2019) with p = 2.

    What is seen in a few places only counts more than in the mean, which knows no places.
    """
    return maps.square().mean(dim=(2, 3)).sqrt()


def same_padded(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Zeros around (N, C, H, W) maps, so that a convolution gives ceil(H / stride) positions."""
    needed = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:]]
    (top, left) = (each // 2 for each in needed)
    return F.pad(x, (left, needed[1] - left, top, needed[0] - top)) if any(needed) else x


def from_state(
    name: str,
    state: Mapping[str, Tensor],
    *,
    image_size: int,
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> PooledBackbone:
    """The backbone of these weights; the tail that is trained is a small one on its features.

    Its features are whitened if a whitening was learned with just these weights.
    """
    used = used_of(state)
    weights = state_digest(used)
    whitening = find_whitening(weights)
    color = (MEAN, MEAN, MEAN), (STD, STD, STD)
    return PooledBackbone(
        EfficientNetLite(used, whitening),
        as_it_is,
        Preprocessing(image_size, *color),
        name=name,
        weights=digest(POOLING, weights, whitening.hash if whitening else ""),
        trunk_dtype=trunk_dtype,
        device=device,
    )


def used_of(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that features need, checked; the classifier is none of them."""
    shapes = {key: shape for conv in every_conv() for key, shape in conv.shapes.items()}
    check_state(state, shapes)
    return {key: state[key] for key in shapes}


def _kept(conv: Conv) -> str:
    """A name that a module allows for its buffers."""
    return conv.weight.replace(".", "_")
