"""State dicts out of files of unknown origin: nothing inside such a file is ever executed."""

from __future__ import annotations

import argparse
import hashlib
import io
import pickle  # only for the restricted reader below, which calls nothing the file asks for
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_tensors

State = dict[str, Tensor]

# Training checkpoints keep the network under one of these; DINO's teacher is its better half.
WRAPPERS = ("teacher", "student", "state_dict", "model")
PREFIXES = ("module.", "backbone.")


class StateError(UserError):
    """Tensors that are not those of the network: the caller adds the name of the file."""


def read_state(path: Path) -> State:
    """Tensors by name, from safetensors or a torch file (DINO, DINOv2, torchvision, timm)."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    is_safe = path.suffix == ".safetensors"
    raw = read_tensors(path) if is_safe else _read_torch(path, where=str(path))
    return unwrap(raw, where=str(path))


def read_torch_bytes(data: bytes, *, where: str) -> State:
    """Tensors by name, from the bytes of a file of torch.save."""
    return unwrap(_read_torch(io.BytesIO(data), where=where), where=where)


def unwrap(raw: object, *, where: str) -> State:
    """The network's own tensors: out of a checkpoint's wrapper, without the names' prefixes."""
    for wrapper in WRAPPERS:
        if isinstance(raw, Mapping) and isinstance(raw.get(wrapper), Mapping):
            raw = raw[wrapper]
    if not isinstance(raw, Mapping):
        raise UserError(f"{where}: holds a {type(raw).__name__}, not tensors by name")
    tensors = {str(key): value for key, value in raw.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{where}: holds no tensors; its keys are {_some(map(str, raw))}")
    return {_without_prefixes(key): value for key, value in tensors.items()}


def check_state(state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a state that lacks a tensor or has one of another shape; one line names the first."""
    missing = [key for key in shapes if key not in state]
    if missing:
        raise StateError(f"{len(missing)} of {len(shapes)} tensors are missing: {_some(missing)}")
    wrong = [
        f"{key} is {tuple(state[key].shape)} instead of {tuple(shape)}"
        for key, shape in shapes.items()
        if tuple(state[key].shape) != tuple(shape)
    ]
    if wrong:
        raise StateError(
            f"{len(wrong)} of {len(shapes)} tensors have a wrong shape: {_some(wrong)}"
        )


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Short hash of names, shapes, number types and values; the order of the names is free."""
    whole = hashlib.sha256()
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        whole.update(f"{key} {tuple(tensor.shape)} {tensor.dtype};".encode())
        whole.update(tensor.flatten().view(torch.uint8).numpy().data)
    return whole.hexdigest()[:16]


def read_plain_pickle(data: bytes, *, where: str) -> State:
    """A state dict that was pickled without torch.save; any other global is refused by name."""
    try:
        raw = _PlainUnpickler(io.BytesIO(data)).load()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:
        raise UserError(f"{where}: not a plain state dict: {_first_line(error)}") from None
    return unwrap(raw, where=where)


class _PlainUnpickler(pickle.Unpickler):
    """Knows three names: an ordered dict, torch's tensor rebuild, and a storage read safely."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
            ("torch.storage", "_load_from_bytes"): _storage_from_bytes,
        }
        if (module, name) not in allowed:
            raise UserError(f"asks for {module}.{name}, which a state dict has no use for; refused")
        return allowed[module, name]


def _storage_from_bytes(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _read_torch(source: Path | io.BytesIO, *, where: str) -> object:
    # DINO's full checkpoints also hold the training options, an inert Namespace.
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is odd about a file is our one line to say
            return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # whose own text is about options of torch
        raise UserError(
            f"{where}: not a file of torch.save, or it holds more than tensors"
        ) from None
    except Exception as error:
        reason = _first_line(error)
        raise UserError(f"{where}: not a plain torch state dict: {reason}") from None


def _without_prefixes(key: str) -> str:
    for prefix in PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
