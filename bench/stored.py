"""What saving disk costs: tokens as half floats, as int8, and pooled to one vector per image.

OMP_NUM_THREADS=1 python -m bench stored [SET ...]. ResNet-18 at 128 px, nothing trained. Accuracy
by name on unlabeled images: ten labels per known class, half of the classes known, ratio 20, mean
of some draws. `off`: 1 - cosine with the feature of half floats, the mean over the images.
"""

import sys

import numpy as np
import torch

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.packing import pack, unpack
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.classes.find import find_classes
from bacon_gcd.cluster import unit
from bench.discovery import shares
from bench.discovery_sets import SETS, Cell, drawn, images_of
from bench.measure import table

BACKBONE = "resnet18.pypi_in1k"
DEFAULT, DRAWS, CHUNK = ("textures", "birds", "objects"), 3, 500


def main():
    rows = []
    for name in [word for word in sys.argv[1:] if word in SETS] or DEFAULT:
        images, classes = images_of(name)
        for way, (size, features) in ways(images).items():
            if way == "half":
                plain = features
            found = [right(name, draw, classes, features) for draw in range(DRAWS)]
            off = float(1 - (plain * features).double().sum(dim=1).mean())
            row = {"set": name, "stored": way, "bytes per view": size, "off": off}
            rows.append(row | {"accuracy": float(np.mean(found))})
            print(table(rows), flush=True)


def ways(images):
    """Bytes of a view and (N, D) unit features, by how tokens are stored."""
    backbone = load_backbone(BACKBONE)
    bank = build_bank(images, np.arange(len(images)), backbone, n_views=0)
    tail, width = backbone.new_tail(), bank.token_shape[-1]
    n_tokens = bank.token_shape[0]
    plain = embedded(bank, tail, lambda tokens: tokens)
    packed = embedded(bank, tail, lambda tokens: unpack(pack(tokens), width))
    return {
        "half": (2 * n_tokens * width, plain),
        "int8": (n_tokens * (width + 2), packed),
        "pooled, half": (2 * width, unit(plain.half().float())),
        "pooled, int8": (width + 2, unit(unpack(pack(plain), width))),
    }


@torch.no_grad()
def embedded(bank, tail, seen):
    """(N, D) unit features of tokens as they are seen."""
    parts = np.array_split(np.arange(len(bank)), -(-len(bank) // CHUNK))
    return unit(torch.cat([tail(seen(bank.test(part))) for part in parts]))


def right(name, draw, classes, features):
    """Percent of the unlabeled images of a draw."""
    x, true, labels, n_known = drawn(Cell(name, "10", 0.5, 20, draw), features.numpy(), classes)
    found = find_classes(torch.from_numpy(x), labels, seed=0)
    return shares(found.class_ids, true, labels, n_known)["all"]


if __name__ == "__main__":
    main()
