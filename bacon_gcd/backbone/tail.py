"""The last block of a ViT as a trainable tail: plain, and folded so that it is almost free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bacon_gcd.products import Linear, linear

EPS = 1e-6
"""Of every LayerNorm in DINO and DINOv2."""

PIECE_BYTES = 8 << 20
"""Tokens a processor reads twice in a row: the second reading should come from its cache."""


class Attention(nn.Module):
    """Self-attention of all tokens, no dropout."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(dim, 3 * dim)
        self.proj = Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, D) to (N, T, D)."""
        n, t, dim = tokens.shape
        qkv = self.qkv(tokens).view(n, t, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(n, t, dim))
        return out

    def by_head(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(heads, d, D) weights and (heads, d) biases, each of query, key and value."""
        shape = (3, self.heads, -1)
        weights = self.qkv.weight.view(*shape, self.qkv.in_features)
        return weights.unbind(), self.qkv.bias.view(*shape).unbind()


class Mlp(nn.Module):
    """Two layers with the exact GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = Linear(dim, hidden)
        self.fc2 = Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """DINOv2's learned gain of a residual branch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return x * self.gamma


class Block(nn.Module):
    """One transformer block; names as in timm, DINO and DINOv2."""

    def __init__(self, dim: int, *, heads: int, hidden: int, layer_scale: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = Attention(dim, heads)
        self.ls1 = LayerScale(dim) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Mlp(dim, hidden)
        self.ls2 = LayerScale(dim) if layer_scale else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, D) to (N, T, D)."""
        return self.feed_forward(tokens + self.ls1(self.attn(self.norm1(tokens))))

    def feed_forward(self, x: Tensor) -> Tensor:
        """The second half, which treats every token alone: (..., D) to (..., D)."""
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out


def fold_tokens(raw: Tensor) -> Tensor:
    """(N, T, D) raw tokens to the (N, T+1, D) a folded tail reads: raw CLS, then x̂ of all tokens.

    x̂ is the block's first LayerNorm without its affine part: no trained parameter is in it.
    """
    return torch.cat([raw[:, :1], F.layer_norm(raw, raw.shape[-1:], eps=EPS)], dim=1)


class PlainTail(nn.Module):
    """The block as written, on (N, T, D) raw tokens; the feature is CLS after the final norm."""

    def __init__(self, block: Block, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.block = block.requires_grad_(True)
        self.norm = norm.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, D) raw tokens to (N, D) features."""
        features: Tensor = self.norm(self.block(tokens.to(self.norm.weight.dtype))[:, 0])
        return features


class FoldedTail(nn.Module):
    """The same parameters and the same result from (N, T+1, D) folded tokens (`fold_tokens`).

    Only CLS leaves the block, so keys and values of the tokens need not be formed: the key
    matrix moves to the one query, the value matrix to the one mixture. Exact, not approximate.
    """

    def __init__(self, block: Block, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.block = block.requires_grad_(True)
        self.norm = norm.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T+1, D) folded tokens, any float type, to (N, D) features."""
        block, dtype = self.block, self.norm.weight.dtype
        (w_query, w_key, w_value), (b_query, _, b_value) = block.attn.by_head()
        cls, standardized = tokens[:, 0].to(dtype), tokens[:, 1:]

        normed = affine(block.norm1, standardized[:, 0].to(dtype))
        query = linear(normed, w_query.flatten(0, 1), b_query.flatten())
        query = query.view(len(query), *b_query.shape)
        mixed = attend(standardized, folded_query(query, w_key, block.norm1.weight))
        values = folded_values(affine(block.norm1, mixed), w_value) + b_value

        attended = block.attn.proj(values.flatten(1))
        features: Tensor = self.norm(block.feed_forward(cls + block.ls1(attended)))
        return features


class ChainedTail(nn.Module):
    """Several trained blocks, each on what the one before gives; only the last can be folded."""

    def __init__(self, blocks: Sequence[Block], norm: nn.LayerNorm) -> None:
        super().__init__()
        self.earlier = nn.ModuleList(blocks[:-1]).requires_grad_(True)
        self.last = FoldedTail(blocks[-1], norm)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, D) raw tokens to (N, D) features."""
        tokens = tokens.to(self.last.norm.weight.dtype)
        for block in self.earlier:
            tokens = block(tokens)
        features: Tensor = self.last(fold_tokens(tokens))
        return features


