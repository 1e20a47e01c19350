"""Color jitter, RandAugment and cutout on Pillow images, for views stronger than a crop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

FILL = (124, 116, 104)  # ImageNet's mean color: what is uncovered becomes zero when normalized
MAX_MAGNITUDE = 10


def jitter(
    image: Image.Image, strengths: tuple[float, float, float, float], rng: np.random.Generator
) -> Image.Image:
    """Brightness, contrast, saturation and hue in random order, each by a random amount."""
    for number in rng.permutation(4):
        strength = strengths[number]
        if strength == 0:
            continue
        if number == 3:
            image = _shift_hue(image, rng.uniform(-strength, strength))
        else:
            factor = rng.uniform(max(0.0, 1 - strength), 1 + strength)
            image = JITTERS[number](image).enhance(factor)
    return image


JITTERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def _shift_hue(image: Image.Image, share: float) -> Image.Image:
    """Turn the color wheel by `share` of a full turn."""
    hue, saturation, value = image.convert("HSV").split()
    turned = hue.point([(level + round(share * 255)) % 256 for level in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def randaugment(
    image: Image.Image, n_operations: int, magnitude: int, rng: np.random.Generator
) -> Image.Image:
    """RandAugment: operations drawn with replacement, all of one magnitude, either direction."""
    for _ in range(n_operations):
        operation = OPERATIONS[int(rng.integers(len(OPERATIONS)))]
        direction = 1 if rng.random() < 0.5 else -1
        image = operation(image, magnitude / MAX_MAGNITUDE, direction)
    return image


def _warp(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=FILL
    )


def _rotate(image: Image.Image, amount: float, direction: int) -> Image.Image:
    return image.rotate(30 * amount * direction, Image.Resampling.BILINEAR, fillcolor=FILL)


def _shear_x(image: Image.Image, amount: float, direction: int) -> Image.Image:
    slope = 0.3 * amount * direction
    return _warp(image, (1, slope, -slope * image.height / 2, 0, 1, 0))


def _shear_y(image: Image.Image, amount: float, direction: int) -> Image.Image:
    slope = 0.3 * amount * direction
    return _warp(image, (1, 0, 0, slope, 1, -slope * image.width / 2))


def _translate_x(image: Image.Image, amount: float, direction: int) -> Image.Image:
    return _warp(image, (1, 0, 0.3 * amount * direction * image.width, 0, 1, 0))


def _translate_y(image: Image.Image, amount: float, direction: int) -> Image.Image:
    return _warp(image, (1, 0, 0, 0, 1, 0.3 * amount * direction * image.height))


def _enhance(image: Image.Image, amount: float, direction: int, what: type) -> Image.Image:
    enhanced: Image.Image = what(image).enhance(1 + 0.9 * amount * direction)
    return enhanced


# FixMatch's fourteen operations; an amount from 0 to 1 and a direction, for those that have one.
OPERATIONS: tuple[Callable[[Image.Image, float, int], Image.Image], ...] = (
    lambda image, amount, direction: image,
    lambda image, amount, direction: ImageOps.autocontrast(image),
    lambda image, amount, direction: ImageOps.equalize(image),
    lambda image, amount, direction: ImageOps.solarize(image, round(256 * (1 - amount))),
    lambda image, amount, direction: ImageOps.posterize(image, 8 - round(4 * amount)),
    lambda image, amount, direction: _enhance(image, amount, direction, ImageEnhance.Brightness),
    lambda image, amount, direction: _enhance(image, amount, direction, ImageEnhance.Contrast),
    lambda image, amount, direction: _enhance(image, amount, direction, ImageEnhance.Color),
    lambda image, amount, direction: _enhance(image, amount, direction, ImageEnhance.Sharpness),
    _rotate,
    _shear_x,
    _shear_y,
    _translate_x,
    _translate_y,
)


def cutout(image: Image.Image, side: int, rng: np.random.Generator) -> Image.Image:
    """Paint over a square whose center is anywhere; what lies outside the image is lost."""
    if side == 0:
        return image
    left = int(rng.integers(image.width)) - side // 2
    top = int(rng.integers(image.height)) - side // 2
    image = image.copy()
    box = (left, top, left + side - 1, top + side - 1)
    ImageDraw.Draw(image).rectangle(box, fill=FILL)
    return image
