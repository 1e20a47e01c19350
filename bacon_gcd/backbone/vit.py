"""Vision transformers as trunk and tail: DINO and DINOv2, state-dict names as in timm."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.backbone.base import Backbone, Device, device_or_default, in_precision
from bacon_gcd.backbone.state import check_state, state_digest
from bacon_gcd.backbone.tail import EPS, Block, ChainedTail, FoldedTail, fold_tokens
from bacon_gcd.config import UserError
from bacon_gcd.system.files import digest


@dataclass(frozen=True)
class ViTConfig:
    """The shape of one ViT."""

    name: str
    """Catalogue name, as timm spells it."""
    patch: int
    """Side of a patch, in pixels."""
    dim: int
    depth: int
    heads: int
    pretrained_grid: int
    """Patches along a side in the stored position embedding."""
    image_size: int = 224
    """Side of the images it is used with unless said otherwise, in pixels."""
    mlp_ratio: float = 4.0
    layer_scale: bool = False
    n_register: int = 0


class PatchEmbed(nn.Module):
    """Images to one token per patch."""

    def __init__(self, patch: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) to (N, T, D), patches row by row."""
        tokens: Tensor = self.proj(images).flatten(2).mT
        return tokens


class ViT(Backbone):
    """A frozen trunk up to the last `tuned_blocks` blocks; those and the final norm are the tail.

    Made by `from_state`. The tokens are folded (`tail.fold_tokens`) when one block is tuned, raw
    when there are more.
    """

    one_by_one = True

    def __init__(self, config: ViTConfig, *, image_size: int, tuned_blocks: int) -> None:
        super().__init__()
        self.config, self.name = config, config.name
        self.image_size, self.tuned_blocks = image_size, tuned_blocks
        self.trunk_dtype = torch.float32
        self.grid = _grid(config, image_size)
        self._build(config)
        n_tokens = 1 + config.n_register + self.grid**2
        self.feature_dim = config.dim
        self.token_shape = (n_tokens + (tuned_blocks == 1), config.dim)

    def _build(self, config: ViTConfig) -> None:
        dim, hidden = config.dim, int(config.dim * config.mlp_ratio)
        # timm adds no position to CLS when there are registers, and stores none.
        n_positions = config.pretrained_grid**2 + (config.n_register == 0)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, n_positions, dim))
        if config.n_register:
            self.reg_token = nn.Parameter(torch.zeros(1, config.n_register, dim))
        self.patch_embed = PatchEmbed(config.patch, dim)
        self.blocks = nn.ModuleList(
            Block(dim, heads=config.heads, hidden=hidden, layer_scale=config.layer_scale)
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(dim, eps=EPS)

    @classmethod
    def from_state(
        cls,
        config: ViTConfig,
        state: Mapping[str, Tensor],
        *,
        image_size: int | None = None,
        tuned_blocks: int = 1,
        trunk_dtype: torch.dtype = torch.float32,
        device: Device = None,
    ) -> ViT:
        """The ViT whose weights are `state`, under timm's names.

        A bfloat16 trunk is only used where `device` computes it natively; float32 otherwise.
        """
        if not 1 <= tuned_blocks <= config.depth:
            raise UserError(f"tuned_blocks {tuned_blocks}: {config.name} has 1 to {config.depth}")
        with torch.device("meta"):  # no memory, no random numbers: every weight comes from `state`
            vit = cls(config, image_size=image_size or config.image_size, tuned_blocks=tuned_blocks)
        vit._load(state)
        vit.to(device_or_default(device)).requires_grad_(False).eval()
        vit._fit_positions()
        if trunk_dtype == torch.bfloat16 and native_bfloat16(vit.device):
            vit.trunk_dtype = torch.bfloat16
        vit.weights = state_digest(vit.state_dict())
        depends_on = (vit.image_size, tuned_blocks, str(vit.trunk_dtype))
        vit.hash = digest("vit-1", asdict(config), vit.weights, *depends_on)
        return vit

    def _load(self, state: Mapping[str, Tensor]) -> None:
        """Take our names only (no head, no mask token), in single precision or better."""
        names = self.state_dict()
        check_state(state, {name: tuple(weight.shape) for name, weight in names.items()})
        at_least_float = {
            name: state[name].to(torch.promote_types(state[name].dtype, torch.float32))
            for name in names
        }
        self.load_state_dict(at_least_float, assign=True)

    def _fit_positions(self) -> None:
        """What is added to every image: CLS and registers as they are, positions on this grid."""
        n_cls = int(self.config.n_register == 0)
        prefix = self.cls_token + self.pos_embed[:, :1] if n_cls else self.cls_token
        if self.config.n_register:
            prefix = torch.cat([prefix, self.reg_token], dim=1)
        antialias = self.config.n_register > 0  # as the models with registers were made
        positions = resize_positions(self.pos_embed[:, n_cls:], self.grid, antialias=antialias)
        self.prefix: Tensor
        self.positions: Tensor
        self.register_buffer("prefix", prefix, persistent=False)
        self.register_buffer("positions", positions, persistent=False)

    @torch.no_grad()
    def trunk(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) normalized images to (N, *token_shape) tokens, without gradient."""
        self.check_images(images)
        with in_precision(self.trunk_dtype, images):
            tokens = self._embed(images)
            for block in self.blocks[: -self.tuned_blocks]:
                tokens = block(tokens)
        return fold_tokens(tokens) if self.tuned_blocks == 1 else tokens

    def _embed(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images) + self.positions
        return torch.cat([self.prefix.expand(len(images), -1, -1), patches], dim=1)

    def new_tail(self) -> FoldedTail | ChainedTail:
        """A fresh trainable copy of the tuned blocks; the final norm stays frozen."""
        norm = copy.deepcopy(self.norm)
        blocks = [cast(Block, copy.deepcopy(block)) for block in self.blocks[-self.tuned_blocks :]]
        return FoldedTail(blocks[0], norm) if len(blocks) == 1 else ChainedTail(blocks, norm)


def resize_positions(positions: Tensor, grid: int, *, antialias: bool) -> Tensor:
    """Position embedding for another grid, as DINO and DINOv2 do it: (1, G*G, D) to (1, g*g, D).

    Without antialias the originals aim at g + 0.1 patches, and so do we: the tokens are the same.
    """
    side = math.isqrt(positions.shape[1])
    if grid == side:
        return positions
    square = positions.mT.reshape(1, -1, side, side)
    if antialias:
        size, factor = (grid, grid), None
    else:
        size, factor = None, ((grid + 0.1) / side,) * 2
    resized = F.interpolate(square, size, factor, mode="bicubic", antialias=antialias)
    return resized.flatten(2).mT.contiguous()


def native_bfloat16(device: Device = None) -> bool:
    """Whether bfloat16 products run in hardware; emulated they are far slower than float32."""
    kind = device_or_default(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported") if kind == "cpu" else ()
    return any(bool(getattr(torch.cpu, name)()) for name in names if hasattr(torch.cpu, name))


def _grid(config: ViTConfig, image_size: int) -> int:
    """Patches along a side of the image."""
    grid, rest = divmod(image_size, config.patch)
    if rest or grid < 1:
        near = " or ".join(str(config.patch * n) for n in (grid, grid + 1) if n > 0)
        raise UserError(f"image size {image_size} does not fit {config.name}; choose {near}")
    return grid
