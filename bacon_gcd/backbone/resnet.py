"""ResNet-18 and 50 as frozen trunk and trainable tail, state-dict names as in torchvision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.backbone.base import Backbone, Device, device_or_default, in_precision
from bacon_gcd.backbone.resnet_tail import EPSILON, ResNetTail
from bacon_gcd.backbone.state import check_state, state_digest
from bacon_gcd.backbone.vit import native_bfloat16
from bacon_gcd.backbone.winograd import frozen3x3, kernels_at_points, suits, tile_of
from bacon_gcd.config import UserError, choose
from bacon_gcd.system.files import digest

REDUCTION = 32  # pixels along the image per position along the last map
TUNED = ("block", "conv")
PIECE = 16  # images whose maps stay in a processor's cache
MANY_CHANNELS = 256  # from here on Winograd's transforms are cheap beside the products


@dataclass(frozen=True)
class ResNetConfig:
    """The shape of one ResNet."""

    depths: tuple[int, int, int, int]
    """Residual blocks of the four stages."""
    expansion: int
    """Channels of a block's output over those inside it: 4 with a bottleneck, else 1."""

    @property
    def feature_dim(self) -> int:
        """Channels of the last map."""
        return 512 * self.expansion

    @property
    def convs(self) -> tuple[str, ...]:
        """Names of the convolutions of a block, in order."""
        return ("conv1", "conv2", "conv3") if self.expansion > 1 else ("conv1", "conv2")

    @property
    def blocks(self) -> list[str]:
        """Names of the residual blocks, in order."""
        return [f"layer{s}.{b}" for s, depth in enumerate(self.depths, 1) for b in range(depth)]


CONFIGS = {
    "resnet18": ResNetConfig((2, 2, 2, 2), expansion=1),
    "resnet50": ResNetConfig((3, 4, 6, 3), expansion=4),
}


class ResNet(Backbone):
    """Tokens are the positions of the last map, T = (image_size / 32)², row by row.

    tune="block": the tail is the last residual block; tokens are what goes into it.
    tune="conv": the tail is that block's last convolution; tokens hold its input and, in the
    channels after that, the shortcut that is added to its output.
    """

    def __init__(
        self, name: str, state: Mapping[str, Tensor], *, image_size: int, tune: str
    ) -> None:
        super().__init__()
        config = config_of(name)
        self.name, self.image_size, self.tune = name, image_size, tune
        self.side, self.feature_dim = -(-image_size // REDUCTION), config.feature_dim
        self.trunk_dtype = torch.float32
        self.stem = FoldedConv(state, "conv1", stride=2)
        *frozen, last = config.blocks
        self.blocks = nn.Sequential(*(FrozenBlock(state, block, config) for block in frozen))
        n_lead = len(config.convs) - 1 if tune == "conv" else 0
        self.lead = nn.Sequential(
            *(FoldedConv(state, f"{last}.{c}") for c in config.convs[:n_lead])
        )
        tuned = [f"{last}.{c}" for c in config.convs[n_lead:]]
        self.tail_state = {
            key.removeprefix(f"{last}."): state[key]
            for conv in tuned
            for key in _shapes_of(conv, (0, 0, 0))
        }
        channels = state[f"{tuned[0]}.weight"].shape[1] + (self.feature_dim if n_lead else 0)
        self.token_shape = (self.side**2, channels)

    @classmethod
    def from_state(
        cls,
        name: str,
        state: Mapping[str, Tensor],
        *,
        image_size: int = 128,
        tune: str = "block",
        trunk_dtype: torch.dtype = torch.float32,
        device: Device = None,
    ) -> ResNet:
        """The ResNet whose weights are `state`, under torchvision's names; `fc` is left out.

        The name begins with a key of CONFIGS. A bfloat16 trunk is only used where `device`
        computes it natively; float32 otherwise.
        """
        choose("tuned part of a ResNet", tune, TUNED)
        if image_size < REDUCTION:
            raise UserError(f"image size {image_size}: a ResNet takes {REDUCTION} pixels or more")
        shapes = expected_shapes(config_of(name))
        check_state(state, shapes)
        ours = {key: state[key].detach().float() for key in shapes}
        resnet = cls(name, ours, image_size=image_size, tune=tune)
        resnet.to(device_or_default(device)).eval()
        if trunk_dtype == torch.bfloat16 and native_bfloat16(resnet.device):
            resnet.trunk_dtype = torch.bfloat16
        resnet.weights = state_digest(ours)
        depends_on = (image_size, tune, str(resnet.trunk_dtype))
        resnet.hash = digest("resnet-1", name, resnet.weights, *depends_on)
        return resnet

    @torch.no_grad()
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, *token_shape) tokens, without gradient."""
        self.check_images(images)
        if images.device.type != "cpu":
            return self._tokens(images)
        return torch.cat([self._filled_up(some) for some in torch.split(images, PIECE)])

    def _filled_up(self, images: Tensor) -> Tensor:
        """Tokens of a few images, the same bits as among many.

        torch sums in another order for fewer images; from how many on it does not differs from
        processor to processor.
        """
        n_images = len(images)
        if 0 < n_images < PIECE:
            images = torch.cat([images, images[-1:].expand(PIECE - n_images, -1, -1, -1)])
        return self._tokens(images)[:n_images]

    def _tokens(self, images: Tensor) -> Tensor:
        with in_precision(self.trunk_dtype, images):
            maps: Tensor = self.stem(images.contiguous(memory_format=torch.channels_last))
            maps = self.blocks(F.max_pool2d(maps, 3, stride=2, padding=1))
            if len(self.lead):
                maps = torch.cat([self.lead(maps), maps], dim=1)
        return maps.flatten(2).mT.float().contiguous()

    def new_tail(self) -> ResNetTail:
        """A fresh trainable copy of the tuned part; BatchNorm's statistics stay frozen."""
        return ResNetTail(self.tail_state, side=self.side).to(self.device)