def affine(norm: nn.LayerNorm, standardized: Tensor) -> Tensor:
    """The part of a LayerNorm that is trained: γ ⊙ x̂ + β."""
    out: Tensor = standardized * norm.weight + norm.bias
    return out


def folded_query(query: Tensor, w_key: Tensor, gain: Tensor) -> Tensor:
    """q̃ = γ ⊙ (W_kᵀ q) / √d per head, ours: (N, heads, d) queries to (N, heads, D).

    x̂ · q̃ is the score of a token up to what the key bias and β add, which is the same for all
    tokens of an image, so the softmax never sees it.
    """
    through_keys = torch.bmm(query.transpose(0, 1), w_key).transpose(0, 1)
    return through_keys * (gain / math.sqrt(query.shape[-1]))


def folded_values(mixed: Tensor, w_value: Tensor) -> Tensor:
    """o = W_v (Σ a x) per head, ours: (N, heads, D) mixtures to (N, heads, d)."""
    return torch.bmm(mixed.transpose(0, 1), w_value.mT).transpose(0, 1)


def attend(standardized: Tensor, query: Tensor) -> Tensor:
    """softmax(q̃ x̂ᵀ) x̂ per head, ours: what is mixed are tokens, not values, as Σ a = 1.

    Args:
        standardized: (N, T, D) x̂ of any float type, as stored.
        query: (N, heads, D) q̃.

    Returns:
        (N, heads, D).
    """
    mixed: Tensor = _Attend.apply(standardized, query)  # type: ignore[no-untyped-call]
    return mixed


class _Attend(torch.autograd.Function):
    """softmax(q̃ x̂ᵀ) x̂, without copies of the tokens: autograd alone would keep them converted."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, query: Tensor) -> Tensor:
        """(N, T, D) tokens of any float type, (N, heads, D) queries, to (N, heads, D) mixtures."""
        attention = query.new_empty(*query.shape[:2], tokens.shape[1])
        mixed = torch.empty_like(query)
        for rows, piece in _pieces(tokens, query.dtype):
            attention[rows] = torch.bmm(query[rows], piece.mT).softmax(dim=-1)
            mixed[rows] = torch.bmm(attention[rows], piece)
        ctx.save_for_backward(tokens, query, attention)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        """Two products with the tokens again; their own gradient only if a block before asks."""
        tokens, query, attention = ctx.saved_tensors
        grad_scores, grad_query = torch.empty_like(attention), torch.empty_like(query)
        for rows, piece in _pieces(tokens, query.dtype):
            gain = attention[rows] * torch.bmm(grad[rows], piece.mT)
            grad_scores[rows] = gain - attention[rows] * gain.sum(dim=-1, keepdim=True)
            grad_query[rows] = torch.bmm(grad_scores[rows], piece)
        if not ctx.needs_input_grad[0]:
            return None, grad_query
        return attention.mT @ grad + grad_scores.mT @ query, grad_query


def _pieces(tokens: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Rows of the tokens in the wanted type, few at a time, in one buffer that stays cached."""
    if tokens.device.type != "cpu":
        yield slice(None), tokens.to(dtype)
        return
    n_rows = max(1, PIECE_BYTES // max(1, tokens[:1].numel() * dtype.itemsize))
    buffer = tokens.new_empty(min(n_rows, len(tokens)), *tokens.shape[1:], dtype=dtype)
    for start in range(0, len(tokens), n_rows):
        rows = slice(start, start + n_rows)
        piece = tokens[rows]
        yield rows, piece if piece.dtype == dtype else buffer[: len(piece)].copy_(piece)
