"""EfficientNet-B3 as a frozen network (Tan and Le 2019), state-dict names as in torchvision.

Unlike EfficientNet-Lite it has squeeze-and-excitation (Hu, Shen and Sun 2018) in every block, SiLU
instead of a clipped ReLU, and the same padding on all sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.backbone.base import Device
from bacon_gcd.backbone.efficientnet import Conv, FoldedConvs, Stage, frozen_features, kept_as
from bacon_gcd.backbone.pooled import PooledBackbone, Preprocessing
from bacon_gcd.backbone.state import check_state
from bacon_gcd.backbone.whitening import Whitening
from bacon_gcd.data.views import MEAN, STD

ARCHITECTURE = "efficientnet_b3"
EPSILON = 1e-5
STEM, HEAD = 40, 1536  # channels of the first and the last convolution
SQUEEZE = 4  # channels of a block's input for each that squeeze-and-excitation keeps

STAGES = (
    Stage(2, 24, 3, 1, 1),
    Stage(3, 32, 3, 2, 6),
    Stage(3, 48, 5, 2, 6),
    Stage(5, 96, 3, 2, 6),
    Stage(5, 136, 5, 1, 6),
    Stage(6, 232, 5, 2, 6),
    Stage(2, 384, 3, 1, 6),
)


@dataclass(frozen=True)
class Block:
    """Expand (unless by 1), filter each channel, weigh the channels, project."""

    inner: tuple[Conv, ...]
    squeeze: str
    """Name of squeeze-and-excitation in the state dict."""
    squeezed: tuple[int, int]
    """Channels before and after squeezing."""
    last: Conv

    @property
    def excitation(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors of squeeze-and-excitation."""
        wide, few = self.squeezed
        return {
            f"{self.squeeze}.fc1.weight": (few, wide, 1, 1),
            f"{self.squeeze}.fc1.bias": (few,),
            f"{self.squeeze}.fc2.weight": (wide, few, 1, 1),
            f"{self.squeeze}.fc2.bias": (wide,),
        }


def block_of(name: str, before: int, stage: Stage, stride: int) -> Block:
    """One block; name: of it in the state dict. before: channels of its input."""
    wide, kernel = before * stage.expansion, stage.kernel
    shapes = [((wide, 1, kernel, kernel), stride)]
    if stage.expansion > 1:
        shapes.insert(0, ((wide, before, 1, 1), 1))
    n_inner = len(shapes)
    inner = tuple(_conv(f"{name}.{i}", shape, each) for i, (shape, each) in enumerate(shapes))
    last = _conv(f"{name}.{n_inner + 1}", (stage.channels, wide, 1, 1))
    return Block(inner, f"{name}.{n_inner}", (wide, max(before // SQUEEZE, 1)), last)


def _conv(name: str, shape: tuple[int, int, int, int], stride: int = 1) -> Conv:
    return Conv(f"{name}.0", f"{name}.1", shape, stride, EPSILON)


def blocks() -> list[Block]:
    """All blocks, in order."""
    found: list[Block] = []
    before = STEM
    for number, stage in enumerate(STAGES, start=1):
        for place in range(stage.depth):
            stride = stage.stride if place == 0 else 1
            found.append(block_of(f"features.{number}.{place}.block", before, stage, stride))
            before = stage.channels
    return found


FIRST = _conv("features.0", (STEM, 3, 3, 3), 2)
LAST = _conv(f"features.{len(STAGES) + 1}", (HEAD, STAGES[-1].channels, 1, 1))


class EfficientNetB3(FoldedConvs):
    """(N, 3, S, S) normalized images to (N, 1536) features, the mean over all positions."""

    pooling = "mean"  # the root mean square is far worse: values below zero say something, too
    convs = (FIRST, *(conv for block in blocks() for conv in (*block.inner, block.last)), LAST)
    blocks = tuple(blocks())

    def __init__(self, state: Mapping[str, Tensor], whitening: Whitening | None = None) -> None:
        super().__init__(state, whitening)
        for block in self.blocks:
            for name in block.excitation:
                self.register_buffer(kept_as(name), state[name].float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) to (N, 1536); on a CPU one after the other, which takes no longer.

        SiLU has other last bits at the end of an array, wherever that falls: features would depend
        on which other images are beside.
        """
        if len(images) < 2 or images.device.type != "cpu":
            return super().forward(images)
        return torch.cat([super(EfficientNetB3, self).forward(each[None]) for each in images])

    def maps(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) to the (N, 1536, S / 32, S / 32) values that are pooled."""
        x = images.contiguous(memory_format=torch.channels_last)
        x = F.silu(self._convolved(x, FIRST))
        for block in self.blocks:
            x = self._through(x, block)
        return F.silu(self._convolved(x, LAST))

    def pooled(self, maps: Tensor) -> Tensor:
        """(N, 1536)"""
        return maps.mean(dim=(2, 3))

    def _through(self, x: Tensor, block: Block) -> Tensor:
        """One block; its input is added where shapes allow."""
        inner = x
        for conv in block.inner:
            inner = F.silu(self._convolved(inner, conv))
        inner = self._convolved(inner * self._excitation(inner, block), block.last)
        return x + inner if x.shape == inner.shape else inner

    def _excitation(self, x: Tensor, block: Block) -> Tensor:
        """(N, C, 1, 1) weights of the channels, 0 to 1, by their means."""
        few = F.silu(self._full(x.mean(dim=(2, 3), keepdim=True), f"{block.squeeze}.fc1"))
        return self._full(few, f"{block.squeeze}.fc2").sigmoid()

    def _full(self, x: Tensor, name: str) -> Tensor:
        weight, bias = (self.get_buffer(kept_as(f"{name}.{each}")) for each in ("weight", "bias"))
        return F.conv2d(x, weight, bias)

    def _convolved(self, x: Tensor, conv: Conv) -> Tensor:
        return self.convolved(x, conv, padding=conv.shape[2] // 2)


def from_state(
    name: str,
    state: Mapping[str, Tensor],
    *,
    image_size: int,
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> PooledBackbone:
    """The backbone of these weights; the tail that is trained is a small one on its features."""
    return frozen_features(
        EfficientNetB3,
        used_of(state),
        Preprocessing(image_size, MEAN, STD),
        name=name,
        trunk_dtype=trunk_dtype,
        device=device,
    )


def used_of(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that features need, checked; the classifier is none of them."""
    shapes = {key: shape for conv in EfficientNetB3.convs for key, shape in conv.shapes.items()}
    for block in EfficientNetB3.blocks:
        shapes |= block.excitation
    check_state(state, shapes)
    return {key: state[key] for key in shapes}
