"""Threads of the libraries that compute with matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """NumPy and SciPy compute on one thread inside; torch keeps its own.

    On matrices of a few hundred rows several threads gain nothing, and where other programs are
    busy they wait for each other longer than they compute. The last digits no longer depend on the
    number of cores, either.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        yield
