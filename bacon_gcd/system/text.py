"""Text for people: every character is visible, commands can be pasted into a shell."""

from __future__ import annotations

import shlex
import unicodedata

JOINERS = "\u200c\u200d"  # invisible, but scripts and emoji are spelled with them
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str, *, keep: str = "") -> str:
    r"""Text whose every character can be seen: controls, lone surrogates and marks that turn the
    writing direction (as in a file that pretends to be another) show as \u202e.

    keep: controls that stay, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep else _seen(char) for char in text)


def _seen(char: str) -> str:
    if unicodedata.category(char) not in HIDDEN or char in JOINERS:
        return char
    return f"\\u{ord(char):04x}"


def count(number: int, one: str, many: str | None = None) -> str:
    """3 images, 1 image, no images."""
    several = many or f"{one}s"
    return f"{number:,} {one if number == 1 else several}" if number else f"no {several}"


def command(*words: object) -> str:
    """A command as a person can paste it: names with blanks or quotes are quoted."""
    return shlex.join(str(word) for word in words)
