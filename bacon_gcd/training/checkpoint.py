"""Training state as safetensors + JSON, written so that a kill at any byte loses nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save_file
from torch import Tensor

from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, sha256_of, sync_folder, write_json

TENSORS, MANIFEST = "state.safetensors", "manifest.json"


def save_checkpoint(
    folder: Path, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, keep: int
) -> Path:
    """Write checkpoint `number` and drop all but the newest `keep`.

    Everything goes into a hidden folder first; the manifest with the checksum is written last and
    one rename makes the checkpoint visible, so a visible checkpoint is a complete one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, part = folder / f"step-{number:08d}", folder / f".step-{number:08d}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    save_file({name: _plain(tensor) for name, tensor in tensors.items()}, part / TENSORS)
    _sync_file(part / TENSORS)
    write_json(part / MANIFEST, {"sha256": sha256_of(part / TENSORS), "facts": dict(facts)})
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    sync_folder(folder)
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
    return final


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of one checkpoint, after checking that not a byte is missing or changed."""
    try:
        manifest = read_json(path / MANIFEST)
        data = (path / TENSORS).read_bytes()
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: not a complete checkpoint: {error}") from None
    if sha256_of(path / TENSORS) != manifest["sha256"]:
        raise UserError(f"{path / TENSORS}: damaged, its checksum is not the recorded one")
    return load(data), manifest["facts"]


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; leftovers of a killed write are removed."""
    for part in folder.glob(".step-*.part"):
        shutil.rmtree(part, ignore_errors=True)
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            load_checkpoint(path)
        except UserError:
            continue
        return path
    return None


def optimizer_tensors(optimizers: Mapping[str, torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Every optimizer's memory under flat names: optimizer/<group>/<parameter>/<key>."""
    return {
        f"optimizer/{name}/{number}/{key}": torch.as_tensor(value)
        for name, optimizer in optimizers.items()
        for number, memory in optimizer.state_dict()["state"].items()
        for key, value in memory.items()
        if value is not None
    }


def restore_optimizers(
    optimizers: Mapping[str, torch.optim.Optimizer], tensors: Mapping[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`."""
    memories: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in optimizers}
    for flat, tensor in tensors.items():
        kind, *rest = flat.split("/")
        if kind == "optimizer":
            name, number, key = rest
            memories[name].setdefault(int(number), {})[key] = tensor
    for name, optimizer in optimizers.items():
        state = optimizer.state_dict()
        optimizer.load_state_dict({"state": memories[name], "param_groups": state["param_groups"]})


def _plain(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU; safetensors refuses tensors that share memory."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
