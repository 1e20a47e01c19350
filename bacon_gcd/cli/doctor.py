"""What this machine offers: versions, threads, bf16, weights, disk, optional parts."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path
from typing import Any

import torch

from bacon_gcd import __version__
from bacon_gcd.backbone.catalogue import CATALOGUE, cached
from bacon_gcd.backbone.vit import native_bfloat16
from bacon_gcd.system.devices import AUTO, available, describe, find_device
from bacon_gcd.system.files import cache_dir

# What needs it -> the module; none of them is required.
OPTIONAL = {
    "weights from the hub": "huggingface_hub",
    "backbones hf:NAME": "transformers",
    "backbones timm:NAME": "timm",
    "TensorBoard logs": "tensorboard",
    "browser tests": "playwright",
}


def examine() -> dict[str, Any]:
    """Facts for `bacon doctor`; nothing is changed or downloaded."""
    return {
        "bacon_gcd": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": describe(find_device(AUTO)),
        "devices": available(),
        "threads": torch.get_num_threads(),
        "bfloat16": "native" if native_bfloat16() else "emulated (slow, not used)",
        "cache": str(cache_dir()),
        "disk free": f"{free_gigabytes(cache_dir()):.1f} GB",
        "weights found": [n for n in CATALOGUE if cached(n)] or "none; try: bacon weights list",
        "optional parts": {
            what: importlib.util.find_spec(module) is not None for what, module in OPTIONAL.items()
        },
    }


def free_gigabytes(folder: Path) -> float:
    """Free space where `folder` is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / 1e9
