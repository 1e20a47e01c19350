"""Labels as people give them: integers or names, and several ways to say that there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError

IntArray = npt.NDArray[np.int64]
LARGEST = 2**62  # of an integer label: novel classes are numbered after it


def encode(y: Any, n_samples: int) -> tuple[list[Any], IntArray]:
    """Known classes in order, and (N,) their numbers, -1 = unlabeled."""
    if y is None:
        return [], np.full(n_samples, -1)
    values = np.asarray(y, dtype=object).reshape(-1)
    if len(values) != n_samples:
        raise UserError(f"y has {len(values)} values for {n_samples} samples")
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    told = {row: v for row, v in enumerate(plain) if not is_unlabeled(v)}
    refuse_twofold(list(told.values()))
    by_name = any(isinstance(v, str) for v in told.values())
    named = {row: str(v) if by_name else whole_label(v) for row, v in told.items()}
    known: list[Any] = sorted(set(named.values()))
    number = {c: i for i, c in enumerate(known)}
    ids = [number[named[row]] if row in named else -1 for row in range(n_samples)]
    return known, np.array(ids, dtype=np.int64)


def refuse_twofold(values: list[Any]) -> None:
    """Refuse a label that is given as a name and as a number: 1 and "1" would be one class."""
    names = {value for value in values if isinstance(value, str)}
    twice = sorted(names & {str(value) for value in values if not isinstance(value, str)})
    if twice:
        raise UserError(f"label {twice[0]!r} in y is a name and a number; give one of the two")


def whole_label(value: Any) -> int:
    """An integer label; fractions and what int64 cannot hold are refused."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"label {value!r} in y: give integers or names") from None
    if whole != value:
        raise UserError(f"label {value!r} in y is not a whole number; give integers or names")
    if not -LARGEST <= whole <= LARGEST:
        raise UserError(f"label {value!r} in y: integers go up to {LARGEST}; give names instead")
    return whole


def is_unlabeled(value: Any) -> bool:
    """-1, None, NaN, an empty string and "unlabeled" all mean: no label."""
    if isinstance(value, str):
        return value in ("", "-1", "unlabeled")
    return value is None or bool(value != value) or bool(value == -1)
