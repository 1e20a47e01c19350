"""How a value changes during a run; what several methods share."""

from __future__ import annotations


def ramp(start: float, end: float, *, epoch: int, epochs: int) -> float:
    """Linear from `start` at epoch 0 to `end` at the last of `epochs` epochs, then constant."""
    last = epochs - 1
    share = min(epoch / last, 1.0) if last > 0 else float(epoch > 0)
    return start + (end - start) * share
