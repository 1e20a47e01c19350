"""The test view and the training views of an image, seeded by (seed, image, view)."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from bacon_gcd.config import UserError, choose
from bacon_gcd.data.augment import MAX_MAGNITUDE, cutout, jitter, randaugment

PixelArray = npt.NDArray[np.uint8]
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
KINDS = ("weak", "strong", "test")
CROPS = ("resize", "resized_crop", "none")
MAX_ELONGATION = 16  # longer images keep their middle: a 20000 x 2 strip would resize to gigabytes


@dataclass(frozen=True)
class ViewSettings:
    """How a view is made. The defaults are the training views of the authors' code."""

    kind: str = "weak"
    """weak, strong or test (which has no randomness: the center, or with crop none all of it)."""
    image_size: int = 224
    """Side of the square view, in pixels."""
    resize_share: float = 0.875
    """The shorter side becomes int(image_size / resize_share) before the crop."""
    crop: str = "resize"
    """resize: shorter side first, then a random crop; resized_crop: a random area, then resized;
    none: the whole image, resized to a square."""
    crop_scale: tuple[float, float] = (0.2, 1.0)
    """Share of the area that resized_crop keeps, from and to."""
    flip: bool = True
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Strengths for brightness, contrast, saturation and hue; the authors' are all zero."""
    jitter_probability: float = 0.8
    gray_probability: float = 0.0
    randaugment: tuple[int, int] = (0, 0)
    """How many operations, and their magnitude from 0 to 10."""
    cutout: float = 0.0
    """Side of the square that is painted over, as a share of image_size."""

    def __post_init__(self) -> None:
        choose("view kind", self.kind, KINDS)
        choose("crop", self.crop, CROPS)
        if self.image_size < 1:
            raise UserError(f"image_size is {self.image_size}; it must be at least 1")
        if not 0 < self.resize_share <= 1:
            raise UserError(f"resize_share is {self.resize_share}; it must lie in (0, 1]")
        if not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise UserError(f"crop_scale is {self.crop_scale}; it must be 0 < from <= to <= 1")
        if not (self.randaugment[0] >= 0 and 0 <= self.randaugment[1] <= MAX_MAGNITUDE):
            raise UserError(
                f"randaugment is {self.randaugment}; it is a number of operations and a "
                f"magnitude from 0 to {MAX_MAGNITUDE}"
            )

    @property
    def shorter_side(self) -> int | None:
        """What the shorter side is resized to before the crop; None where the crop resizes."""
        if self.crop == "none" or (self.kind != "test" and self.crop == "resized_crop"):
            return None
        return int(self.image_size / self.resize_share)

    def for_test(self, *, uncropped: bool = False) -> ViewSettings:
        """The test view that belongs to these training views.

        uncropped: the whole image instead of its center.
        """
        crop = "none" if uncropped else "resize"
        return ViewSettings("test", self.image_size, self.resize_share, crop)


def strong_settings(image_size: int) -> ViewSettings:
    """RandAugment (3, 4) and a cutout of half the side: the strong views of ABC and DARP."""
    return ViewSettings("strong", image_size, randaugment=(3, 4), cutout=0.5)


def test_view(image: Image.Image, size: int) -> Tensor:
    """(3, size, size): shorter side to int(size / 0.875), center crop, normalized."""
    settings = ViewSettings("test", size)
    return training_view(image, settings, seed=0, image_key="", view=0)


def training_view(
    image: Image.Image, settings: ViewSettings, *, seed: int, image_key: str | int, view: int
) -> Tensor:
    """(3, S, S): one normalized view; the same arguments always give the same one."""
    pixels = render_views(image, [(settings, view)], seed=seed, image_key=image_key)
    return normalize(torch.from_numpy(pixels))[0]


def render_views(
    image: Image.Image,
    wanted: Sequence[tuple[ViewSettings, int]],
    *,
    seed: int,
    image_key: str | int,
) -> PixelArray:
    """(V, S, S, 3) pixels of several views of one image, which is resized only once for them."""
    image = _without_ends(image if image.mode == "RGB" else image.convert("RGB"))
    resized = functools.cache(functools.partial(resize_shorter, image))
    views = []
    for settings, view in wanted:
        source = resized(settings.shorter_side) if settings.shorter_side else image
        rng = view_generator(seed, image_key, settings.kind, view)
        views.append(np.asarray(_view(source, settings, rng)))
    return np.stack(views)


