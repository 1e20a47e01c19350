"""What the choice of the backbone is worth: `bacon discover` on the same images.

BACON_DATA=FOLDER python -m bench features   stores what it computes, prints one table
"""

import json

import numpy as np
import torch

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.weights import MIRRORED, OFFLINE, TOGETHER, load_backbone
from bacon_gcd.cluster import unit
from bacon_gcd.discovery.image_size import fitting_size
from bench.discovery import ours
from bench.discovery_sets import OUT, Cell, _images, drawn

RESNET = "resnet18.pypi_in1k"
BACKBONES = {
    "ResNet-18": RESNET,
    "EfficientNet-Lite0": OFFLINE,
    "both": f"{OFFLINE}{TOGETHER}{RESNET}",
}
SETS = ("textures", "demo", "objects", "birds", "fashion")
PER_CLASS = {"textures": 80, "demo": 80, "objects": 15, "birds": 25, "fashion": 80}
CHUNK = 64


def chosen_rows(name, classes):
    """The same images for every backbone."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(classes == c)) for c in np.unique(classes)]
    return np.sort(np.concatenate([each[: PER_CLASS[name]] for each in rows]))


def features_of(name, backbone_name):
    """(N, D) unit features and (N,) classes, as `bacon discover` computes them."""
    stored = OUT / "features" / f"{name}-{backbone_name}.npz"
    if not stored.exists():
        table, classes = _images(name)
        rows = chosen_rows(name, classes)
        size = fitting_size(backbone_name, table)
        backbone = load_backbone(backbone_name, image_size=size, tuned=MIRRORED)
        bank = build_bank(table, rows, backbone, n_views=0, seed=0, workers=1)
        tail, places = backbone.new_tail(), np.arange(len(rows))
        parts = [tail(bank.test(places[i : i + CHUNK])) for i in range(0, len(rows), CHUNK)]
        values = np.concatenate([unit(each.detach()).numpy() for each in parts])
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(stored, x=values, y=classes[rows])
    found = np.load(stored, allow_pickle=False)
    return found["x"].astype(np.float32), found["y"].astype(np.int64)


def cells_of(name):
    return [
        Cell(name, labels, share, (1, 20, 100)[(number + draw) % 3], draw)
        for draw in range(2)
        for number, labels in enumerate(("1", "3", "10", "half"))
        for share in (0.25, 0.5, 0.8)
    ]


def run(name, label):
    x, y = features_of(name, BACKBONES[label])
    found = [ours(*drawn(cell, x, y)) for cell in cells_of(name)]
    measures = ("all", "known", "new", "auroc")
    return {key: float(np.mean([row[key] for row in found])) for key in measures}


def main():
    torch.set_num_threads(1)
    path = OUT / "features.jsonl"
    for name in SETS:
        for label in BACKBONES:
            row = {"set": name, "backbone": label, **run(name, label)}
            print(json.dumps(row), flush=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
