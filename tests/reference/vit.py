"""A ViT written out slowly: one image, one token, one head at a time, from a state dict."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def random_state(
    *,
    patch: int,
    dim: int,
    depth: int,
    grid: int,
    layer_scale: bool = False,
    n_register: int = 0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Random weights with the names and shapes of DINO's (or DINOv2's) files as timm keeps them."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, dim),
        "pos_embed": (1, grid**2 + (n_register == 0), dim),
        "patch_embed.proj.weight": (dim, 3, patch, patch),
        "patch_embed.proj.bias": (dim,),
        "norm.weight": (dim,),
        "norm.bias": (dim,),
    }
    if n_register:
        shapes["reg_token"] = (1, n_register, dim)
    for i in range(depth):
        for name, shape in {
            "norm1.weight": (dim,),
            "norm1.bias": (dim,),
            "attn.qkv.weight": (3 * dim, dim),
            "attn.qkv.bias": (3 * dim,),
            "attn.proj.weight": (dim, dim),
            "attn.proj.bias": (dim,),
            "norm2.weight": (dim,),
            "norm2.bias": (dim,),
            "mlp.fc1.weight": (4 * dim, dim),
            "mlp.fc1.bias": (4 * dim,),
            "mlp.fc2.weight": (dim, 4 * dim),
            "mlp.fc2.bias": (dim,),
            **({"ls1.gamma": (dim,), "ls2.gamma": (dim,)} if layer_scale else {}),
        }.items():
            shapes[f"blocks.{i}.{name}"] = shape
    generator = torch.Generator().manual_seed(seed)
    state = {k: torch.randn(s, generator=generator, dtype=dtype) * 0.3 for k, s in shapes.items()}
    for name in state:  # gains around 1, so that every one of them matters
        if ("norm" in name and name.endswith("weight")) or name.endswith("gamma"):
            state[name] += 1.0
    return state


def cls_features(
    state: dict[str, Tensor], images: Tensor, *, patch: int, heads: int, n_register: int = 0
) -> Tensor:
    """(N, 3, S, S) images to (N, D): CLS after all blocks and the final norm."""
    depth = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("blocks."))
    out = []
    for image in images:
        tokens = embed(state, image, patch=patch, n_register=n_register)
        for i in range(depth):
            prefix = f"blocks.{i}."
            part = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            tokens = block(part, tokens, heads=heads)
        out.append(layer_norm(tokens[0], state["norm.weight"], state["norm.bias"]))
    return torch.stack(out)


def embed(state: dict[str, Tensor], image: Tensor, *, patch: int, n_register: int) -> list[Tensor]:
    """One token per patch, row by row, behind CLS (and the registers)."""
    weight, bias = state["patch_embed.proj.weight"], state["patch_embed.proj.bias"]
    side = image.shape[1] // patch
    positions = state["pos_embed"][0]
    cls = state["cls_token"][0, 0]
    if n_register == 0:
        cls, positions = cls + positions[0], positions[1:]
    positions = resize(positions, side, antialias=n_register > 0)
    tokens = [cls] + [state["reg_token"][0, r] for r in range(n_register)]
    for row in range(side):
        for column in range(side):
            pixels = image[
                :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch
            ]
            token = torch.stack([(kernel * pixels).sum() for kernel in weight]) + bias
            tokens.append(token + positions[row * side + column])
    return tokens


def block(part: dict[str, Tensor], tokens: list[Tensor], *, heads: int) -> list[Tensor]:
    """One pre-norm transformer block."""
    normed = [layer_norm(x, part["norm1.weight"], part["norm1.bias"]) for x in tokens]
    attended = attention(part, normed, heads=heads)
    tokens = [x + part.get("ls1.gamma", 1.0) * a for x, a in zip(tokens, attended, strict=True)]
    return [x + part.get("ls2.gamma", 1.0) * mlp(part, x) for x in tokens]


def attention(part: dict[str, Tensor], normed: list[Tensor], *, heads: int) -> list[Tensor]:
    dim = len(normed[0])
    size = dim // heads
    qkv = [part["attn.qkv.weight"] @ x + part["attn.qkv.bias"] for x in normed]
    out = []
    for token in qkv:
        joined = []
        for h in range(heads):
            query = token[h * size : (h + 1) * size]
            keys = [t[dim + h * size : dim + (h + 1) * size] for t in qkv]
            values = [t[2 * dim + h * size : 2 * dim + (h + 1) * size] for t in qkv]
            scores = torch.stack([query @ key / math.sqrt(size) for key in keys])
            shares = scores.exp() / scores.exp().sum()
            joined.append(sum(s * v for s, v in zip(shares, values, strict=True)))
        out.append(part["attn.proj.weight"] @ torch.cat(joined) + part["attn.proj.bias"])
    return out


def mlp(part: dict[str, Tensor], x: Tensor) -> Tensor:
    hidden = part["mlp.fc1.weight"] @ layer_norm(x, part["norm2.weight"], part["norm2.bias"])
    hidden = hidden + part["mlp.fc1.bias"]
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    return part["mlp.fc2.weight"] @ hidden + part["mlp.fc2.bias"]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centered = x - x.mean()
    return centered / torch.sqrt((centered**2).mean() + 1e-6) * weight + bias


def resize(positions: Tensor, side: int, *, antialias: bool) -> Tensor:
    """(G*G, D) to (side*side, D), bicubic: one axis after the other, weights by the textbook."""
    old = math.isqrt(len(positions))
    if side == old:
        return positions
    one_axis = antialiased_weights if antialias else plain_weights
    weights = one_axis(old, side).to(positions.dtype)
    square = positions.view(old, old, -1)
    return torch.einsum("ai,bj,ijd->abd", weights, weights, square).flatten(0, 1)


def plain_weights(old: int, new: int) -> Tensor:
    """Four neighbours with Keys' kernel, a = -0.75; the edge is repeated; scale (new + 0.1)/old."""
    weights = torch.zeros(new, old, dtype=torch.float64)
    for i in range(new):
        center = (i + 0.5) * old / (new + 0.1) - 0.5
        for j in range(math.floor(center) - 1, math.floor(center) + 3):
            weights[i, min(max(j, 0), old - 1)] += keys_kernel(center - j, a=-0.75)
    return weights


def antialiased_weights(old: int, new: int) -> Tensor:
    """The kernel, a = -0.5, is as wide as an output position; weights sum to one; exact scale."""
    weights = torch.zeros(new, old, dtype=torch.float64)
    width = max(old / new, 1.0)
    for i in range(new):
        center = (i + 0.5) * old / new - 0.5
        for j in range(old):
            weights[i, j] = keys_kernel((j - center) / width, a=-0.5)
    return weights / weights.sum(dim=1, keepdim=True)


def keys_kernel(x: float, *, a: float) -> float:
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    if x < 2:
        return a * (x**3 - 5 * x**2 + 8 * x - 4)
    return 0.0
