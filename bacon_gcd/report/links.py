"""Links from the page to the original images: relative, and short in the file.

A link is a base, then what the image's id has after its first `skip` folders. One folder of
images needs one base. Links that would name folders of the machine outside the one that report
and images share are left out: the page may be sent to others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bacon_gcd.system.text import visible

BOX = re.compile(r"#\d+,\d+,\d+,\d+$")  # behind the file name of a cut-out image
WHOLE = -1  # skip: nothing of the id is appended


class Base(NamedTuple):
    """Where the file of an id is: `prefix`, then the id without its first `skip` folders."""

    prefix: str
    """Percent-encoded, relative to the report, ends in a slash unless it is the whole link."""
    skip: int


def link_columns(
    ids: Sequence[str],
    rows: Sequence[int],
    file: Callable[[int], Path | None] | None,
    folder: Path | None,
) -> dict[str, list[Any]]:
    """Bases and, for each of these rows, the number of its base; -1 = no link."""
    if file is None or folder is None:
        return {}
    folders = RelativeFolders(folder)
    numbers: dict[Base, int] = {}
    base_of = []
    for row in rows:
        base = base_for(str(ids[row]), folders.link(file(row)))
        base_of.append(-1 if base is None else numbers.setdefault(base, len(numbers)))
    return {"bases": [list(base) for base in numbers], "base": base_of}


class RelativeFolders:
    """Relative paths from one folder, each folder of images looked up once."""

    def __init__(self, start: Path) -> None:
        self.start = _absolute(start)
        self.known: dict[str, str | None] = {}

    def link(self, file: Path | None) -> str | None:
        """The file as seen from the start; None where they share no folder."""
        if file is None:
            return None
        parent, name = os.path.split(file)
        if parent not in self.known:
            self.known[parent] = self._relative(_absolute(parent))
        found = self.known[parent]
        return None if found is None else f"{found}/{name}"

    def _relative(self, parent: str) -> str | None:
        try:
            shared = os.path.commonpath([self.start, parent])
        except ValueError:  # different drives
            return None
        if shared == Path(shared).anchor:  # only the root: the link would spell the whole path
            return None
        return Path(os.path.relpath(parent, self.start)).as_posix()


def _absolute(path: str | Path) -> str:
    """Links are not followed: the browser goes up by names as well."""
    return os.path.normpath(Path(path).absolute())


def base_for(image_id: str, link: str | None) -> Base | None:
    """The base whose prefix and the tail of the id give the link back."""
    if link is None:
        return None
    parts = BOX.sub("", image_id).split("/")
    for skip in range(len(parts)):
        tail = "/".join(parts[skip:])
        if link.endswith(f"/{tail}") and visible(image_id) == image_id and ".." not in parts:
            return Base(_encoded(link[: -len(tail)]), skip)
    return Base(_encoded(link), WHOLE)


def _encoded(path: str) -> str:
    """Percent-encoded, and begun so that no part of it can be taken for a scheme or a host."""
    return "./" + quote(os.fsencode(path))
