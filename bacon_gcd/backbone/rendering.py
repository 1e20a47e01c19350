"""Images to tokens: views are made by threads while the trunk is busy with those before them."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from bacon_gcd.backbone.base import Backbone
from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.views import PixelArray, ViewSettings, normalize, render_views
from bacon_gcd.system.memory import keep_freed_memory

IntArray = npt.NDArray[np.int64]
Wanted = Sequence[tuple[ViewSettings, int]]
"""Views of one image, by settings and number."""
Item = TypeVar("Item")
Made = TypeVar("Made")

PIECE = 32  # images that are rendered together and go through the trunk together
READ_ERRORS = (OSError, ValueError, SyntaxError, EOFError, struct.error, MemoryError)


def check_size(settings: ViewSettings, backbone: Backbone) -> None:
    """Refuse views of another size than the trunk takes."""
    if settings.image_size != backbone.image_size:
        raise UserError(
            f"the views have {settings.image_size} pixels a side, but {backbone.name} takes "
            f"{backbone.image_size}"
        )


def render_images(
    table: ImageTable, rows: IntArray, wanted: Sequence[Wanted], *, seed: int
) -> PixelArray:
    """(V, n, S, S, 3) pixels: V wanted views of each of these rows, every image opened once."""
    views = [
        render_views(open_image(table, int(row)), each, seed=seed, image_key=table.ids[row])
        for row, each in zip(rows, wanted, strict=True)
    ]
    return np.stack(views, axis=1)


def open_image(table: ImageTable, row: int) -> Image.Image:
    """One image of a table; a file that changed or cannot be read any more stops the run."""
    try:
        return table.checked_image(row)
    except UserError:
        raise
    except (*READ_ERRORS, Image.DecompressionBombError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{table.ids[row]}: cannot be read any more: {reason}") from error


@torch.no_grad()
def trunk_tokens(backbone: Backbone, pixels: PixelArray) -> Tensor:
    """(N, S, S, 3) pixels through the frozen trunk to (N, *token_shape) tokens."""
    keep_freed_memory()  # its maps are large: new pages took up to two fifths of the time
    return backbone.trunk(_normalized(backbone, pixels))


@torch.no_grad()
def mixed_trunk_tokens(
    backbone: Backbone, pixels: PixelArray, partners: PixelArray, *, share: float
) -> Tensor:
    """The same of share * pixels + (1 - share) * partners. TRSSL's mixup."""
    first, second = _normalized(backbone, pixels), _normalized(backbone, partners)
    return backbone.trunk(share * first + (1 - share) * second)


def _normalized(backbone: Backbone, pixels: PixelArray) -> Tensor:
    on_device = torch.from_numpy(pixels).to(backbone.device)
    return normalize(on_device, mean=backbone.mean, std=backbone.std)


def ahead(
    work: Callable[[Item], Made], items: Iterable[Item], *, workers: int
) -> Generator[Made, None, None]:
    """work(item) of each item, in order, done by threads (at least one) a little ahead of need.

    Threads are enough: decoding and resizing let go of the interpreter's lock.
    """
    workers = max(workers, 1)
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
