"""Names of files and folders that are safe and different on every system."""

from __future__ import annotations

import unicodedata
from pathlib import Path

MAX_BYTES = 120  # of a name: with a number behind it still far below the 255 of most systems
FORBIDDEN = '<>:"/\\|?*'
RESERVED = {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"
}


def safe_name(text: str) -> str:
    """A name that every system takes as one plain file or folder; may not be unique."""
    text = unicodedata.normalize("NFC", text)
    plain = "".join("_" if _forbidden(char) else char for char in text).strip(" ")
    while len(plain.encode()) > MAX_BYTES:
        plain = plain[:-1]
    plain = plain.rstrip(". ")
    if plain.startswith((".", "-", "~")):  # hidden, or taken for an option or a home folder
        plain = "_" + plain[1:]
    stem = plain.split(".")[0].rstrip(" ").casefold()
    return f"_{plain}" if stem in RESERVED or not plain else plain


def _forbidden(char: str) -> bool:
    """Separators, wildcards, controls, marks that turn the writing direction, lone surrogates."""
    return char in FORBIDDEN or unicodedata.category(char) in {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def unique_name(name: str, taken: set[str], *, suffix: str = "") -> str:
    """The name, numbered before its suffix until it differs from those taken; it is taken then.

    A and a are one name on some systems, so they are here.
    """
    stem, number = name.removesuffix(suffix), 1
    while same_name_key(name) in taken:
        number += 1
        name = f"{stem} ({number}){suffix}"
    taken.add(same_name_key(name))
    return name


def same_name_key(name: str) -> str:
    """Equal for names that some system takes for one: A and a, composed and decomposed."""
    return unicodedata.normalize("NFKC", name).casefold()


def safe_file_name(file: Path) -> str:
    """A safe name that keeps its suffix however long it is."""
    stem, suffix = file.stem, file.suffix
    while len((stem + suffix).encode("utf-8", "replace")) > MAX_BYTES and stem:
        stem = stem[:-1]
    return safe_name(stem + suffix)
