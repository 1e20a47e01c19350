"""timm:NAME: models of the timm library, with weights that `bacon weights get` keeps."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from bacon_gcd.backbone.base import Device
from bacon_gcd.backbone.pooled import PooledBackbone, Preprocessing
from bacon_gcd.backbone.state import read_state
from bacon_gcd.config import UserError
from bacon_gcd.system.files import cache_dir, sha256_of

PREFIX = "timm:"


def load_timm(
    name: str,
    *,
    image_size: int | None = None,
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> PooledBackbone:
    """The backbone timm:NAME, from this machine; never from the network."""
    path = weights_file(name)
    own = preprocessing(name)
    size = image_size or own.image_size
    return PooledBackbone(
        _load_network(name, path, image_size=size, own_size=own.image_size),
        _pooled,
        Preprocessing(size, own.mean, own.std),
        name=name,
        weights=sha256_of(path)[:16],
        trunk_dtype=trunk_dtype,
        device=device,
    )


def kept_file(name: str) -> Path:
    """Where `bacon weights get` keeps the weights of this name."""
    return cache_dir() / "weights" / "timm" / f"{_plain(name)}.safetensors"


def weights_file(name: str) -> Path:
    """The weights' file, or one line that says how to get it."""
    path = kept_file(name)
    if not path.is_file():
        raise UserError(f"{path}: no such file; get it with: bacon weights get {name}")
    return path


def own_image_size(name: str) -> int:
    """The input size of timm's own description of the model."""
    return preprocessing(name).image_size


def preprocessing(name: str) -> Preprocessing:
    """Size, mean and std as timm describes the model."""
    library = _timm()
    try:
        config = library.get_pretrained_cfg(_plain(name), allow_unregistered=False)
    except RuntimeError:
        raise UserError(f"{name}: timm knows no such model; see timm.list_pretrained()") from None
    return Preprocessing(int(config.input_size[-1]), tuple(config.mean), tuple(config.std))


def _plain(name: str) -> str:
    what = name.removeprefix(PREFIX)
    if not what or "/" in what or what.startswith("."):
        raise UserError(f"{name}: name a model of timm after {PREFIX}")
    return what


def _load_network(name: str, path: Path, *, image_size: int, own_size: int) -> nn.Module:
    """timm's model without its classifier, every weight from the file."""
    if image_size == own_size:
        return _create(name, path)
    try:
        return _create(name, path, img_size=image_size)
    except TypeError:  # a convolutional network takes any size and is not told
        return _create(name, path)


def _create(name: str, path: Path, **options: int) -> nn.Module:
    overlay = {"state_dict": read_state(path)}
    try:
        network: nn.Module = _timm().create_model(
            _plain(name), pretrained=True, pretrained_cfg_overlay=overlay, num_classes=0, **options
        )
    except (RuntimeError, KeyError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path}: timm cannot load it: {reason}") from None
    return network


def _pooled(network: nn.Module, images: Tensor) -> Tensor:
    """(N, D): the features timm's own classifier would see."""
    features: Tensor = network(images)
    return features


def _timm() -> ModuleType:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # the latter: a torchvision that does not fit
        found = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise UserError(f"timm: models need timm: pip install 'bacon-gcd[timm]'{found}") from None
    module: ModuleType = timm
    return module
