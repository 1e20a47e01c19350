"""Ready feature vectors, of any modality, with a small tail that can be trained on top of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.backbone.base import Backbone, Device, device_or_default
from bacon_gcd.config import UserError
from bacon_gcd.products import Linear
from bacon_gcd.system.files import digest


class Vectors(Backbone):
    """No network before the tail: the vectors are the tokens."""

    name = "vectors"
    image_size = 0  # there are no images
    weights = "none"

    def __init__(self, dim: int, *, seed: int = 0, device: Device = None) -> None:
        super().__init__()
        if dim < 1:
            raise UserError(f"vectors of {dim} values: there must be at least 1")
        self.feature_dim, self.token_shape = dim, (dim,)
        self.seed = seed
        # Nothing but the place where tails are made: `device` asks for it, `to` moves it.
        place = torch.empty(0, device=device_or_default(device))
        self.register_buffer("place", place, persistent=False)
        self.hash = digest("vectors", dim)

    def trunk(self, images: Tensor) -> Tensor:
        """(N, D) vectors to themselves."""
        if images.shape[1:] != self.token_shape:
            got = tuple(images.shape[1:])
            raise UserError(f"vectors of shape {got} given; {self.feature_dim} values expected")
        return images.detach()

    def new_tail(self) -> VectorTail:
        """A fresh tail that changes nothing until it is trained."""
        generator = torch.Generator().manual_seed(self.seed)
        return VectorTail(self.feature_dim, generator=generator).to(self.device)


class VectorTail(nn.Module):
    """A residual two-layer network, the identity at first, for vectors of any length. Ours.

    It sees each vector at unit scale and answers at the vector's own, so that raw and normalized
    vectors learn at the same pace.
    """

    def __init__(self, dim: int, *, generator: torch.Generator) -> None:
        super().__init__()
        with torch.device("meta"):  # leaves the global random numbers alone
            self.fc1, self.fc2 = Linear(dim, dim), Linear(dim, dim)
        self.to_empty(device=generator.device)
        nn.init.normal_(self.fc1.weight, std=dim**-0.5, generator=generator)
        for zero in (self.fc1.bias, self.fc2.weight, self.fc2.bias):
            nn.init.zeros_(zero)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, D) vectors to (N, D) features."""
        vectors = tokens.to(self.fc1.weight.dtype)
        scale = vectors.square().mean(dim=1, keepdim=True).sqrt()
        change = self.fc2(F.gelu(self.fc1(vectors / scale.clamp_min(1e-12))))
        features: Tensor = vectors + scale * change
        return features
