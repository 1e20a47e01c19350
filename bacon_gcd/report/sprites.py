"""Thumbnails as sprite sheets: 256 pictures in one WebP, inlined in the page."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image

from bacon_gcd.system.progress import progress

GRID = 16  # tiles per row and per column of a sheet
PER_SHEET = GRID * GRID
BUDGET = 10_500_000  # bytes of all sheets, 14 MB in base64; names and facts of 1M images take 10
# Tile size in pixels and WebP quality, from the finest to the smallest.
STEPS = ((96, 80), (80, 75), (64, 75), (64, 55), (48, 50), (32, 40), (32, 10))
SMALLEST = 24  # pixels of a tile, however small the images are
TRIAL = 128  # images that are encoded to see which step fits


@dataclass(frozen=True)
class Sprites:
    """Encoded sheets; thumbnail number n is tile n % 256 of sheet n // 256."""

    sheets: Sequence[bytes]
    tile: int

    def data_uris(self) -> list[str]:
        """The sheets as the page embeds them."""
        return [f"data:image/webp;base64,{base64.b64encode(s).decode()}" for s in self.sheets]


def make_sprites(
    picture: Callable[[int], Image.Image], rows: Sequence[int], *, budget: int = BUDGET
) -> Sprites:
    """Thumbnails of these rows in this order, as fine as the budget allows."""
    tile, quality = choose_step(picture, rows, budget)
    parts = [rows[start : start + PER_SHEET] for start in range(0, len(rows), PER_SHEET)]

    def sheet(part: Sequence[int]) -> bytes:
        return encode([thumbnail(picture(row), tile) for row in part], tile, quality)

    sheets = []
    with (
        progress("thumbnails", len(rows)) as advance,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,  # decoding and encoding release the GIL
    ):
        for part, made in zip(parts, pool.map(sheet, parts), strict=True):
            sheets.append(made)
            advance(len(part))
    return Sprites(sheets, tile)


def choose_step(
    picture: Callable[[int], Image.Image], rows: Sequence[int], budget: int
) -> tuple[int, int]:
    """The finest (tile, quality) at which an even sample of the images says all will fit.

    A tile is never larger than the images: the browser enlarges them as well.
    """
    if not rows:
        return STEPS[0]
    positions = np.linspace(0, len(rows), min(TRIAL, len(rows)), endpoint=False).astype(int)
    sample = [picture(rows[position]) for position in positions]
    largest = max(SMALLEST, *(max(image.size) for image in sample))
    steps = [(min(tile, largest), quality) for tile, quality in STEPS]
    for tile, quality in steps:
        size = len(encode([thumbnail(image, tile) for image in sample], tile, quality))
        if size * len(rows) / len(sample) < 0.9 * budget:  # a tenth for an unlucky sample
            return tile, quality
    return steps[-1]


def thumbnail(image: Image.Image, tile: int) -> Image.Image:
    """The whole picture, centered in a square of `tile` pixels; the rest is transparent."""
    scale = tile / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    square = Image.new("RGBA", (tile, tile))
    square.paste(small, ((tile - size[0]) // 2, (tile - size[1]) // 2))
    return square


def encode(thumbnails: Sequence[Image.Image], tile: int, quality: int) -> bytes:
    """One sheet of 16 x 16 tiles in reading order; unused tiles are transparent."""
    sheet = Image.new("RGBA", (GRID * tile, GRID * tile))
    for number, small in enumerate(thumbnails):
        sheet.paste(small, (number % GRID * tile, number // GRID * tile))
    file = io.BytesIO()
    sheet.save(
        file, "WEBP", quality=quality, method=2
    )  # half the time of the default, 3 % more bytes
    return file.getvalue()
