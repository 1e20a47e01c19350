"""Several processes that compute one thing together: torch.distributed in a few words.

All processes run the same program on the same inputs. What is large is shared out (`share`), and
its results are brought together (`gather_rows`, `add_up`), so that every process goes on with the
same numbers. Every process must reach each of these calls, in the same order; `alone` is for what
only one of them does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from bacon_gcd.config import UserError, one_line
from bacon_gcd.system.launch import (
    AgreedError,
    launched_number,
    n_launched,
    number_on_machine,
)

TIMEOUT = timedelta(minutes=30)  # for one that hangs; one that ends is noticed at once
P = ParamSpec("P")
R = TypeVar("R")
_alone: ContextVar[bool] = ContextVar("alone", default=False)


class LostProcessError(UserError):
    """Another process of the run ended, or does not answer."""


def join(device: torch.device) -> None:
    """Connect the processes that torchrun started; does nothing for a single one."""
    if n_launched() == 1 or dist.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        store, which, size = next(rendezvous("env://", timeout=TIMEOUT))
        # Processes that torchrun starts again find the same store, with addresses of those before.
        turn = (store.add("bacon_gcd/joined", 1) - 1) // size
        store = PrefixStore(f"bacon_gcd/{turn}", store)
        dist.init_process_group(backend, store=store, rank=which, world_size=size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise LostProcessError(f"the processes cannot be connected: {one_line(error)}") from None


def leave() -> None:
    """Disconnect, where connected."""
    if dist.is_initialized():
        dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """The GPU of this process, where each has its own; other devices are shared."""
    if device.type == "cuda" and n_launched() > 1:
        return torch.device("cuda", number_on_machine() % torch.cuda.device_count())
    return device


def n_processes() -> int:
    """How many processes share the work of what comes next."""
    return dist.get_world_size() if dist.is_initialized() and not _alone.get() else 1


def process_number() -> int:
    """Which of them this one is."""
    return dist.get_rank() if n_processes() > 1 else 0


def is_first() -> bool:
    """Whether this is the process that writes: also true where it is the only one."""
    return launched_number() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Inside, this process shares no work: for what the others do not do, or have shared out."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def share(n_rows: int, of: int | None = None) -> slice:
    """The rows of a process, this one unless given; they differ by at most one row."""
    size, which = n_processes(), process_number() if of is None else of
    return slice(n_rows * which // size, n_rows * (which + 1) // size)


def _lost(function: Callable[P, R]) -> Callable[P, R]:
    """A broken connection as one line."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise LostProcessError(
                f"another process of this run ended or does not answer: {one_line(error)}"
            ) from None

    return call


@_lost
def add_up(values: Tensor) -> Tensor:
    """The sum over the processes, in place."""
    if n_processes() > 1:
        dist.all_reduce(values)
    return values


@_lost
def gather_rows(own: Tensor, n_rows: int) -> Tensor:
    """(n_rows, ...) from the share of each process, in their order; without gradient."""
    if n_processes() == 1:
        return own
    shares = [share(n_rows, of) for of in range(n_processes())]
    sizes = [part.stop - part.start for part in shares]
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


@_lost
def gather_facts(facts: Any) -> list[Any]:
    """What each process says, as JSON holds it, in their order."""
    if n_processes() == 1:
        return [facts]
    text = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
    sizes = [text.new_empty(1, dtype=torch.int64) for _ in range(n_processes())]
    dist.all_gather(sizes, sizes[0].new_tensor([len(text)]))
    longest = max(int(size) for size in sizes)
    parts = [text.new_zeros(longest) for _ in sizes]
    dist.all_gather(parts, torch.cat([text, text.new_zeros(longest - len(text))]))
    return [
        json.loads(part[: int(size)].numpy().tobytes())
        for part, size in zip(parts, sizes, strict=True)
    ]


def wait_for_all() -> None:
    """Go on when every process has come here."""
    gather_facts(None)


def any_says(yes: bool) -> bool:
    """Whether at least one process says so: the same answer in all."""
    return any(gather_facts(yes))


@contextmanager
def agreed() -> Iterator[None]:
    """What one process refuses, all refuse: for work in which none waits for another."""
    failed: UserError | None = None
    try:
        yield
    except UserError as error:
        failed = error
    if n_processes() == 1:
        if failed is not None:
            raise failed
        return
    said = gather_facts(None if failed is None else str(failed))
    for which, message in enumerate(said):
        if message is not None:
            raise AgreedError(f"process {which} of {len(said)}: {message}") from None


def refuse_differences(what: str, facts: Any, remedy: str) -> None:
    """Refuse to work together with other facts; one line names the first that differs."""
    said = gather_facts(facts)
    for which, theirs in enumerate(said):
        if theirs != said[0]:
            other = _difference(said[0], theirs)
            raise AgreedError(f"process {which} has {what} unlike process 0: {other}; {remedy}")


def _difference(ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        return f"{names[0]} is {theirs.get(names[0])} instead of {ours.get(names[0])}"
    return f"{theirs} instead of {ours}"
