"""hf:NAME_OR_FOLDER: vision models of the transformers library, from a folder with safetensors.

DINOv2, DINOv3, ViT and the vision parts of CLIP and SigLIP. Input size, mean and std are the
model's own. No code that comes with a model is run, and nothing but safetensors is read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from bacon_gcd.backbone.base import Color, Device
from bacon_gcd.backbone.pooled import PooledBackbone, Preprocessing, check_patch
from bacon_gcd.config import UserError
from bacon_gcd.system.files import cache_dir, digest, read_json, sha256_of

PREFIX = "hf:"
CONFIG = "config.json"
PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = (
    "tokenizer*.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
)
FILES = (CONFIG, *PREPROCESSORS, *TOKENIZER_FILES, "*.safetensors", "*.safetensors.index.json")
VISION_PARTS = ("vision_model", "vision_tower")  # of models that read text too
BYTE_SCALE = 1 / 255


def load_hf(
    name: str,
    *,
    image_size: int | None = None,
    trunk_dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> PooledBackbone:
    """The backbone hf:NAME_OR_FOLDER, from this machine; never from the network."""
    folder = folder_of(name)
    network = _load_network(name, folder)
    own_size = getattr(network.config, "image_size", None)
    seen = preprocessing(folder, own_size)
    if image_size is not None:
        seen = Preprocessing(image_size, seen.mean, seen.std)
    check_patch(name, seen.image_size, getattr(network.config, "patch_size", None))
    resized = own_size is not None and seen.image_size != own_size
    return PooledBackbone(
        network,
        functools.partial(_pooled, interpolate=resized),
        seen,
        name=full_name(name),
        weights=weights_digest(folder),
        trunk_dtype=trunk_dtype,
        device=device,
    )


def full_name(name: str) -> str:
    """The name with the whole path of a folder, so that it means the same from everywhere."""
    local = Path(name.removeprefix(PREFIX)).expanduser()
    return f"{PREFIX}{local.resolve()}" if local.is_dir() else name


def kept_folder(name: str) -> Path:
    """Where `bacon weights get` keeps the model of this name."""
    return cache_dir() / "weights" / "hf" / name.removeprefix(PREFIX).replace("/", "--")


def folder_of(name: str) -> Path:
    """The folder that a name means: itself, or what was fetched under that name before."""
    found = find_folder(name)
    if found is None:
        get = f"; get it with: bacon weights get {name}" if can_be_fetched(name) else ""
        raise UserError(f"{name}: no such folder, nor a model that was fetched before{get}")
    _refuse_incomplete(found)
    return found


def find_folder(name: str) -> Path | None:
    """The same without a look into it; None if there is nothing."""
    what = name.removeprefix(PREFIX)
    if not what:
        raise UserError(f"{name}: name a model of the Hugging Face hub or a folder after hf:")
    folders = (Path(what).expanduser(), kept_folder(name))
    found = next((folder.resolve() for folder in folders if folder.is_dir()), None)
    return found or (_in_the_hubs_cache(what) if can_be_fetched(name) else None)


def can_be_fetched(name: str) -> bool:
    """Whether the name may be one of the hub's, OWNER/NAME, and not only a path."""
    what = name.removeprefix(PREFIX)
    return what.count("/") <= 1 and not what.startswith(("/", ".", "~"))


def _in_the_hubs_cache(what: str) -> Path | None:
    """What other programs fetched with the hub's own library; no network."""
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(what, local_files_only=True))
    except Exception:  # no such library, no such model, or a name the hub would not allow
        return None
    return folder if any(folder.glob("*.safetensors")) else None


def _refuse_incomplete(folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: no {CONFIG}; a folder as transformers saves it is needed")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{folder}: no .safetensors file, and nothing else is read; "
            "save the model again with transformers' save_pretrained"
        )
    if not any((folder / file).is_file() for file in PREPROCESSORS):
        raise UserError(f"{folder}: no {PREPROCESSORS[0]}, which says how images are normalized")


def own_image_size(name: str) -> int:
    """The input size that the model's own files name."""
    folder = folder_of(name)
    config = _read(folder / CONFIG)
    vision = config.get("vision_config")
    return preprocessing(
        folder, (vision if isinstance(vision, Mapping) else config).get("image_size")
    ).image_size


