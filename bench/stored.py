"""What saving disk costs: tokens as half floats, as int8, and pooled to one vector per image.

OMP_NUM_THREADS=1 python -m bench stored [SET ...]. Accuracy by name on unlabeled images, without
training and after a short one; ten labels per known class, half of the classes known, ratio 20,
mean of three draws.
"""

import sys

import numpy as np

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.packing import pack, unpack
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.discovery.learn import Samples, learn, short_plan
from bench.discovery import shares
from bench.discovery_sets import BACKBONE, Cell, _images, drawn
from bench.measure import table

SETS, DRAWS, EPOCHS, N_VIEWS = ("textures",), 3, 10, 2


class Rows:
    """Some rows of a bank, in this order; packed and unpacked again where asked."""

    def __init__(self, bank, rows, *, packed):
        self.bank, self.rows, self.packed = bank, rows, packed
        self.device, self.token_shape, self.n_views = bank.device, bank.token_shape, bank.n_views

    def __len__(self):
        return len(self.rows)

    def _seen(self, tokens):
        return unpack(pack(tokens), tokens.shape[-1]) if self.packed else tokens

    def test(self, positions):
        return self._seen(self.bank.test(self.rows[positions]))

    def stored_view(self, positions, view):
        return self._seen(self.bank.stored_view(self.rows[positions], view))

    def batch(self, positions, kinds, *, seed, step):
        return self._seen(self.bank.batch(self.rows[positions], kinds, seed=seed, step=step))


def main():
    rows = []
    for name in [word for word in sys.argv[1:] if word in ("textures", "birds", "objects")] or SETS:
        images, classes = _images(name)
        for tuned, packed in (("block", False), ("block", True), ("vectors", False)):
            backbone = load_backbone(BACKBONE, tuned=tuned)
            bank = build_bank(images, np.arange(len(images)), backbone, n_views=N_VIEWS)
            found = [right(name, draw, classes, bank, backbone, packed) for draw in range(DRAWS)]
            size = bank.n_bytes / len(bank) / (1 + N_VIEWS) / (2 if packed else 1)
            row = {"set": name, "tokens": tuned, "as": "int8" if packed else "half"}
            row |= {"bytes per view": size, "frozen": mean(found, 0), "trained": mean(found, 1)}
            rows.append(row)
            print(table(rows), flush=True)


def right(name, draw, classes, bank, backbone, packed):
    """Percent of a draw without training, and with."""
    cell = Cell(name, "10", 0.5, 20, draw)
    rows, true, labels, n_known = drawn(cell, np.arange(len(classes)), classes)
    source = Rows(bank, rows, packed=packed)
    samples = Samples(source, labels, n_known, backbone, n_views=N_VIEWS)
    found = []
    for epochs in (0, EPOCHS):
        answer = learn(samples, short_plan(epochs), allowed=None, seed=draw).answer
        found.append(shares(answer.images.class_ids, true, labels, n_known)["all"])
    return found


def mean(found, which):
    return float(np.mean([each[which] for each in found]))


if __name__ == "__main__":
    main()
