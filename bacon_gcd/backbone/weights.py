"""Backbones from their files: which class a name stands for, and what of it is tuned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bacon_gcd.backbone import efficientnet
from bacon_gcd.backbone.base import Backbone, Device
from bacon_gcd.backbone.catalogue import (
    Weights,
    cached,
    find,
    full_name,
    how_to_get,
    library_of,
    parts_of,
)
from bacon_gcd.backbone.edges import with_edges
from bacon_gcd.backbone.joined import join_backbones
from bacon_gcd.backbone.pooled import frozen_whole
from bacon_gcd.backbone.resnet import ResNet
from bacon_gcd.backbone.state import StateError, read_state
from bacon_gcd.backbone.vit import ViT, native_bfloat16
from bacon_gcd.config import UserError, choose

VECTORS = "vectors"  # as the tuned part: nothing of the network, a small tail on its features
MIRRORED = "mirrored"  # the same, on the mean features of an image and its mirror image


def untrained(name: str) -> str:
    """The tuned part that is meant where nothing is trained: the whole network is frozen.

    Features of a convolutional network are averaged over an image and its mirror image. Those of a
    ViT gain so little by that (docs/discovery-evidence.md) that it is not worth twice the time.
    """
    return VECTORS if library_of(name) is None and find(name).vit else MIRRORED


def load_backbone(
    name: str,
    *,
    image_size: int | None = None,
    tuned: str = "block",
    uncropped: bool = False,
    edges: float = 0.0,
    weights: Path | None = None,
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> Backbone:
    """The backbone of this name, from the file `weights` or the cache; never from the network.

    name: of the catalogue, hf:NAME_OR_FOLDER, timm:NAME, or several of these with + between them.
    image_size: the backbone's own unless given.
    tuned: "block", the last one; "conv", the last convolution of a ResNet; a number of blocks of a
    ViT, as text; "vectors", a small tail on the features of the frozen network; or "mirrored", the
    same with features that are averaged over an image and its mirror image. A bfloat16 trunk is
    used only where it is computed natively.
    uncropped: test views are whole images instead of their centers.
    edges: length of the edge histograms beside its features; 0: there are none.
    """
    found = _load(
        name,
        image_size=image_size,
        tuned=tuned,
        weights=weights,
        trunk_dtype=trunk_dtype,
        device=device,
    )
    found.uncropped = uncropped
    return with_edges(found, edges) if edges else found


def _load(
    name: str,
    *,
    image_size: int | None,
    tuned: str,
    weights: Path | None,
    trunk_dtype: torch.dtype,
    device: Device,
) -> Backbone:
    """See `load_backbone`."""
    if tuned == MIRRORED:
        inner = _load(
            name,
            image_size=image_size,
            tuned="block" if library_of(name) else find(name).quick_part,
            weights=weights,
            trunk_dtype=trunk_dtype,
            device=device,
        )
        return frozen_whole(inner, mirrored=True)
    if library_of(name):
        _only_features(name, tuned)
        return _from_library(name, image_size, trunk_dtype=trunk_dtype, device=device)
    entry = find(name)
    size = image_size or entry.image_size
    if len(parts_of(name)) > 1:
        _only_features(name, tuned)
        return _together(name, size, trunk_dtype=trunk_dtype, device=device)
    path = weights or cached(name)
    if path is None:
        raise UserError(how_to_get(entry))
    try:
        state = read_state(path)
        return build(
            entry, state, image_size=size, tuned=tuned, trunk_dtype=trunk_dtype, device=device
        )
    except StateError as error:
        raise UserError(f"{path}: not {name}: {error}") from None


def _together(name: str, image_size: int, *, trunk_dtype: torch.dtype, device: Device) -> Backbone:
    """Several networks, all of them frozen, that see images of one size."""
    parts = [
        load_backbone(
            part, image_size=image_size, tuned=VECTORS, trunk_dtype=trunk_dtype, device=device
        )
        for part in parts_of(name)
    ]
    return join_backbones(full_name(name), parts, device=device)


def _from_library(
    name: str, image_size: int | None, *, trunk_dtype: torch.dtype, device: Device
) -> Backbone:
    """A frozen model of transformers or timm; imported only when it is asked for."""
    if library_of(name) == "hf":
        from bacon_gcd.backbone.hf import load_hf as load
    else:
        from bacon_gcd.backbone.timm_models import load_timm as load
    return load(name, image_size=image_size, trunk_dtype=trunk_dtype, device=device)


def _only_features(name: str, tuned: str) -> None:
    """Refuse to train a part of a network that is frozen as a whole."""
    if tuned not in ("block", "1", VECTORS):  # of such a network they are the same
        raise UserError(f"tuned {tuned!r}: of {name} only block, a small network on its features")


def trunk_dtype(precision: str, *, device: Device = None) -> torch.dtype:
    """The trunk's number type: float32, bfloat16, or auto, which is bfloat16 where it is native."""
    choose("trunk precision", precision, ("auto", "float32", "bfloat16"))
    native = native_bfloat16(device)
    if precision == "bfloat16" and not native:
        raise UserError("trunk precision 'bfloat16': this machine only emulates it; use float32")
    return torch.bfloat16 if native and precision != "float32" else torch.float32


def build(
    entry: Weights,
    state: Mapping[str, Tensor],
    *,
    image_size: int,
    tuned: str = "block",
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> Backbone:
    """The backbone of an entry with these weights."""
    if entry.vit is None and entry.architecture == efficientnet.ARCHITECTURE:
        _only_features(entry.name, tuned)
        return efficientnet.from_state(
            entry.name, state, image_size=image_size, trunk_dtype=trunk_dtype, device=device
        )
    if tuned == VECTORS:
        inner = build(
            entry,
            state,
            image_size=image_size,
            tuned=entry.quick_part,
            trunk_dtype=trunk_dtype,
            device=device,
        )
        return frozen_whole(inner)
    if entry.vit is None:
        return ResNet.from_state(
            entry.name,
            state,
            image_size=image_size,
            tune="block" if tuned == "1" else tuned,
            trunk_dtype=trunk_dtype,
            device=device,
        )
    return ViT.from_state(
        entry.vit,
        state,
        image_size=image_size,
        tuned_blocks=_number_of_blocks(tuned, entry),
        trunk_dtype=trunk_dtype,
        device=device,
    )


def _number_of_blocks(tuned: str, entry: Weights) -> int:
    if tuned == "block":
        return 1
    if not tuned.isdecimal():
        raise UserError(f"tuned {tuned!r}: of {entry.name} choose block, or a number of blocks")
    return int(tuned)
