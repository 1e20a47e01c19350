"""Images of a run for the page, as JPEG."""

from __future__ import annotations

import io
from threading import BoundedSemaphore

from PIL import Image

from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.review.asked import NotThereError

SIZES = {"small": 224, "large": 1600, "original": None}  # pixels of the longer side
AT_ONCE = BoundedSemaphore(4)  # a decoded image may have 268 MB


def picture(run: DiscoverRun, number: int, size: str) -> bytes:
    """One image, no larger than the size asked for."""
    side = SIZES[choose("size", size, SIZES)]
    if not 0 <= number < len(run.rows):
        raise NotThereError(f"image {number}")
    with AT_ONCE:
        try:
            image = run.image(number)
        except UserError as error:
            raise NotThereError(str(error)) from None
        if side is not None:
            image.thumbnail((side, side), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=88 if side else 95)
    return buffer.getvalue()
