"""Reading a random training batch from a bank: 512 rows of 16 KB out of 1 GB."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.data.images import from_arrays
from bench.measure import seconds, table


class Instant(Backbone):
    """A trunk that costs nothing, so that only the bank is measured."""

    name, feature_dim, token_shape, image_size, hash = "instant", 512, (16, 512), 8, "instant"

    def trunk(self, images):
        return images.mean(dim=(1, 2, 3))[:, None, None].expand(-1, 16, 512)

    def new_tail(self):
        return nn.Identity()


def main():
    rng = np.random.default_rng(0)
    table_of_images = from_arrays(rng.integers(0, 256, (13_000, 8, 8, 3), dtype=np.uint8))
    with tempfile.TemporaryDirectory() as folder:
        bank = build_bank(
            table_of_images, np.arange(13_000), Instant(), n_views=4, folder=Path(folder)
        )
        bank.batch(np.arange(13_000), ("weak", "weak"), seed=0, step=0)  # warm the page cache
        step = iter(range(10_000))

        def read():
            positions = rng.integers(13_000, size=256)
            return bank.batch(positions, ("weak", "weak"), seed=0, step=next(step))

        took = seconds(read, repeats=20)
        source = torch.empty(512 * 16 * 512, dtype=torch.float16)
        limit = seconds(lambda: source.float(), repeats=20)
    print(
        table(
            [
                {
                    "bank GB": bank.n_bytes / 1e9,
                    "batch ms": took * 1e3,
                    "fp16 to fp32 alone ms": limit * 1e3,
                    "of the limit": limit / took,
                }
            ]
        )
    )


if __name__ == "__main__":
    main()
