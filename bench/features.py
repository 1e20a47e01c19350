"""What the choice of the backbone is worth: `bacon discover` on the same images.

BACON_DATA=FOLDER python -m bench features   stores what it computes, prints one table
"""

import numpy as np
import torch

from bacon_gcd.backbone.catalogue import OFFLINE, TOGETHER
from bacon_gcd.backbone.weights import MIRRORED, load_backbone
from bacon_gcd.discovery.image_size import fitting_size
from bench.discovery import ours
from bench.discovery_sets import (
    LABELS,
    OUT,
    RATIOS,
    SHARES,
    Cell,
    drawn,
    images_of,
    read_features,
    store,
)
from bench.measure import table

RESNET = "resnet18.pypi_in1k"
BACKBONES = {
    "ResNet-18": RESNET,
    "EfficientNet-Lite0": OFFLINE,
    "both": f"{OFFLINE}{TOGETHER}{RESNET}",
}
SETS = ("textures", "demo", "objects", "birds", "fashion")
PER_CLASS = {"textures": 80, "demo": 80, "objects": 15, "birds": 25, "fashion": 80}


def chosen_rows(name, classes):
    """The same images for every backbone."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(classes == c)) for c in np.unique(classes)]
    return np.sort(np.concatenate([each[: PER_CLASS[name]] for each in rows]))


def features_of(name, backbone_name):
    """(N, D) unit features and (N,) classes, as `bacon discover` computes them."""
    stored = OUT / "features" / f"{name}-{backbone_name}.npz"
    if not stored.exists():
        images, classes = images_of(name)
        size = fitting_size(backbone_name, images)
        backbone = load_backbone(backbone_name, image_size=size, tuned=MIRRORED)
        store(stored, images, chosen_rows(name, classes), classes, backbone)
    return read_features(stored)


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
