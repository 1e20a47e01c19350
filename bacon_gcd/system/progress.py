"""Progress with time left, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from bacon_gcd.system.launch import speaks

QUIET_SECONDS = 2.0  # nothing is shown for work that is over sooner
LINE_SECONDS = 15.0  # how often a log file gets a line


class Advance(Protocol):
    """Call it with the number of units done since the last call, and what to show beside them."""

    def __call__(self, done: float = 1, note: str = "") -> None:
        """Count `done` more units."""


_later: ContextVar[float] = ContextVar("later", default=0.0)


@contextmanager
def followed_by(seconds: float) -> Iterator[None]:
    """Inside, the time left is that of the whole command: `seconds` of other work come after."""
    before = _later.set(_later.get() + seconds)
    try:
        yield
    finally:
        _later.reset(before)


@contextmanager
def progress(what: str, total: int, *, unit: str = "images") -> Iterator[Advance]:
    """Show `what`, units per second and the time left while the block runs.

    Nothing is shown where there is nothing to do.
    """
    if not speaks() or not total:
        yield no_progress
        return
    shown = _bar(what, total, unit) if sys.stderr.isatty() else _lines(what, total, unit)
    with shown as advance:
        yield advance


def time_left(units: float, speed: float) -> str:
    """How long this many units and what follows them will take, for a person."""
    seconds = units / max(speed, 1e-9) + _later.get()
    return f"{seconds / 60:.0f} min left" if seconds > 100 else f"{seconds:.0f} s left"


def no_progress(done: float = 1, note: str = "") -> None:
    """Show nothing: of several processes, one shows progress."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` and the time that passed while work whose length nobody knows is going on.

    Not around `progress`: there is one bar at a time.
    """
    if not speaks():
        yield
        return
    with _clock(what) if sys.stderr.isatty() else _late_line(what):
        yield


@contextmanager
def _clock(what: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bars.add_task(what, total=None)
        yield


@contextmanager
def _late_line(what: str) -> Iterator[None]:
    """One line, unless the work is over before anybody would wonder."""
    timer = threading.Timer(QUIET_SECONDS, sys.stderr.write, (f"{what} ...\n",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _bar(what: str, total: int, unit: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[note]}"),
    ]
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total, rate="", left="", note="")

        def advance(done: float = 1, note: str = "") -> None:
            finished = bars.tasks[task].completed + done
            speed = finished / max(time.monotonic() - start, 1e-6)
            left = time_left(total - finished, speed)
            bars.update(task, advance=done, rate=f"{speed:.0f} {unit}/s", left=left, note=note)

        yield advance


@contextmanager
def _lines(what: str, total: int, unit: str) -> Iterator[Advance]:
    start = time.monotonic()
    state = {"done": 0.0, "last": start}

    def advance(done: float = 1, note: str = "") -> None:
        state["done"] += done
        now = time.monotonic()
        if now - start < QUIET_SECONDS or now - state["last"] < LINE_SECONDS:
            return
        state["last"] = now
        speed = state["done"] / (now - start)
        left = time_left(total - state["done"], speed)
        line = f"{what}: {state['done']:.0f}/{total} {unit}, {speed:.1f}/s, {left} {note}"
        sys.stderr.write(line.rstrip() + "\n")
        sys.stderr.flush()

    yield advance
