"""The button "Learn from my corrections": a refit in a process of its own, and how it goes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from bacon_gcd.config import UserError, read_toml
from bacon_gcd.system.files import read_json, write_json
from bacon_gcd.system.text import visible

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RECORD = ".refit.json"  # in the run: what is being made of it, and by which process
STOP_SECONDS = 20  # for cleaning up; after that it is ended hard


class Learning:
    """At most one refit of a run. It outlives the page and the server, unless it is stopped.

    The refit's standard error is a log file that is locked through this very handle. So the lock is
    held exactly as long as the process lives, and a server that is started meanwhile knows of it.
    """

    def __init__(self, run: Path) -> None:
        self.run = run.resolve()
        self.process: subprocess.Popen[bytes] | None = None
        self.error = ""
        self.out = self._of_earlier_server()

    def _of_earlier_server(self) -> Path | None:
        """Where a refit writes to that an earlier server started, finished meanwhile or not."""
        try:
            name = read_json(self.run / RECORD)["out"]
            out = self.run.with_name(name) if isinstance(name, str) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return out if out is not None and log_of(out).exists() else None

    @property
    def running(self) -> bool:
        """Whether the refit is at work."""
        if self.process is not None:
            return self.process.poll() is None
        return self.out is not None and is_locked(log_of(self.out))

    def start(self) -> None:
        """Begin, with the corrections that are on disk now."""
        if self.running:
            raise UserError("it is learning already")
        self.out, self.error = free_folder(self.run), ""
        words = ("discover", "--refit", str(self.run), "-o", str(self.out))
        with log_of(self.out).open("wb") as log:
            lock_handle(log.fileno())
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and words
                [sys.executable, "-m", "bacon_gcd", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C for the server is not for it
            )
        write_json(self.run / RECORD, {"out": self.out.name, "process": self.process.pid})

    def stop(self) -> None:
        """End it, because the person asked; nothing half-written stays behind."""
        if not self.running:
            return
        self._signal(signal.SIGTERM if os.name == "nt" else signal.SIGINT)
        if not self._ends_within(STOP_SECONDS):
            self._signal(signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
            self._ends_within(STOP_SECONDS)
        self._finish("stopped; nothing was written")

    def _signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            return
        pid = read_json(self.run / RECORD)["process"]
        if not is_refit(pid, self.run):
            raise UserError("it was started elsewhere and cannot be stopped from here")
        os.kill(pid, number)

    def _ends_within(self, seconds: float) -> bool:
        until = monotonic() + seconds
        while self.running and monotonic() < until:
            sleep(0.05)
        return not self.running

    def status(self) -> dict[str, Any]:
        """What the page shows: idle, running, failed, or done with the new run's name."""
        if self.out is not None and self.running:
            return {"is": "running", "line": visible(last_line(log_of(self.out)))}
        if self.out is not None:
            self._finish("" if self.out in refits_of(self.run) else self._reason())
        if self.error:
            return {"is": "failed", "line": visible(self.error)}
        if (new := self.newest()) is not None:
            return {"is": "done", "line": visible(new.name), "command": _command(new)}
        return {"is": "idle", "line": ""}

    def newest(self) -> Path | None:
        """The last refit of this run that is complete, also one of an earlier server."""
        return max(refits_of(self.run), key=lambda new: number_of(new.name), default=None)

    def _reason(self) -> str:
        line = last_line(log_of(self.out)) if self.out is not None else ""
        return line or "it ended without a word"

    def _finish(self, error: str) -> None:
        if self.out is not None:
            log_of(self.out).unlink(missing_ok=True)
        (self.run / RECORD).unlink(missing_ok=True)
        self.process, self.out, self.error = None, None, error


def lock_handle(handle: int) -> None:
    """Lock an open file; whoever inherits the handle holds the lock too."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock; never where the system has no such locks."""
    if fcntl is None or not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def is_refit(pid: object, run: Path) -> bool:
    """Whether the process is the refit of this run: its id may be another one's by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"--refit" in words and os.fsencode(run) in words


def _command(run: Path) -> str:
    return visible(f"bacon review {shlex.quote(str(run))}")


def log_of(out: Path) -> Path:
    """Where a refit says how it goes: beside the new run, which is not there before it is whole."""
    return out.with_name(f".{out.name}.log")


def last_line(log: Path) -> str:
    """The last line that says something."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def free_folder(run: Path) -> Path:
    """photos -> photos-2 -> photos-3: the first name that no run has, or is being written to."""
    return next(
        new
        for new in _successors(run)
        if not (new.exists() or log_of(new).exists() or any(run.parent.glob(f".{new.name}.*.part")))
    )


def refits_of(run: Path) -> Iterator[Path]:
    """Finished runs beside this one that were learned from its corrections."""
    for new in run.parent.glob("*-*"):
        origin = _learned_from(new)
        if origin is not None and Path(origin).resolve() == run:
            yield new


def _learned_from(run: Path) -> str | None:
    """The `refit` of a run's settings; None for other runs and folders, also damaged ones."""
    try:
        origin = read_toml(run / "config.toml").get("refit")
    except (UserError, OSError):
        return None
    return origin if isinstance(origin, str) else None


def number_of(name: str) -> int:
    """The number at the end of a name, 1 without one."""
    found = re.search(r"-(\d{1,9})$", name)
    return int(found[1]) if found else 1


def _stem(run: Path) -> str:
    """The name without the number that a refit gave it."""
    return re.sub(r"-\d{1,9}$", "", run.name) if _learned_from(run) else run.name


def _successors(run: Path) -> Iterator[Path]:
    stem = _stem(run)
    first = number_of(run.name) + 1 if stem != run.name else 2
    return (run.with_name(f"{stem}-{number}") for number in count(first))
