"""How long `bacon discover --features --effort quick` takes as the number of images grows."""

import math
import tempfile
import time
from pathlib import Path

import numpy as np

from bacon_gcd.discovery.pipeline import discover
from bench.measure import table

SIZES = (10_000, 30_000, 100_000)
N_CLASSES, N_KNOWN, DIM = 40, 20, 64


def main():
    rows = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            images, features = plant(Path(folder), size)
            start = time.perf_counter()
            discover(images, Path(folder) / "run", features=features, effort="quick")
            taken = time.perf_counter() - start
        before = rows[-1] if rows else None
        exponent = (
            math.log(taken / before["s"]) / math.log(size / before["images"]) if before else "-"
        )
        rows.append({"images": size, "s": taken, "ms each": 1000 * taken / size, "power": exponent})
    print(table(rows))


def plant(folder: Path, size: int) -> tuple[Path, Path]:
    """Tiny pictures with vectors around 40 centers, long-tailed; 20 classes have a few labels."""
    rng = np.random.default_rng(0)
    share = 0.9 ** np.arange(N_CLASSES)
    classes = rng.choice(N_CLASSES, size, p=share / share.sum())
    centers = rng.normal(size=(N_CLASSES, DIM))
    vectors = centers[classes] + 0.8 * rng.normal(size=(size, DIM))
    labeled = (classes < N_KNOWN) & (rng.random(size) < 0.1)
    pictures = rng.integers(256, size=(size, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "images.npz", images=pictures, labels=np.where(labeled, classes, -1))
    np.save(folder / "features.npy", vectors.astype(np.float32))
    return folder / "images.npz", folder / "features.npy"


if __name__ == "__main__":
    main()
