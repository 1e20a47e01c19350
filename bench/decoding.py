"""What JPEG's draft mode (decoding at a half, a quarter or an eighth) saves, and what it changes.

BACON_DATA=DIR python -m bench decoding. Cosine between features of photographs decoded whole and in
draft mode, at the smallest size that still has `margin` times the pixels a side that are needed; so
small an input that the photographs are large enough. The time is that of a zoomed photograph.
"""

import io
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cosine_similarity

from bacon_gcd.backbone.rendering import trunk_tokens
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.views import ViewSettings, render_views
from bench.measure import seconds, table

N_IMAGES = 120
CASES = (("resnet18.pypi_in1k", 64, 1), ("efficientnet_lite0.pypi_in1k", 64, 1))
CASES += (("resnet18.pypi_in1k", 32, 2),)
TIMED = ((500, 375), (2000, 1500), (4000, 3000))


def main():
    root = Path(os.environ.get("BACON_DATA", "../shared/data"))
    rows = [compare(root / kind, *case) for kind in ("birds", "textures") for case in CASES]
    print(table(rows))
    photo = next((root / "birds").rglob("*.jpg"))
    print(table([timed(photo, size, side) for size in TIMED for side in (146, 256)]))


def compare(folder, name, size, margin):
    backbone = load_backbone(name, image_size=size, tuned="mirrored")
    settings = ViewSettings("weak", size).for_test()
    side = settings.shorter_side
    files = np.random.default_rng(0).permutation(sorted(folder.rglob("*.jpg")))
    large = (path.read_bytes() for path in files if least_side(path) >= 2 * margin * side)
    photos = [data for _, data in zip(range(N_IMAGES), large, strict=False)]
    whole, quick = (
        features(backbone, settings, [decode(data, side, each) for data in photos])
        for each in (math.inf, margin)
    )
    cosines = cosine_similarity(whole, quick)
    row = {"images": folder.name, "backbone": name, "px": size, "margin": margin, "n": len(photos)}
    return row | {"mean cosine": f"{cosines.mean():.4f}", "least": f"{cosines.min():.3f}"}


def least_side(path):
    with Image.open(path) as image:
        return min(image.size)


def decode(data, side, margin):
    """The photograph with at least `margin` times this shorter side; math.inf: whole."""
    image = Image.open(io.BytesIO(data))
    scale = min(margin * side / min(image.size), 1.0)
    if scale < 1:
        image.draft(None, tuple(math.ceil(scale * each) for each in image.size))
    return image.convert("RGB")


def features(backbone, settings, images):
    views = [render_views(each, [(settings, 0)], seed=0, image_key="")[0] for each in images]
    parts = [np.stack(views[start : start + 20]) for start in range(0, len(views), 20)]
    return torch.cat([trunk_tokens(backbone, part).float().flatten(1) for part in parts])


def timed(photo, size, side):
    """Milliseconds of the processor to decode and resize."""
    file = io.BytesIO()
    Image.open(photo).convert("RGB").resize(size, Image.BICUBIC).save(file, "JPEG", quality=90)
    row = {"photograph": "x".join(map(str, size)), "shorter side": side}
    for name, margin in (("whole", math.inf), ("margin 2", 2), ("margin 1", 1)):
        work = lambda r=margin: decode(file.getvalue(), side, r).resize((4 * side // 3, side))  # noqa: E731
        row[f"{name}, ms"] = 1000 * seconds(work, clock=time.process_time)
    return row


if __name__ == "__main__":
    main()
