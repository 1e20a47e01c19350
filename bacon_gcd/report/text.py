"""Text that is safe to show: no markup, no folders of the machine."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from markupsafe import Markup, escape

QUOTED_PATH = re.compile(r"""(['"])((?:/|[A-Za-z]:[\\/]|\\\\).*?)\1""")
BARE_PATH = re.compile(r"(?<![\w.:/~<…-])(?:/[^\s/'\"<>]+|[A-Za-z]:[\\/][^\s'\"<>]*)[^\s'\"<>,;)]*")


def without_folders(text: str) -> str:
    """The same text with every absolute path cut to its last name: …/photos."""
    if _is_absolute(text):
        return _last_name(text)
    quoted = QUOTED_PATH.sub(lambda m: f"{m[1]}{_last_name(m[2])}{m[1]}", text)
    return BARE_PATH.sub(lambda m: _last_name(m[0]), quoted)


def _is_absolute(text: str) -> bool:
    return "\n" not in text and (
        PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
    )


def _last_name(path: str) -> str:
    return f"…/{PureWindowsPath(path).name}"  # takes both kinds of slashes


def breakable(name: object) -> Markup:
    """A name that may be broken between its words, also where these are joined by underscores."""
    return Markup(re.sub(r"([_-])(?=[^_-])", r"\1<wbr>", str(escape(name))))  # noqa: S704


def script_json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)  # noqa: S704
