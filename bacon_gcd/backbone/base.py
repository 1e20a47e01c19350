"""The contract of a backbone: a frozen trunk from images to tokens, trainable tails to features."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module, ABC):
    """A trunk that never changes, and as many tails as a method has branches."""

    name: str
    """Catalogue name, as timm spells it."""
    feature_dim: int
    token_shape: tuple[int, ...]
    """Shape of the tokens of one image."""
    image_size: int
    """Side of the square images `trunk` takes, in pixels."""
    weights: str
    """Identifies the weights alone: what a trained model checks before it is used."""
    hash: str
    """Identifies weights, image size and the cut between trunk and tail: what tokens depend on."""

    @abstractmethod
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, *token_shape) tokens, without gradient."""

    @abstractmethod
    def new_tail(self) -> nn.Module:
        """A fresh trainable copy of the last part: tokens to (N, feature_dim) features."""
