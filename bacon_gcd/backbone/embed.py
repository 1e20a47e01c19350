"""Fill the banks of a set of images in one go, and say what they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bacon_gcd.backbone.bank import Bank, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.packing import HALF_TOKENS
from bacon_gcd.backbone.rendering import IntArray
from bacon_gcd.data.datasets import DATASETS, FOLDER, load_dataset
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.data.longtail import SplitSettings, make_split
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.system.devices import device_line
from bacon_gcd.system.processes import agreed, refuse_differences


@dataclass(frozen=True)
class Embedded:
    """The banks of the training and of the test images, and what it took."""

    table: ImageTable
    backbone: str
    image_size: int
    banks: tuple[Bank, ...]
    seconds: float

    @property
    def n_computed(self) -> int:
        """Views of images that were not stored before."""
        return sum(bank.n_computed for bank in self.banks)

    def values(self) -> dict[str, Any]:
        """For a script."""
        return {
            "backbone": self.backbone,
            "image_size": self.image_size,
            "banks": [
                {"key": bank.key, "folder": str(bank.folder), "images": len(bank)}
                for bank in self.banks
            ],
            "bytes": sum(bank.n_bytes for bank in self.banks),
            "computed_views": self.n_computed,
            "unreadable_images": len(self.table.quarantine),
            "seconds": round(self.seconds, 1),
            "images_per_second": round(self.n_computed / max(self.seconds, 1e-6), 1),
        }

    def text(self) -> str:
        """For a person."""
        values = self.values()
        lines = [f"backbone {self.backbone} at {self.image_size} px"]
        lines += [f"{len(bank)} images: {bank.folder}" for bank in self.banks]
        if self.table.quarantine:
            lines.append(f"{len(self.table.quarantine)} images cannot be read and were left out")
        speed = f"{values['images_per_second']:.0f} images/s" if self.n_computed else "all stored"
        lines.append(f"{values['bytes'] / 1e6:.1f} MB, {self.seconds:.1f} s, {speed}")
        return "\n".join(lines)


def embed(
    source: str,
    backbone: Backbone,
    *,
    n_views: int,
    strong_views: int = 0,
    stored: str = HALF_TOKENS,
    seed: int = 0,
    workers: int = 2,
    data: Path | None = None,
    cache: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> Embedded:
    """Training images in the test view and n_views others, test images in the test view only.

    Args:
        source: a folder, table or .npz file, or a dataset's name for the split of the paper.
        stored: how tokens are kept on disk: half, or int8 in half the bytes.
        tell: gets a line about what is going on.
    """
    with agreed():  # one process may not see the images
        table, train, test = _rows(source, data)
    refuse_differences("images", table.fingerprint, "all must see the same files")
    if tell is not None:
        tell(device_line(backbone.device))
    folder = cache / "banks" if cache else None
    settings = ViewSettings("weak", backbone.image_size)
    start = time.monotonic()
    banks = tuple(
        build_bank(
            table,
            rows,
            backbone,
            n_views=counts[0],
            settings=settings,
            strong_views=counts[1],
            stored=stored,
            seed=seed,
            folder=folder,
            workers=workers,
        )
        for rows, counts in ((train, (n_views, strong_views)), (test, (0, 0)))
        if len(rows) or len(table) == 0
    )
    seconds = time.monotonic() - start
    return Embedded(table, backbone.name, backbone.image_size, banks, seconds)


def _rows(source: str, data: Path | None) -> tuple[ImageTable, IntArray, IntArray]:
    """The table, its training rows and its test rows."""
    if source not in DATASETS and not source.startswith(FOLDER):
        table = read_images(Path(source))
        return table, table.rows("train"), table.rows("test")
    table = load_dataset(source, data)
    split = make_split(table, SplitSettings(dataset=source))
    return table, split.train, split.test
