"""Locks that end with the process that holds them, and leftovers of processes that were killed.

A draft folder or a part file has a random name and is locked while it is written. One that nobody
holds was left by a process that is gone; a process id would not show that: containers reuse them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout, lock_descriptor

from bacon_gcd.config import UserError

PART, LOCK = ".part", ".lock"


@contextmanager
def locked(path: Path, *, busy: str = "", waiting: str = "") -> Iterator[None]:
    """Hold the lock file `path` while the block runs.

    busy: refuse with this line if another process holds it. Otherwise wait, and say `waiting` once.
    """
    lock = FileLock(path)
    if not path.exists():
        path.touch()  # where no file can be made the lock would be tried for ever
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if busy:
            raise UserError(busy) from None
        sys.stderr.write(f"{waiting}\n" if waiting else "")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """A new hidden folder beside `target`, locked, and removed at the end if it is still there.

    Folders left beside it by killed processes are removed first.
    """
    refuse_nameless(target)
    with _folder_for(target):
        remove_drafts(target)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}{PART}")
        lock = _lock_file(draft)
        try:
            lock.touch()
        except OSError as error:  # told of what was asked for, not of a name nobody has heard of
            raise type(error)(error.errno, error.strerror, str(target)) from error
        with locked(lock):
            try:
                draft.mkdir()
                yield draft
            finally:
                shutil.rmtree(draft, ignore_errors=True)
                lock.unlink(missing_ok=True)


@contextmanager
def _folder_for(target: Path) -> Iterator[None]:
    """The folders above `target`; those that had to be made go again if nothing came into them."""
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{target}: {error.filename} is a file, not a folder") from None
    try:
        yield
    finally:
        with suppress(OSError):  # it holds something
            for folder in made:
                folder.rmdir()


def refuse_nameless(path: Path) -> None:
    """Refuse `.` and `/`: nothing can be written beside them under another name."""
    if not path.name:
        raise UserError(f"{str(path)!r}: name a file or a folder that can be made")


def _lock_file(draft: Path) -> Path:
    return draft.with_name(draft.name + LOCK)


def remove_drafts(target: Path) -> None:
    """Remove draft folders of any name beside `target` whose writer is gone.

    Without a lock file beside it a folder is only known to be a draft by the name of `target`.
    """
    for entry in _listed(target.parent, f"{PART}{LOCK}"):
        _remove_unheld(target.with_name(entry.removesuffix(LOCK)))
    for entry in _listed(target.parent, PART, prefix=f".{target.name}."):
        draft = target.with_name(entry)
        if draft.is_dir() and not _lock_file(draft).exists():
            shutil.rmtree(draft, ignore_errors=True)


def _remove_unheld(draft: Path) -> None:
    lock = _lock_file(draft)
    try:
        with locked(lock, busy="its writer is alive"):
            shutil.rmtree(draft, ignore_errors=True)
            lock.unlink(missing_ok=True)
    except (UserError, OSError):  # alive, or not ours to remove
        return


def is_being_written(target: Path) -> bool:
    """Whether a live process has a draft of `target`."""
    remove_drafts(target)
    return bool(_listed(target.parent, PART, prefix=f".{target.name}."))


@contextmanager
def part_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new hidden file beside `path`, open and locked, and removed if it is still there."""
    refuse_nameless(path)
    remove_parts(path.parent, path.name)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}{PART}")
    try:
        with part.open("xb") as file:
            _lock(file)
            yield part, file
    finally:
        part.unlink(missing_ok=True)


def remove_parts(folder: Path, name: str = "") -> None:
    """Remove part files (of `name`, or of any file in the folder) whose writer is gone."""
    for entry in _listed(folder, PART, prefix=f".{name}." if name else "."):
        part = folder / entry
        try:
            with part.open("r+b") as file:
                if _lock(file):
                    part.unlink(missing_ok=True)
        except OSError:  # a draft folder, already gone, or not ours to remove
            continue


def _lock(file: BinaryIO) -> bool:
    """Lock an open file; False if it is held, or where the file system knows no locks."""
    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError:
        return False


def _listed(folder: Path, suffix: str, *, prefix: str = ".") -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names are all that is wanted)
    except OSError:
        return []
    return sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix))
