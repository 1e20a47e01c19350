"""Spec 1.2 written out step by step: Pillow's own resize and crop, then arithmetic per channel."""

import numpy as np
from PIL import Image

CHANNELS = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)]  # mean and deviation of R, G, B


def resized_by_hand(image: Image.Image, size: int) -> Image.Image:
    target = int(size / 0.875)
    width, height = image.size
    if width <= height:
        new_width = target
        new_height = int(target * height / width)
    else:
        new_height = target
        new_width = int(target * width / height)
    return image.resize((new_width, new_height), Image.BICUBIC)


def normalized_by_hand(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    out = np.zeros((3, *pixels.shape[:2]), dtype=np.float32)
    for channel, (mean, std) in enumerate(CHANNELS):
        share = pixels[:, :, channel].astype(np.float32) / np.float32(255)
        out[channel] = (share - np.float32(mean)) / np.float32(std)
    return out


def test_view_by_hand(image: Image.Image, size: int) -> np.ndarray:
    resized = resized_by_hand(image, size)
    top = round((resized.height - size) / 2.0)
    left = round((resized.width - size) / 2.0)
    return normalized_by_hand(resized.crop((left, top, left + size, top + size)))


def every_training_view_by_hand(image: Image.Image, size: int) -> list[np.ndarray]:
    """All places of the crop, each as it is and mirrored."""
    resized = resized_by_hand(image, size)
    views = []
    for top in range(resized.height - size + 1):
        for left in range(resized.width - size + 1):
            crop = resized.crop((left, top, left + size, top + size))
            views.append(normalized_by_hand(crop))
            views.append(normalized_by_hand(crop)[:, :, ::-1])
    return views
