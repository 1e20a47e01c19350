"""Training state as safetensors + JSON, written so that a kill at any byte loses nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from bacon_gcd.config import UserError, one_line
from bacon_gcd.system.files import naming, read_json, sha256_of, sync_folder, write_json

TENSORS, MANIFEST = "state.safetensors", "manifest.json"
MAX_STEPS = 10**9  # of an epoch


@dataclass(frozen=True)
class Manifest:
    """manifest.json of a checkpoint."""

    sha256: str
    facts: dict[str, Any]


def checkpoint_number(epoch: int, step: int) -> int:
    """A number that grows with the position in the run."""
    return epoch * MAX_STEPS + step


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
    try:
        with naming(final / TENSORS):
            _write(part, tensors, facts)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync_folder(folder)
    for old in checkpoints_in(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def _write(part: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    try:
        save_file({name: _plain(tensor) for name, tensor in tensors.items()}, part / TENSORS)
    except SafetensorError as error:  # how safetensors reports a full disk
        raise UserError(f"{part / TENSORS}: cannot be written: {one_line(error)}") from None
    _sync_file(part / TENSORS)
    write_json(part / MANIFEST, {"sha256": sha256_of(part / TENSORS), "facts": dict(facts)})


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    numbered = [p for p in folder.glob("step-*") if p.name.removeprefix("step-").isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name.removeprefix("step-")))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of one checkpoint, after checking that not a byte is missing or changed."""
    try:
        manifest: Manifest = read_json(path / MANIFEST, Manifest, what="a checkpoint's manifest")
        data = (path / TENSORS).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: not a complete checkpoint: {error}") from None
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise UserError(f"{path / TENSORS}: damaged, its checksum is not the recorded one")
    try:
        return load(data), manifest.facts
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path / TENSORS}: not a safetensors file: {one_line(error)}") from None


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; leftovers of a killed write are removed.

    None if there are none at all; where all are damaged, nothing starts again by itself.
    """
    for part in folder.glob(".step-*.part"):
        shutil.rmtree(part, ignore_errors=True)
    stored = checkpoints_in(folder)
    reasons = []
    for path in reversed(stored):
        try:
            load_checkpoint(path)
        except UserError as error:
            reasons.append(str(error))
            continue
        return path
    if stored:
        raise UserError(
            f"{folder}: none of {len(stored)} checkpoints can be used, the newest because: "
            f"{reasons[0]}; delete the folder to train from the start"
        )
    return None


def optimizer_tensors(optimizers: Mapping[str, torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Every optimizer's memory under flat names: optimizer/<group>/<parameter>/<key>."""
    return {
        f"optimizer/{name}/{number}/{key}": torch.as_tensor(value, device="cpu")
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
