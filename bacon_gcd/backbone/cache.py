"""What the cache holds: banks of tokens and weights, with their sizes; and removing them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from bacon_gcd.backbone.bank import LOCK, banks_dir, only_writer
from bacon_gcd.backbone.journal import read_journal
from bacon_gcd.config import UserError, choose
from bacon_gcd.system.files import cache_dir

BANKS, WEIGHTS, ALL = "banks", "weights", "all"
REMOVED = ".removed-"  # what a folder is called while it is being deleted


@dataclass(frozen=True)
class Stored:
    """One bank, or the weights of one backbone."""

    kind: str
    """banks or weights."""
    name: str
    paths: tuple[Path, ...]
    n_bytes: int
    about: str
    """What it is, for people."""


def stored(what: str = ALL) -> list[Stored]:
    """Everything of a kind that is in the cache, or the one thing of this name."""
    everything = [*_banks(), *_weights()]
    if what == ALL:
        return everything
    if what in (BANKS, WEIGHTS):
        return [each for each in everything if each.kind == what]
    choose("part of the cache", what, (BANKS, WEIGHTS, ALL, *(each.name for each in everything)))
    return [each for each in everything if each.name == what]


def remove(entries: Sequence[Stored]) -> list[Stored]:
    """Delete these; what another process is filling stays and is returned."""
    for leftover in banks_dir().glob(f"{REMOVED}*"):  # of a removal that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    return [each for each in entries if not _remove(each)]


def _remove(entry: Stored) -> bool:
    try:
        if entry.kind == BANKS:
            return _remove_bank(entry.paths[0])
        for path in entry.paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{entry.paths[0]}: cannot be removed: {error.strerror}") from None
    return True


def _remove_bank(folder: Path) -> bool:
    """Delete a bank's folder, unless its lock is taken; False then."""
    aside = folder.with_name(f"{REMOVED}{folder.name}")
    try:
        with only_writer(folder, wait=False):
            folder.rename(aside)  # at once: a kill leaves no half bank under its own name
    except Timeout:
        return False
    shutil.rmtree(aside)
    return True


def _banks() -> Iterator[Stored]:
    for folder in sorted(banks_dir().glob("*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield Stored(BANKS, folder.name, (folder,), _size(folder), _about_bank(folder))


def _about_bank(folder: Path) -> str:
    if _is_locked(folder):
        return "being filled"
    try:
        journal = read_journal(folder)
    except UserError:
        return "damaged, or of another version"
    done = "" if journal.complete(journal.checksums) else ", unfinished"
    return f"{journal.n_images} images, {len(journal.checksums)} views, {journal.backbone}{done}"


def _is_locked(folder: Path) -> bool:
    if not (folder / LOCK).exists():
        return False
    try:
        with only_writer(folder, wait=False):
            return False
    except Timeout:
        return True
    except UserError:  # a folder that cannot be written to is not being filled
        return False


def _weights() -> Iterator[Stored]:
    """Single files with their records, and the folders of models of transformers."""
    folder = cache_dir() / "weights"
    for library in ("", "timm"):
        for file in sorted((folder / library).glob("*.safetensors")):
            name = f"{library}:{file.stem}" if library else file.stem
            paths = (file, file.with_suffix(".json"))
            yield Stored(WEIGHTS, name, paths, sum(map(_size, paths)), "weights")
    for model in sorted((folder / "hf").glob("*/config.json")):
        name = f"hf:{model.parent.name.replace('--', '/')}"
        yield Stored(WEIGHTS, name, (model.parent,), _size(model.parent), "weights")


def _size(path: Path) -> int:
    """Bytes of a file, or of everything in a folder; 0 if it is gone."""
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path.stat().st_size
    except FileNotFoundError:
        return 0
