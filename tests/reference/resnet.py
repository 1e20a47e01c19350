"""ResNet written out: torch's own convolution and BatchNorm, tensors by torchvision's names."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.backbone.resnet import CONFIGS, expected_shapes


def random_state(architecture: str, *, seed: int, dtype=torch.float64) -> dict[str, Tensor]:
    """Weights of a size that keeps the maps near 1; variances positive."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, shape in expected_shapes(CONFIGS[architecture]).items():
        noise = torch.randn(shape, generator=generator, dtype=dtype)
        if len(shape) == 4:
            state[key] = noise * math.prod(shape[1:]) ** -0.5
        elif key.endswith("running_var"):
            state[key] = noise.abs() + 0.5
        elif key.endswith("weight"):
            state[key] = 1 + 0.1 * noise
        else:
            state[key] = 0.1 * noise
    return state


def features(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """(N, 3, S, S) images to (N, D): the network without its classifier, then the mean."""
    bottleneck = "layer1.0.conv3.weight" in state
    x = conv_norm(state, images, "conv1", "bn1", stride=2).relu()
    x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        block = 0
        while f"layer{stage}.{block}.conv1.weight" in state:
            stride = 2 if stage > 1 and block == 0 else 1
            x = residual(state, x, f"layer{stage}.{block}.", stride=stride, bottleneck=bottleneck)
            block += 1
    return x.mean(dim=(2, 3))


def residual(state, x, at, *, stride, bottleneck):
    shortcut = x
    if at + "downsample.0.weight" in state:
        shortcut = conv_norm(state, x, at + "downsample.0", at + "downsample.1", stride=stride)
    if bottleneck:
        y = conv_norm(state, x, at + "conv1", at + "bn1").relu()
        y = conv_norm(state, y, at + "conv2", at + "bn2", stride=stride).relu()
        y = conv_norm(state, y, at + "conv3", at + "bn3")
    else:
        y = conv_norm(state, x, at + "conv1", at + "bn1", stride=stride).relu()
        y = conv_norm(state, y, at + "conv2", at + "bn2")
    return (y + shortcut).relu()


def conv_norm(state, x, conv, norm, *, stride=1):
    weight = state[conv + ".weight"]
    x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
    mean, variance = state[norm + ".running_mean"], state[norm + ".running_var"]
    return F.batch_norm(x, mean, variance, state[norm + ".weight"], state[norm + ".bias"])
