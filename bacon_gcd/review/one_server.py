"""One review server per run, and how a browser is told its secret."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, write_json

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class ServerLock:
    """Held by the server of a run as long as it lives; the system gives it back after a kill."""

    def __init__(self, run: Path, address: str) -> None:
        self.told = run / ".review.json"
        self.lock = FileLock(run / ".review.lock", timeout=0, thread_local=False)
        try:
            self.lock.acquire()
            write_json(self.told, {"address": address})
        except Timeout:
            raise UserError(
                f"{run}: bacon review runs for it already, at {self._address()}; "
                "use that page, or stop it first"
            ) from None
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            # Nothing can be written to such a run, so two servers cannot harm it: look is allowed.

    def _address(self) -> str:
        try:
            return str(read_json(self.told)["address"])
        except (OSError, ValueError, KeyError, TypeError):
            return "an unknown address"

    def release(self) -> None:
        """Another server may take the run."""
        if self.lock.is_locked:
            self.told.unlink(missing_ok=True)
            self.lock.release()


def write_opener(run: Path, address: str) -> Path | None:
    """A page that only its owner can read and that leads to the address; None: not possible here.

    Browsers are started with its path: what stands on a command line every user can see.
    """
    path = run / ".review.html"
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">'
    try:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            private = os.name == "nt" or not os.fstat(handle).st_mode & 0o077
            file.write(page if private else "")
    except OSError:
        return None
    if not private:  # a file system without permissions
        path.unlink(missing_ok=True)
        return None
    return path
