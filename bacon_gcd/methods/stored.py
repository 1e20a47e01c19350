"""The stored state of a method, loaded back: also states that earlier versions wrote."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bacon_gcd.classes.reliability import CENTROID_TEMPERATURE
from bacon_gcd.config import UserError
from bacon_gcd.methods.base import Method

DROPPED = ("epoch", "epoch_steps")
"""Buffers of version 0.1: the epoch is part of the batch now."""


def load_state(method: Method, state: Mapping[str, Tensor], *, spare: tuple[str, ...] = ()) -> None:
    """Load a method's state; buffers that grow during a run (centroids) take the stored shape.

    spare: submodules and buffers that may be missing, because a kept model does without them.
    """
    state = upgraded(state)
    for name, buffer in method.named_buffers():
        if name in state and buffer.shape != state[name].shape:
            buffer.resize_(state[name].shape)
    missing, extra = method.load_state_dict(dict(state), strict=False)
    missing = [key for key in missing if key.split(".")[0] not in spare]
    if missing or extra:
        raise UserError(f"stored weights do not fit: missing {missing[:3]}, extra {extra[:3]}")


def upgraded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state in today's form: without dropped buffers, with unit centroids and a temperature."""
    new = {name: tensor for name, tensor in state.items() if name not in DROPPED}
    if "temperature" not in new and "centroids" in new:
        new["centroids"], new["temperature"] = split_temperature(new["centroids"])
    return new


def split_temperature(centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Unit centroids and their temperature, which version 0.1 stored as the length of the rows."""
    length = float(centroids.norm(dim=1).max()) if centroids.numel() else 1.0
    if not length or abs(length - 1) < 1e-4:  # no class yet, or rounding of unit rows
        return centroids, centroids.new_tensor(CENTROID_TEMPERATURE)
    return centroids / length, centroids.new_tensor(CENTROID_TEMPERATURE / length)
