"""Arrays out of .npy and .npz files of others: nothing is executed, no header is believed."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from bacon_gcd.config import UserError, one_line
from bacon_gcd.system.memory import memory_bytes

Array = npt.NDArray[Any]


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """The array of a .npy file; `mapped`: left on disk until it is looked at."""
    try:
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size, limited=not mapped)
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        return array
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file can fail in any way
        raise UserError(f"{path}: not a file of one plain array: {one_line(error)}") from None


def read_npz(path: Path, wanted: Collection[str]) -> dict[str, Array]:
    """The arrays of a .npz file that have one of the wanted names, in the file's order."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, wanted)
        with np.load(path, allow_pickle=False) as file:
            return {name: np.atleast_1d(file[name]) for name in file.files if name in wanted}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file can fail in any way
        raise UserError(f"{path}: not a file of plain arrays: {one_line(error)}") from None


def _check_members(archive: zipfile.ZipFile, wanted: Collection[str]) -> None:
    total = 0
    for member in archive.infolist():
        if member.filename.removesuffix(".npy") not in wanted:
            continue
        if member.flag_bits & 1:
            raise ValueError(f"{member.filename} is encrypted")
        total += member.file_size
        _check_memory(total)
        with archive.open(member) as file:
            _check_header(cast(BinaryIO, file), member.file_size)


def _check_header(file: BinaryIO, n_bytes: int, *, limited: bool = True) -> None:
    """Refuse an array whose header promises more than the file holds, or Python objects."""
    version = npy_format.read_magic(file)
    readers = {
        (1, 0): npy_format.read_array_header_1_0,
        (2, 0): npy_format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not read")
    shape, _, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    promised, there = math.prod(shape) * dtype.itemsize, n_bytes - file.tell()
    if promised > there:
        raise ValueError(f"its header promises {promised} bytes, {there} are there")
    if limited:
        _check_memory(promised)


def _check_memory(n_bytes: int) -> None:
    if n_bytes > memory_bytes():
        raise ValueError(
            f"{n_bytes / 1e9:.1f} GB of arrays; this machine has {memory_bytes() / 1e9:.1f} GB"
        )
