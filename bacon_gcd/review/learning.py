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
from typing import Any

from bacon_gcd.config import UserError, read_toml
from bacon_gcd.system.text import visible

STOP_SECONDS = 20  # for cleaning up; after that it is ended hard


class Learning:
    """At most one refit of a run. It outlives the page and the server, unless it is stopped."""

    def __init__(self, run: Path) -> None:
        self.run = run.resolve()
        self.process: subprocess.Popen[bytes] | None = None
        self.out: Path | None = None
        self.error = ""

    @property
    def running(self) -> bool:
        """Whether the refit is at work."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Begin, with the corrections that are on disk now."""
        if self.running:
            raise UserError("it is learning already")
        self.out, self.error = free_folder(self.run), ""
        words = ("discover", "--refit", str(self.run), "-o", str(self.out))
        with log_of(self.out).open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and words
                [sys.executable, "-m", "bacon_gcd", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C for the server is not for it
            )

    def stop(self) -> None:
        """End it, because the person asked; nothing half-written stays behind."""
        if self.process is None or not self.running:
            return
        self.process.send_signal(signal.SIGTERM if os.name == "nt" else signal.SIGINT)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._finish("stopped; nothing was written")

    def status(self) -> dict[str, Any]:
        """What the page shows: idle, running, failed, or done with the new run's name."""
        if self.running and self.out is not None:
            return {"is": "running", "line": visible(last_line(log_of(self.out)))}
        if self.process is not None:
            failed = self.process.returncode != 0
            self._finish(self._reason() if failed else "")
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
        self.process, self.out, self.error = None, None, error


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
