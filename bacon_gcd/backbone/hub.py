"""Downloads from the Hugging Face hub, and the models that `bacon weights get` keeps from there."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from bacon_gcd.backbone import hf, timm_models
from bacon_gcd.backbone.catalogue import HUB_FILE, library_of
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, sha256_of, write_json
from bacon_gcd.system.locks import draft_folder

Answer = TypeVar("Answer")
RECORD = "bacon.json"


def hub_file(repository: str, file: str, folder: Path, *, name: str, by_hand: str) -> Path:
    """Download one file of a repository; `by_hand` says what to do where that does not work."""
    hub = _hub(name, by_hand)
    return _ask(
        lambda: Path(hub.hf_hub_download(repository, file, local_dir=folder)), hub, name, by_hand
    )


def get_from_library(name: str) -> dict[str, Any]:
    """Download the model hf:NAME or timm:NAME unless it is here; the facts about it."""
    if library_of(name) == "hf":
        if hf.find_folder(name) is None and hf.can_be_fetched(name):
            _get_hf(name)
    elif not timm_models.kept_file(name).is_file():
        _get_timm(name)
    return verify_from_library(name)


def fetched_models() -> list[str]:
    """Names of the models of libraries that are kept in the cache."""
    hf_models = sorted(hf.kept_folder("").glob("*/config.json"))
    timm_files = sorted(timm_models.kept_file("timm:x").parent.glob("*.safetensors"))
    names = [f"{hf.PREFIX}{config.parent.name.replace('--', '/')}" for config in hf_models]
    return names + [f"{timm_models.PREFIX}{file.stem}" for file in timm_files]


def verify_from_library(name: str) -> dict[str, Any]:
    """Load the model and compare it with the record that was made when it was fetched."""
    if library_of(name) == "hf":
        folder = hf.folder_of(name)
        record = folder / RECORD
    else:
        folder = timm_models.weights_file(name)
        record = folder.with_suffix(".json")
    backbone = load_backbone(name)
    known = _recorded(record)
    if known not in (None, backbone.weights):
        raise UserError(
            f"{folder}: changed since it was fetched ({backbone.weights}, its record says "
            f"{known}); delete it and: bacon weights get {name}"
        )
    return {
        "name": name,
        "sha256": backbone.weights,
        "path": str(folder),
        "image_size": backbone.image_size,
        "source": "hub" if known else "put there by hand, no record",
    }


def _get_hf(name: str) -> None:
    """All safetensors and JSON files that are needed, tried before they are kept."""
    repository = name.removeprefix(hf.PREFIX)
    by_hand = "download its folder elsewhere and name it: hf:FOLDER"
    hub, kept = _hub(name, by_hand), hf.kept_folder(name)
    with draft_folder(kept) as folder:
        options = {"local_dir": folder, "allow_patterns": list(hf.FILES)}
        _ask(lambda: hub.snapshot_download(repository, **options), hub, name, by_hand)
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        weights = load_backbone(f"{hf.PREFIX}{folder}").weights
        write_json(folder / RECORD, {"name": name, "weights": weights, "source": "hub"})
        folder.rename(kept)


def _get_timm(name: str) -> None:
    kept = timm_models.kept_file(name)
    timm_models.preprocessing(name)  # refuses a name that timm does not know before the download
    repository = f"timm/{kept.stem}"
    by_hand = f"put {repository}'s {HUB_FILE} at {kept}"
    with draft_folder(kept) as folder:
        file = hub_file(repository, HUB_FILE, folder, name=name, by_hand=by_hand)
        write_json(kept.with_suffix(".json"), {"name": name, "weights": sha256_of(file)[:16]})
        file.replace(kept)


def _recorded(path: Path) -> str | None:
    """The weights' hash when they were fetched; None for a model that was put there by hand."""
    if not path.is_file():
        return None
    try:
        return str(read_json(path)["weights"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not a record of weights; delete it") from None


def _hub(name: str, by_hand: str) -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"{name}: pip install 'bacon-gcd[hub]' first, or {by_hand}") from None
    module: ModuleType = huggingface_hub
    return module


def _ask(request: Callable[[], Answer], hub: ModuleType, name: str, by_hand: str) -> Answer:
    """The hub's answer, or one line."""
    try:
        if not getproxies():
            _look_up(hub.constants.ENDPOINT)
        return request()
    except Exception as error:  # one of a dozen types, by version of the library
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{name}: no answer from the hub ({reason}); {by_hand}") from None


def _look_up(address: str) -> None:
    """Fail at once where there is no network; the hub's own library tries for half a minute."""
    socket.getaddrinfo(urlsplit(address).hostname, None)
