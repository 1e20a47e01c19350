"""Planted folders of tiny pictures: colors are classes."""

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from bacon_gcd.cli import app

COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "gray": (90,) * 3}


def bacon(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def picture(color, seed):
    noise = np.random.default_rng(seed).normal(0, 12, size=(16, 16, 3))
    return Image.fromarray((np.array(COLORS[color]) + noise).clip(0, 255).astype(np.uint8))


def plant(root, *, known=("red", "green"), novel=("blue", "gray"), n=8, labeled=5):
    """`labeled` images of each known class in its folder, all others loose."""
    for number, color in enumerate((*known, *novel)):
        for i in range(n):
            folder = root / color if color in known and i < labeled else root / "_unlabeled"
            folder.mkdir(parents=True, exist_ok=True)
            picture(color, 100 * number + i).save(folder / f"{color}-{i:02d}.png")
    return root


def vectors_of(names):
    """Colors as well separated vectors."""
    rng = np.random.default_rng(0)
    centers = dict(zip(COLORS, np.eye(4, 8), strict=True))
    kind = [name.rsplit("/")[-1].split("-")[0] for name in names]
    return np.array([centers[k] + 0.05 * rng.normal(size=8) for k in kind], dtype=np.float32)