class FoldedConv(nn.Module):
    """A frozen convolution with its BatchNorm folded in, and ReLU unless told otherwise."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self, state: Mapping[str, Tensor], conv: str, *, stride: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        norm = _norm_of(conv)
        scale = state[f"{norm}.weight"] * (state[f"{norm}.running_var"] + EPSILON).rsqrt()
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        self.register_buffer("weight", weight.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale)
        self.stride, self.relu, self.padding = stride, relu, weight.shape[-1] // 2
        n_in, size = weight.shape[1:3]
        self.fast = size == 3 and stride == 1 and n_in >= MANY_CHANNELS
        self.kernels: dict[int, Tensor] = {}  # side of a tile -> the weight at its points

    def forward(self, maps: Tensor) -> Tensor:
        """(N, C_in, H, W) to (N, C_out, H/stride, W/stride)."""
        if self.fast and suits(maps, side=maps.shape[-1]):
            result = self._by_points(maps)
        else:
            shape = {"stride": self.stride, "padding": self.padding}
            result = F.conv2d(maps, self.weight, self.bias, **shape)
        return result.relu_() if self.relu else result

    def _by_points(self, maps: Tensor) -> Tensor:
        side = maps.shape[-1]
        if (tile := tile_of(side)) not in self.kernels:
            self.kernels[tile] = kernels_at_points(self.weight, side=side)
        kernels = self.kernels[tile]
        positions_first = maps.permute(2, 3, 0, 1).flatten(0, 1)
        result = frozen3x3(positions_first, kernels, side=side).add_(self.bias)
        images = result.view(side, side, *result.shape[1:]).permute(2, 3, 0, 1)
        return images.contiguous(memory_format=torch.channels_last)


class FrozenBlock(nn.Module):
    """A residual block of the trunk."""

    def __init__(self, state: Mapping[str, Tensor], block: str, config: ResNetConfig) -> None:
        super().__init__()
        *inner, last = (f"{block}.{conv}" for conv in config.convs)
        strided = f"{block}.conv2" if config.expansion > 1 else f"{block}.conv1"
        stride = _stride_of(block)
        convs = [FoldedConv(state, c, stride=stride if c == strided else 1) for c in inner]
        self.convs = nn.Sequential(*convs, FoldedConv(state, last, relu=False))
        self.shortcut: nn.Module = nn.Identity()
        if f"{block}.downsample.0.weight" in state:
            self.shortcut = FoldedConv(state, f"{block}.downsample.0", stride=stride, relu=False)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, C_in, H, W) to (N, C_out, H/stride, W/stride)."""
        result: Tensor = self.convs(maps)
        return result.add_(self.shortcut(maps)).relu_()


def config_of(name: str) -> ResNetConfig:
    """The config of a catalogue name such as resnet18.tv_in1k."""
    return CONFIGS[choose("ResNet", name.split(".")[0], CONFIGS)]


def expected_shapes(config: ResNetConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that is used, by its name in torchvision."""
    shapes = _shapes_of("conv1", (64, 3, 7))
    n_in = 64
    for block in config.blocks:
        width = 64 * 2 ** (int(block[5]) - 1)
        n_out = width * config.expansion
        if config.expansion > 1:
            sizes = [(width, n_in, 1), (width, width, 3), (n_out, width, 1)]
        else:
            sizes = [(width, n_in, 3), (width, width, 3)]
        for conv, size in zip(config.convs, sizes, strict=True):
            shapes |= _shapes_of(f"{block}.{conv}", size)
        if n_in != n_out or _stride_of(block) > 1:
            shapes |= _shapes_of(f"{block}.downsample.0", (n_out, n_in, 1))
        n_in = n_out
    return shapes


def _shapes_of(conv: str, size: tuple[int, int, int]) -> dict[str, tuple[int, ...]]:
    """Shapes of a convolution (outputs, inputs, kernel side) and of its BatchNorm."""
    n_out, n_in, side = size
    norm = ("weight", "bias", "running_mean", "running_var")
    return {f"{conv}.weight": (n_out, n_in, side, side)} | {
        f"{_norm_of(conv)}.{part}": (n_out,) for part in norm
    }


def _norm_of(conv: str) -> str:
    """conv2 has bn2, downsample.0 has downsample.1."""
    return conv.replace("downsample.0", "downsample.1").replace("conv", "bn")


def _stride_of(block: str) -> int:
    """Stages 2 to 4 begin by halving the map."""
    return 2 if block in ("layer2.0", "layer3.0", "layer4.0") else 1
