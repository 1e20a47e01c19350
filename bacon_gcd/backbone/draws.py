"""Which stored view each image of a batch gets: random, and repeatable from seed and step alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError

IntArray = npt.NDArray[np.int64]


def pick_views(
    positions: IntArray,
    kinds: Sequence[str],
    stored: dict[str, IntArray],
    *,
    seed: int,
    step: int,
) -> IntArray:
    """(len(kinds), n): for each image, one of the stored views of each kind in turn.

    stored: kind -> numbers of its views. No view is taken twice before all were taken once.
    Ours: every (image, view) gets a random rank from a hash, so no draw depends on another.
    """
    picked = np.empty((len(kinds), len(positions)), dtype=np.int64)
    for kind in set(kinds):
        slots = [slot for slot, each in enumerate(kinds) if each == kind]
        ranks = mixed_bits(
            stored[kind], seed, step, positions[:, None], occurrences(positions)[:, None]
        )
        order = stored[kind][np.argsort(ranks, axis=1)]
        picked[slots] = order[:, np.arange(len(slots)) % len(stored[kind])].T
    return picked


def occurrences(positions: IntArray) -> IntArray:
    """(n,): how often the same image came before in this batch."""
    order = np.argsort(positions, kind="stable")
    new = np.r_[True, np.diff(positions[order]) != 0][: len(order)]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    before = np.empty_like(order)
    before[order] = np.arange(len(order)) - first
    return before


def mixed_bits(*parts: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Well-mixed bits of integers (arrays broadcast): the finalizer of SplitMix64, part by part."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    mixed = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            bits = (mixed + golden) * golden + np.asarray(part).astype(np.uint64)
            bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = np.asarray(bits ^ (bits >> np.uint64(31)))
    return mixed


def check_view(view: int, n_views: int) -> None:
    """Refuse the number of a view that is not there."""
    if not 0 <= view <= n_views:
        raise UserError(
            f"there is no view {view}; 0 is the test view, training views are 1..{n_views}"
        )
