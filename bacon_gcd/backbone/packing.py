"""Tokens in half the bytes: one signed byte for each value, and one scale for each token. Ours.

A packed token is a row of half floats in name only: its bytes are D signed bytes, one more where D
is odd, and the scale as a half float. So a bank stores packed tokens as it stores others.
"""

from __future__ import annotations

import torch
from torch import Tensor

HALF_TOKENS, BYTE_TOKENS = "half", "int8"
STORED = (HALF_TOKENS, BYTE_TOKENS)
"""Half floats as they are, or packed."""
LARGEST = 127


def stored_shape(token_shape: tuple[int, ...], stored: str) -> tuple[int, ...]:
    """Shape of the half floats that the tokens of one view are stored as."""
    if stored == HALF_TOKENS:
        return token_shape
    *tokens, width = token_shape
    return (*tokens, (width + 1) // 2 + 1)


def pack(tokens: Tensor) -> Tensor:
    """(..., D) values to (..., (D + 1) // 2 + 1) half floats that hold their bytes."""
    scale = (tokens.float().abs().amax(dim=-1, keepdim=True) / LARGEST).half()
    # A scale that half floats cannot hold is that of a token of zeros.
    steps = tokens.float() / scale.float().clamp_min(torch.finfo(torch.float16).tiny)
    values = steps.round().clamp(-LARGEST, LARGEST).to(torch.int8)
    if values.shape[-1] % 2:
        values = torch.nn.functional.pad(values, (0, 1))
    return torch.cat([values.contiguous().view(torch.float16), scale], dim=-1)


def unpack(packed: Tensor, width: int) -> Tensor:
    """(..., D) values of `pack`, D = width, in float32."""
    scale = packed[..., -1:].float()
    return packed[..., :-1].contiguous().view(torch.int8)[..., :width].float() * scale