def preprocessing(folder: Path, model_size: object) -> Preprocessing:
    """Size, mean and std of the folder's preprocessor; the size may be the model's instead."""
    path = next(folder / file for file in PREPROCESSORS if (folder / file).is_file())
    values = _read(path)
    values = values.get("image_processor", values)
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: not the preprocessing of images")
    cropped = values.get("do_center_crop", True) and values.get("crop_size")
    sides = [_side(each) for each in (cropped, values.get("size"), model_size)]
    size = next((side for side in sides if side), None)
    if size is None:
        raise UserError(f"{path}: names no square image size")
    if abs(float(values.get("rescale_factor", BYTE_SCALE)) - BYTE_SCALE) > 1e-6:
        raise UserError(f"{path}: rescale_factor {values['rescale_factor']} is not 1/255")
    if not values.get("do_normalize", True):
        return Preprocessing(size, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Preprocessing(size, *(_color(values, key, path) for key in ("image_mean", "image_std")))


def _side(value: object) -> int | None:
    """The side of a square, as the several versions of preprocessors write it."""
    if isinstance(value, Mapping):
        if value.get("height") != value.get("width"):
            return None
        value = value.get("height", value.get("shortest_edge"))
    if isinstance(value, list | tuple) and len(set(value)) == 1:
        value = value[0]
    return value if isinstance(value, int) and value > 0 else None


def _color(values: Mapping[str, Any], key: str, path: Path) -> Color:
    try:
        red, green, blue = (float(value) for value in values[key])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: {key} is {values.get(key)!r}, not three numbers") from None
    if key == "image_std" and min(red, green, blue) <= 0:
        raise UserError(f"{path}: {key} is {values[key]!r}; it must be above zero")
    return red, green, blue


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: not the settings of a model")
    return values


def weights_digest(folder: Path) -> str:
    """Identifies the weights and the shape of the model, whichever version of the library reads."""
    config = _read(folder / CONFIG)
    for key in ("transformers_version", "_name_or_path"):
        config.pop(key, None)
    return digest(config, [sha256_of(file) for file in sorted(folder.glob("*.safetensors"))])


def _load_network(name: str, folder: Path) -> nn.Module:
    """The part that reads images, with every weight from the folder."""
    library = transformers()
    try:
        with quiet(library):
            network, report = library.AutoModel.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype=torch.float32,
            )
    except Exception as error:  # one of a dozen types, by version of the library
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{folder}: transformers cannot load it: {reason}") from None
    part = next((part for part in VISION_PARTS if hasattr(network, part)), None)
    tower: nn.Module = getattr(network, part) if part else network
    if part is None and network.main_input_name != "pixel_values":
        raise UserError(f"{name}: a {type(network).__name__} does not read images")
    _drop_classification_pooler(tower)
    ours = set(tower.state_dict())
    prefix = f"{part}." if part else ""
    missing = [k for k in report["missing_keys"] if k.removeprefix(prefix) in ours]
    if missing:
        raise UserError(f"{folder}: {len(missing)} weights are missing, first {missing[0]}")
    return tower


def _drop_classification_pooler(network: nn.Module) -> None:
    """Without ViT's dense layer with tanh, made for one task and often not in the file."""
    if hasattr(getattr(network, "pooler", None), "dense"):
        network.pooler = None  # type: ignore[assignment]


def _pooled(network: nn.Module, images: Tensor, *, interpolate: bool) -> Tensor:
    """(N, D): what the model itself pools, otherwise CLS, otherwise the mean over positions."""
    options = {}
    if interpolate and "interpolate_pos_encoding" in inspect.signature(network.forward).parameters:
        options["interpolate_pos_encoding"] = True
    output = network(pixel_values=images, **options)
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)
    last: Tensor = output.last_hidden_state
    if last.ndim == 4:
        return last.mean(dim=(2, 3))
    has_cls = any(key.endswith("cls_token") for key, _ in network.named_parameters())
    return last[:, 0] if has_cls else last.mean(dim=1)


def transformers() -> ModuleType:
    """The library; one line where it is not installed."""
    try:
        import transformers as library
    except ImportError:
        raise UserError("hf: models need transformers: pip install 'bacon-gcd[hf]'") from None
    module: ModuleType = library
    return module


@contextmanager
def quiet(library: ModuleType) -> Iterator[None]:
    """Neither reports nor bars from the library: a bad folder is one line of ours."""
    logging = library.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
