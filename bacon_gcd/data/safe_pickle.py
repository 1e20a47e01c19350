"""Integer arrays out of pickles made by others, without running anything that is inside them.

CIFAR's official batches and the authors' index files are pickles. A pickle names functions to
call; here every name is replaced by a small class of our own or refused, so that not even
numpy's own reconstruction code sees bytes we do not trust.
"""

from __future__ import annotations

import io
import pickle  # only the restricted unpickler below is used
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError

IntArray = npt.NDArray[np.int64]
MAX_BYTES = 2**30  # of a file: CIFAR's largest has 155 MB


def read_pickle(path: Path) -> dict[str, Any]:
    """A pickled dict of plain values and integer arrays (CIFAR's batches), keys as text."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; a part of CIFAR is missing")
    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"{path}: {path.stat().st_size / 1e9:.1f} GB, too large for CIFAR")
    value = _load(path.read_bytes(), path)
    if not isinstance(value, dict):
        raise UserError(f"{path}: a {type(value).__name__} where a CIFAR batch has a dict")
    return {_text(key): _plain(item, path) for key, item in value.items()}


def read_torch_array(path: Path) -> IntArray:
    """The integer array that `torch.save` wrote as a zip file (the authors' index files)."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(inside) != 1:
                raise UserError(f"{path}: not a file of torch.save, it holds no data.pkl")
            member = archive.getinfo(inside[0])
            if member.file_size > MAX_BYTES:
                raise UserError(f"{path}: {member.file_size / 1e9:.1f} GB, too large for a list")
            value = _load(archive.read(member), path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UserError:
        raise
    except Exception:  # damaged, encrypted, an unknown compression: any of zipfile's errors
        raise UserError(f"{path}: not a zip file of torch.save, or damaged") from None
    if not isinstance(value, _Array):
        raise UserError(f"{path}: a {type(value).__name__} where a numpy array is expected")
    array: IntArray = _plain(value, path).astype(np.int64)
    return array


def _load(data: bytes, path: Path) -> Any:
    try:
        # latin1 keeps the bytes of Python 2 strings, in which CIFAR's pixels are stored.
        return _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can fail in any way; none of them is ours
        raise UserError(f"{path}: cannot be read safely: {error}") from None


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _plain(value: Any, path: Path) -> Any:
    if not isinstance(value, _Array):
        return value
    try:
        return value.build()
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged array: {error}") from None


class _Dtype:
    """Replaces numpy.dtype: an integer type and its byte order."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name, self.order = _text(name), "|"
        if self.name not in {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"}:
            raise pickle.UnpicklingError(f"arrays of type {self.name!r} are not needed here")

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])


class _Array:
    """Replaces numpy.ndarray: keeps what the pickle says, builds the array afterwards."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def build(self) -> npt.NDArray[Any]:
        """The array, checked: sizes that do not fit the bytes raise ValueError."""
        _, shape, dtype, fortran, raw = self.state
        data = raw.encode("latin1") if isinstance(raw, str) else raw
        flat = np.frombuffer(data, dtype=np.dtype(dtype.order + dtype.name))
        return flat.reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(raw: Any, dtype: _Dtype, shape: Any, order: str) -> _Array:
    array = _Array()
    array.state = (1, shape, dtype, order == "F", raw)
    return array


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not needed here")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


_REPLACEMENTS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # numpy 2
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,  # the same in pickle protocol 5
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,  # of an empty array
}


class _Unpickler(pickle._Unpickler):
    """The one in Python: the one in C reserves as much memory as a number in the file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        """Our replacement of the few names the formats use; anything else is refused."""
        try:
            return _REPLACEMENTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}; refused") from None