def normalize(
    pixels: Tensor, *, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD
) -> Tensor:
    """(N, S, S, 3) bytes to (N, 3, S, S) values: to [0, 1], minus the mean, by the deviation."""
    channels_first = pixels.permute(0, 3, 1, 2)
    values = channels_first.to(torch.float32, memory_format=torch.contiguous_format)
    color = [torch.tensor(each, device=pixels.device).view(3, 1, 1) for each in (mean, std)]
    return values.div_(255).sub_(color[0]).div_(color[1])


def view_generator(seed: int, image_key: str | int, kind: str, view: int) -> np.random.Generator:
    """Random numbers that depend on these four alone, whatever was drawn before or elsewhere."""
    name = f"{seed}/{kind}/{view}/{image_key}".encode(errors="surrogateescape")
    key = hashlib.blake2b(name, digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def resize_shorter(image: Image.Image, side: int) -> Image.Image:
    """Bicubic; the longer side keeps the proportion, rounded down, as in torchvision."""
    width, height = image.size
    short = min(width, height)
    size = (int(side * width / short), int(side * height / short))
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


def _without_ends(image: Image.Image) -> Image.Image:
    """The middle of an extremely long image, any other image itself. Ours."""
    limit = MAX_ELONGATION * min(image.size)
    if max(image.size) <= limit:
        return image
    return _center_crop(image, min(image.width, limit), min(image.height, limit))


def _view(image: Image.Image, settings: ViewSettings, rng: np.random.Generator) -> Image.Image:
    """One view; `image` has its shorter side resized, unless the crop itself resizes."""
    size = settings.image_size
    if settings.kind == "test":
        whole = settings.crop == "none"
        return _resized(image, size) if whole else _center_crop(image, size, size)
    image = TRAINING_CROPS[settings.crop](image, settings, rng)
    if settings.flip and rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if any(settings.jitter) and rng.random() < settings.jitter_probability:
        image = jitter(image, settings.jitter, rng)
    if settings.gray_probability and rng.random() < settings.gray_probability:
        image = image.convert("L").convert("RGB")
    image = randaugment(image, *settings.randaugment, rng)
    return cutout(image, round(settings.cutout * size), rng)


def _resized(image: Image.Image, side: int) -> Image.Image:
    """The whole image as a square, whatever its proportion: nothing is cut off. Ours."""
    return image.resize((side, side), Image.Resampling.BICUBIC)


def _center_crop(image: Image.Image, width: int, height: int) -> Image.Image:
    left = round((image.width - width) / 2)
    top = round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _random_crop(
    image: Image.Image, settings: ViewSettings, rng: np.random.Generator
) -> Image.Image:
    """A square of the view's size, every position equally likely."""
    size = settings.image_size
    left = int(rng.integers(image.width - size + 1))
    top = int(rng.integers(image.height - size + 1))
    return image.crop((left, top, left + size, top + size))


def _random_resized_crop(
    image: Image.Image, settings: ViewSettings, rng: np.random.Generator
) -> Image.Image:
    """A random share of the area with a side ratio of 3/4 to 4/3, resized to the view's size."""
    size = (settings.image_size, settings.image_size)
    for _ in range(10):
        area = image.width * image.height * rng.uniform(*settings.crop_scale)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= image.width and 0 < height <= image.height:
            left = int(rng.integers(image.width - width + 1))
            top = int(rng.integers(image.height - height + 1))
            box = (left, top, left + width, top + height)
            return image.crop(box).resize(size, Image.Resampling.BICUBIC)
    side = min(image.size)  # a shape that no such rectangle fits: the middle square
    return _center_crop(image, side, side).resize(size, Image.Resampling.BICUBIC)


def _no_crop(image: Image.Image, settings: ViewSettings, _: np.random.Generator) -> Image.Image:
    return _resized(image, settings.image_size)


TRAINING_CROPS = dict(zip(CROPS, (_random_crop, _random_resized_crop, _no_crop), strict=True))
