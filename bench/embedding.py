"""Filling a bank from JPEG files against the bare forward pass: how much of the limit is reached.

python -m bench embedding. Decoding, resizing, writing and checksums are included; the limit is the
trunk alone on pixels that are ready. At least 90 % is the aim. Both are done in turn, several
times, and the least disturbed of each counts. `at most`: the share that would be reached if nothing
were done beside the trunk but to decode and resize.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.rendering import PIECE, trunk_tokens
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.images import read_images
from bacon_gcd.data.views import test_view
from bench.measure import table

N_IMAGES, SIDE, TURNS = 96, 500, 3
# Backbone, image size and tuned part; the last two are what `bacon discover` does with them.
SETTINGS = (
    ("resnet18.pypi_in1k", 128, "block"),
    ("resnet18.pypi_in1k", 224, "block"),
    ("efficientnet_lite0.pypi_in1k", 224, "mirrored"),
    ("vit_small_patch14_dinov2.pypi_lvd142m", 224, "vectors"),
)


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        photos = read_images(plant(Path(folder) / "photos"))
        for name, size, tuned in SETTINGS:
            backbone = load_backbone(name, image_size=size, tuned=tuned)
            work = {
                "bare": lambda _, b=backbone: bare(b),
                "bank": lambda _, b=backbone: fill(photos, b, Path(tempfile.mkdtemp(dir=folder))),
                "pixels": lambda _, b=backbone: render(photos, b),
            }
            bare(backbone)
            rows.append({"backbone": name, "px": size, **in_turn(work)})
    print(f"{torch.get_num_threads()} threads")
    print(table(rows))


def in_turn(work):
    """Images per second by wall time, and seconds of the processor per image."""
    taken = {name: [] for name in work}
    for turn in range(TURNS):
        for name, each in work.items():
            wall, processor = time.perf_counter(), time.process_time()
            each(turn)
            taken[name].append((time.perf_counter() - wall, time.process_time() - processor))
    best = {
        name: [min(times) / N_IMAGES for times in zip(*t, strict=True)] for name, t in taken.items()
    }
    return {
        "bare images/s": 1 / best["bare"][0],
        "bank images/s": 1 / best["bank"][0],
        "of the limit": best["bare"][0] / best["bank"][0],
        "of the limit, processor time": best["bare"][1] / best["bank"][1],
        "at most": best["bare"][1] / (best["bare"][1] + best["pixels"][1]),
    }


def bare(backbone):
    pixels = np.zeros((PIECE, backbone.image_size, backbone.image_size, 3), dtype=np.uint8)
    for _ in range(N_IMAGES // PIECE):
        trunk_tokens(backbone, pixels)


def render(photos, backbone):
    for row in range(N_IMAGES):
        test_view(photos.image(row), backbone.image_size)


def fill(photos, backbone, folder):
    build_bank(photos, np.arange(N_IMAGES), backbone, n_views=0, folder=folder)


def plant(folder: Path) -> Path:
    """Photographs of 500 x 375 pixels: smooth, as photographs are."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(N_IMAGES):
        small = Image.fromarray(rng.integers(256, size=(12, 16, 3), dtype=np.uint8))
        small.resize((SIDE, 3 * SIDE // 4), Image.BICUBIC).save(folder / f"{number:04d}.jpg")
    return folder


if __name__ == "__main__":
    main()
