"""What the choice of the backbone is worth: `bacon discover` on the same images.

BACON_DATA=FOLDER python -m bench features   stores what it computes, prints one table
"""

import numpy as np
import torch

from bacon_gcd.backbone.catalogue import LITE, OFFLINE, TOGETHER
from bench.discovery import ours
from bench.discovery_sets import LABELS, RATIOS, SHARES, Cell, drawn, features_of
from bench.measure import table

RESNET = "resnet18.pypi_in1k"
BACKBONES = {
    "ResNet-18": RESNET,
    "EfficientNet-Lite0": LITE,
    "DINOv2 ViT-S/14": OFFLINE,
    "Lite0 and ResNet-18": f"{LITE}{TOGETHER}{RESNET}",
}
SETS = ("textures", "demo", "objects", "birds", "fashion")


def cells_of(name):
    return [
        Cell(name, labels, share, RATIOS[(number + draw) % len(RATIOS)], draw)
        for draw in range(2)
        for number, labels in enumerate(LABELS)
        for share in SHARES
    ]


def run(name, label):
    x, y = features_of(name, BACKBONES[label])
    found = [ours(*drawn(cell, x, y)) for cell in cells_of(name)]
    measures = ("all", "known", "new", "auroc")
    return {key: float(np.mean([row[key] for row in found])) for key in measures}


def main():
    torch.set_num_threads(1)
    rows = []
    for name in SETS:
        for label in BACKBONES:
            rows.append({"set": name, "backbone": label, **run(name, label)})
            print(table(rows[-1:]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
