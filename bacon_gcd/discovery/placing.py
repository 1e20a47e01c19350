"""One image under a new name: whole or not at all, and never over another file."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from pathlib import Path

from bacon_gcd.system.files import sync_folder

PART = ".bacon-export.part"  # the image that is being copied just now


def place(source: Path, target: Path, how: str) -> None:
    """Copy, hardlink, symlink or move; an OSError where there is a file already."""
    match how:
        case "copy":
            _copy(source, target)
        case "hardlink":
            target.hardlink_to(source.resolve())
        case "symlink":
            target.symlink_to(source)
        case "move":
            move(source, target)


def _copy(source: Path, target: Path) -> None:
    """The whole file under its new name, or nothing; fails where there is one."""
    part = target.with_name(PART)
    part.unlink(missing_ok=True)
    shutil.copy2(source, part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if not filecmp.cmp(source, part, shallow=False):
        raise OSError(errno.EIO, "the copy differs from its source", str(target))
    _rename(part, target)


def _rename(source: Path, target: Path) -> None:
    """Rename that fails where there is a file already; plain rename would replace it."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno == errno.EXDEV or os.path.lexists(target):
            raise
        source.rename(target)  # a file system without hard links
    else:
        source.unlink()


def move(source: Path, target: Path) -> None:
    """Rename; between file systems, and mounts of one, copy, compare and delete."""
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)
        sync_folder(target.parent)
        source.unlink()


def is_ours(source: Path, target: Path, how: str) -> bool:
    """Whether the target is what this item makes of its source."""
    if how == "symlink":
        return target.is_symlink() and target.readlink() == source
    if target.is_symlink() or not target.is_file():
        return False
    if not source.exists():
        return how == "move"
    if how == "hardlink":
        return target.samefile(source)
    return target.samefile(source) or filecmp.cmp(source, target, shallow=False)
