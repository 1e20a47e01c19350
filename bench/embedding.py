"""Filling a bank from JPEG files against the bare forward pass: how much of the limit is reached.

python -m bench embedding. Decoding, resizing, writing and checksums are included; the limit is the
trunk alone on pixels that are ready. At least 90 % is the aim.
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
from bench.measure import table

N_IMAGES, SIDE = 192, 500
NAME = "resnet18.pypi_in1k"


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        photos = read_images(plant(Path(folder) / "photos"))
        for size in (128, 224):
            backbone = load_backbone(NAME, image_size=size)
            pixels = np.zeros((PIECE, size, size, 3), dtype=np.uint8)
            trunk_tokens(backbone, pixels)
            start = time.perf_counter()
            for _ in range(N_IMAGES // PIECE):
                trunk_tokens(backbone, pixels)
            bare = N_IMAGES / (time.perf_counter() - start)
            start = time.perf_counter()
            build_bank(
                photos, np.arange(N_IMAGES), backbone, n_views=0, folder=Path(folder) / f"{size}"
            )
            filled = N_IMAGES / (time.perf_counter() - start)
            row = {"px": size, "bare images/s": bare, "bank images/s": filled}
            rows.append(row | {"of the limit": filled / bare, "threads": torch.get_num_threads()})
    print(table(rows))


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
