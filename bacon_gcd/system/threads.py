"""Threads of the libraries that compute with matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

FEW_ROWS = 5_000
"""Of so many at most, one thread computes everything: see `threads_for`."""


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """NumPy and SciPy compute on one thread inside; torch does where there are few rows.

    On matrices of a few hundred rows several threads gain nothing, and where other programs are
    busy they wait for each other, after thousands of operations, longer than they compute: classes
    of 77 images took three minutes instead of seconds. The last digits no longer depend on the
    number of cores, either.
    """
    before = torch.get_num_threads()
    with threadpool_limits(limits=1, user_api="blas"):
        torch.set_num_threads(1 if n_rows <= FEW_ROWS else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)
