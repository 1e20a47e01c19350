"""The contract of a backbone: a frozen trunk from images to tokens, trainable tails to features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor, nn

from bacon_gcd.data.views import MEAN, STD
from bacon_gcd.system.devices import Device as Device

Color = tuple[float, float, float]
"""Red, green and blue, from 0 to 1."""


def device_or_default(device: Device) -> torch.device:
    """The device itself, or torch's default one."""
    return torch.get_default_device() if device is None else torch.device(device)


def in_precision(dtype: torch.dtype, images: Tensor) -> torch.autocast:
    """Computes a trunk in bfloat16 where that is its precision."""
    lower = dtype != torch.float32
    return torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=lower)


class Backbone(nn.Module, ABC):
    """A trunk that never changes, and as many tails as a method has branches."""

    name: str
    """Catalogue name, as timm spells it; or hf:FOLDER, timm:NAME."""
    feature_dim: int
    token_shape: tuple[int, ...]
    """Shape of the tokens of one image."""
    image_size: int
    """Side of the square images `trunk` takes, in pixels."""
    mean: Color = MEAN
    """What is subtracted from pixels in [0, 1] before `trunk` sees them."""
    std: Color = STD
    """What they are divided by after that."""
    uncropped: bool = False
    """Test views are whole images, resized to a square, instead of their centers."""
    edges: float = 0.0
    """Length of the edge histograms beside its features, which have length 1; 0: there are none."""
    one_by_one: ClassVar[bool] = False
    """Whether the last bits of features depend on the images beside an image, so that a CPU, where
    the whole network is frozen, computes one after the other."""
    at_a_time: int | None = None
    """How many images go through the trunk together where fewer give the same bits in the same
    time, so that progress shows each; None: as many as there are."""
    work: ClassVar[str] = "embedding"
    """What a person is told is being done while images go through the trunk."""
    weights: str
    """Identifies the weights alone: what a trained model checks before it is used."""
    hash: str
    """Identifies weights, image size and the cut between trunk and tail: what tokens depend on."""

    @property
    def device(self) -> torch.device:
        """Where the weights are; torch's default device where there are none."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return torch.get_default_device() if first is None else first.device

    def check_images(self, images: Tensor) -> None:
        """A ValueError unless the images have the size that the trunk takes."""
        if images.shape[1:] != (3, self.image_size, self.image_size):
            raise ValueError(f"{self.name} takes {self.image_size} px, got {tuple(images.shape)}")

    @abstractmethod
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, *token_shape) tokens, without gradient."""

    @abstractmethod
    def new_tail(self) -> nn.Module:
        """A fresh trainable copy of the last part: tokens to (N, feature_dim) features."""
