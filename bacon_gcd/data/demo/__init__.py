"""The embedded demo set: about 1,400 long-tailed CIFAR-10 images to train on and 1,000 to test on.

Five classes are known and half labeled, five are novel. scripts/build_demo_set.py rebuilds it.
"""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable, from_arrays
from bacon_gcd.data.longtail import Parts, Split, assemble
from bacon_gcd.system.files import read_json, sha256_of, write_atomic

FOLDER = Path(__file__).parent
TILE = 32  # pixels
COLUMNS = 40  # tiles in a row of a mosaic
PARTS = ("train", "test")


def load() -> ImageTable:
    """Every image with its true class, train before test, class by class."""
    index = _index()
    labels = [label for part in PARTS for label in index[part]["labels"]]
    splits = [part for part in PARTS for _ in index[part]["labels"]]
    images = np.concatenate([_tiles(index[part]) for part in PARTS])
    return from_arrays(images, labels, index["class_names"], splits=splits)


def load_split(table: ImageTable | None = None) -> Split:
    """Which training images are labeled: half of each known class, as in BaCon App. C.2.

    table: what `load` gave, if it is at hand already.
    """
    index = _index()
    labels = np.array(index["train"]["labels"])
    labeled = np.array(index["train"]["labeled"], dtype=bool)
    known = labels < index["n_known"]
    parts = Parts(np.flatnonzero(labeled), np.flatnonzero(known & ~labeled), np.flatnonzero(~known))
    settings = {"dataset": "demo", "source": index["source"]}
    known_classes = range(index["n_known"])
    return assemble(table or load(), parts, known=known_classes, settings=settings)


def write_folder(path: Path | str) -> Path:
    """Write the training images as a person's own folder would look, to try `bacon discover` on.

    root/<class>/*.png holds the labeled images, root/_unlabeled/*.png all others, under numbers
    that do not show the class; root/truth.csv holds their classes.
    """
    root = Path(path)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root}: not an empty folder; the demo images need one of their own")
    table = load()
    split = load_split(table)
    labeled = set(split.labeled.tolist())
    truth = []
    for number, row in enumerate(_shuffled(table)):
        name = table.class_names[table.labels[row]]
        file = f"{name if row in labeled else '_unlabeled'}/image_{number:04d}.png"
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        table.image(row).save(root / file)
        kind = "known" if table.labels[row] < split.n_known else "novel"
        truth.append((file, name, kind))
    write_atomic(root / "truth.csv", _csv([("file_name", "true_class", "kind"), *sorted(truth)]))
    return root


def _index() -> dict[str, Any]:
    index: dict[str, Any] = read_json(FOLDER / "index.json")
    return index


def _tiles(part: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """(N, 32, 32, 3) images of one mosaic; a damaged file is named."""
    path = FOLDER / part["file"]
    if sha256_of(path) != part["sha256"]:
        raise UserError(f"{path}: damaged (sha256 differs); install bacon-gcd again")
    sheet = np.asarray(Image.open(path, formats=["WEBP"]).convert("RGB"))
    tiles = sheet.reshape(-1, TILE, COLUMNS, TILE, 3).swapaxes(1, 2).reshape(-1, TILE, TILE, 3)
    return tiles[: len(part["labels"])]


def _shuffled(table: ImageTable) -> list[int]:
    """Training rows in the order of their pixels' hashes, which shows neither class nor part."""
    rows = table.rows("train").tolist()
    return sorted(rows, key=lambda row: hashlib.sha256(table.contents[row].encode()).digest())


def _csv(rows: list[tuple[str, ...]]) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()
