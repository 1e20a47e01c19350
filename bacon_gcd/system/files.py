"""Files that are whole or absent: atomic writes, checked reads, hashes, and where the cache is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bacon_gcd.config import UserError, checked_as, one_line
from bacon_gcd.system.locks import draft_folder, is_being_written, part_file

if TYPE_CHECKING:
    from torch import Tensor

Kind = TypeVar("Kind")
DEVICES = Path("/dev")


def cache_dir() -> Path:
    """Where weights and token banks are kept: $BACON_CACHE, else the user's cache folder."""
    named = os.environ.get("BACON_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "bacon_gcd"


def writable(folder: Path) -> bool:
    """Whether files can be made in this folder, or it can be made itself."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def write_atomic(path: Path, data: bytes) -> None:
    """Write so that a kill at any byte leaves the old file or the new one, never a part."""
    if _is_stream(path):
        raise UserError(f"{path}: a device or a pipe, which no file can replace; name another one")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_file(path) as (part, file):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows renames no open file
            part.replace(path)  # still locked elsewhere: nobody takes it for a leftover
    sync_folder(path.parent)


def _is_stream(path: Path) -> bool:
    """Whether it is a device or a pipe, or a name such as /dev/stdout, a link even to a file."""
    special = path.exists() and not path.is_file() and not path.is_dir()
    return special or (path.is_symlink() and path.absolute().parent == DEVICES)


def append_line(path: Path, text: str) -> None:
    """Add one line to a text file; a write that fails names the file."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of the system the name of the file: a write to a full disk has none."""
    try:
        yield
    except OSError as error:
        if isinstance(error, UserError) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the file system into a UserError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        raise UserError(describe(error)) from error


def describe(error: OSError) -> str:
    """File and reason of an error of the file system, in one line."""
    reason = error.strerror or one_line(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(map(str, names))}: {reason}" if names else reason


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """A draft folder that becomes `out` when the block ends well, and vanishes otherwise.

    Errors of the file system become one line; what was at `out` before stays.
    """
    with one_line_errors():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out}: already there; name another folder with -o")
        if is_being_written(out):
            raise UserError(f"{out}: another process is writing it; name another folder with -o")
        with draft_folder(out) as draft:
            yield draft
            if out.exists():
                out.rmdir()
            draft.replace(out)
        sync_folder(out.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut (a no-op where folders cannot be opened)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """JSON, atomic, stable key order, NaN refused."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def read_json(path: Path, kind: type[Kind] | Any = Any, *, what: str = "valid JSON") -> Any:
    """The JSON value in `path` as a `kind`: a dataclass, a TypedDict, dict[str, int], ...

    A file that is not `what` is one line that names it; a missing one is FileNotFoundError.
    """
    try:
        value = json_value(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not {what}: {one_line(error)}") from None
    return value if kind is Any else checked_as(kind, value, where=f"{path}: not {what}")


def json_value(text: bytes | str) -> Any:
    """Plain values from JSON; NaN and infinity, which JSON does not have, are refused."""
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a damaged file is one line."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or one_line(error)}") from None
    except (SafetensorError, ValueError, KeyError, MemoryError) as error:
        raise UserError(f"{path}: not a safetensors file: {one_line(error)[:200]}") from None


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*parts: object) -> str:
    """Short stable hash of plain values (numbers, strings, lists, dicts), for keys and names."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
