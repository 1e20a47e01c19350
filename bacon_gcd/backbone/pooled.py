"""A network of another library as a backbone: one vector per image, and a small trainable tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bacon_gcd.backbone.base import Backbone, Color, Device, device_or_default, in_precision
from bacon_gcd.backbone.vectors import VectorTail
from bacon_gcd.backbone.vit import native_bfloat16
from bacon_gcd.config import UserError
from bacon_gcd.system.files import digest

Embed = Callable[[nn.Module, Tensor], Tensor]
"""(network, (N, 3, S, S) normalized images) -> (N, D) vectors."""


@dataclass(frozen=True)
class Preprocessing:
    """The images a network was trained on."""

    image_size: int
    mean: Color
    std: Color


class PooledBackbone(Backbone):
    """Tokens are the pooled features of a frozen network; the tail is that of ready vectors."""

    def __init__(
        self,
        network: nn.Module,
        embed: Embed,
        seen: Preprocessing,
        *,
        name: str,
        weights: str,
        trunk_dtype: torch.dtype = torch.float32,
        device: Device = None,
    ) -> None:
        """Wrap a network; one blank image tells whether the size fits and how long vectors are.

        seen: how images are given to it. weights: identifies its weights and its config.
        """
        super().__init__()
        self.network = network.to(device_or_default(device)).requires_grad_(False).eval()
        self.embed, self.name, self.weights = embed, name, weights
        self.image_size, self.mean, self.std = seen.image_size, seen.mean, seen.std
        lower = trunk_dtype == torch.bfloat16 and native_bfloat16(self.device)
        self.trunk_dtype = torch.bfloat16 if lower else torch.float32
        self.feature_dim = self._blank_vector().shape[1]
        self.token_shape = (self.feature_dim,)
        depends_on = (seen.image_size, list(seen.mean), list(seen.std), str(self.trunk_dtype))
        self.hash = digest("pooled-1", weights, *depends_on)

    def _blank_vector(self) -> Tensor:
        blank = torch.zeros(1, 3, self.image_size, self.image_size, device=self.device)
        try:
            vector = self.trunk(blank)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"{self.name}: images of {self.image_size} px: {reason}") from None
        if vector.ndim != 2:
            raise UserError(f"{self.name}: gives {tuple(vector.shape[1:])} per image, not a vector")
        return vector

    @torch.no_grad()
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, D) vectors, without gradient."""
        self.check_images(images)
        with in_precision(self.trunk_dtype, images):
            return self.embed(self.network, images).float()

    def new_tail(self) -> VectorTail:
        """A fresh tail that changes nothing until it is trained."""
        generator = torch.Generator().manual_seed(0)
        return VectorTail(self.feature_dim, generator=generator).to(self.device)


class Whole(nn.Module):
    """Trunk and untrained tail of a backbone, one after the other."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone, self.tail = backbone, backbone.new_tail()

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, D) features."""
        alone = self.backbone.one_by_one and images.device.type == "cpu"
        parts = [each[None] for each in images] if alone else [images]
        return torch.cat([self.tail(self.backbone.trunk(part)) for part in parts])


def as_it_is(network: nn.Module, images: Tensor) -> Tensor:
    """(N, D) features of the images."""
    features: Tensor = network(images)
    return features


def with_mirror_image(network: nn.Module, images: Tensor) -> Tensor:
    """(N, D) sum of the unit features of each image and of its mirror image.

    What an image shows is seldom a matter of left and right, so the mean of both is less noisy.
    """
    both = network(torch.cat([images, images.flip(3)]))
    first, second = normalize(both, dim=1).chunk(2)
    return first + second


def frozen_whole(backbone: Backbone, *, mirrored: bool = False) -> PooledBackbone:
    """The same network with all of it frozen: its features are the tokens, at their own length.

    A two-layer tail is trained on top of them, which takes a small part of the time that tuning
    the network's own last part takes.

    mirrored: see `with_mirror_image`.
    """
    seen = Preprocessing(backbone.image_size, backbone.mean, backbone.std)
    whole = PooledBackbone(
        Whole(backbone),
        with_mirror_image if mirrored else as_it_is,
        seen,
        name=backbone.name,
        weights=backbone.weights,
        device=backbone.device,
    )
    if backbone.one_by_one and backbone.device.type == "cpu":
        whole.at_a_time = 1  # they are computed alone in any case
    kind = "frozen-mirrored-1" if mirrored else "frozen-whole-1"
    whole.hash = digest(kind, backbone.hash)  # precision and size are part of that
    return whole


def check_patch(name: str, image_size: int, patch: object) -> None:
    """Refuse images whose last patches would be cut off."""
    if not isinstance(patch, int) or patch < 1 or image_size % patch == 0:
        return
    near = {patch * n for n in (image_size // patch, image_size // patch + 1) if n > 0}
    choices = " or ".join(map(str, sorted(near)))
    raise UserError(f"image size {image_size} does not fit {name}; choose {choices}")
