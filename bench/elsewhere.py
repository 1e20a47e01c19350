"""How many images of sets that nobody tuned for are sorted right: any labeled folders.

BENCH_SETS=FOLDER python -m bench.elsewhere [SET ...]   FOLDER/SET/images holds the images of a set,
FOLDER/SET/truth.csv their classes (columns file_name, class). For each set 48 cells: labels per
known class 1, 3, 10, half; share of known classes 0.5, 0.8; long-tail ratio 1, 20; three draws; at
most 60 images of a class. Beside us what needs the true number of classes, or no labels.

Not one of `make bench`: features take a tenth of a second an image.
"""

import os
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

from bench.discovery import ours, shares
from bench.discovery_rivals import RIVALS
from bench.discovery_sets import LABELS, as_discovered, described, labeled_folder, mixture
from bench.measure import table

LARGEST, DRAWS, SHARES, RATIOS = 60, 3, (0.5, 0.8), (1, 20)
BESIDE = (
    "semi-supervised k-means (GCD), true K",
    "Ward, true K",
    "KMeans, true K",
    "LabelSpreading + HDBSCAN",
)


def some_of(folder):
    """(N, D + E) features of some images of each class, edges behind them, and (N,) classes."""
    images, classes = labeled_folder(folder)
    rng = np.random.default_rng(0)
    some = [rng.permutation(np.flatnonzero(classes == c))[:LARGEST] for c in np.unique(classes)]
    rows = np.sort(np.concatenate(some))
    return described(f"elsewhere-{folder.name}", images, rows, classes), classes[rows]


def cells_of(name, x, classes):
    """Features, true classes (known first), visible labels and the number of known classes."""
    asked = [(d, k, s, r) for d in range(DRAWS) for k in LABELS for s in SHARES for r in RATIOS]
    for draw, labeled, share, ratio in asked:
        rng = np.random.default_rng([zlib.crc32(name.encode()), draw])
        order = rng.permutation(np.unique(classes))
        ranks, n_known = rng.permutation(len(order)), max(1, round(share * len(order)))
        rows, true, labels = mixture(
            classes,
            order,
            ranks,
            rng,
            largest=LARGEST,
            ratio=ratio,
            labeled=labeled,
            n_known=n_known,
        )
        yield as_discovered(x[rows], labels), true, labels, n_known


def row(name, cells):
    """Means over the cells of a set."""
    found, beside = [], {method: [] for method in BESIDE}
    for x, true, labels, n_known in cells:
        found.append(ours(x, true, labels, n_known))
        for method in BESIDE:
            classes = RIVALS[method](x, labels, n_known, int(true.max()) + 1)
            beside[method].append(shares(classes, true, labels, n_known)["all"])

    def mean(key):
        return float(np.mean([each[key] for each in found if each[key] is not None]))

    told = [abs(each["expected"] - each["all"]) for each in found if each["expected"] is not None]
    return {
        "set": name,
        "cells": len(found),
        "ours": mean("all"),
        **{method: float(np.mean(values)) for method, values in beside.items()},
        "new called known": mean("new_as_known"),
        "AUROC": mean("auroc"),
        "error of K": float(np.median([each["count_error"] for each in found])),
        "interval holds K": mean("holds"),
        "calibration": mean("calibration"),
        "told within 8": float(np.mean(np.array(told) <= 8)),
        "its interval holds": mean("told_rightly"),
    }


def main():
    torch.set_num_threads(1)
    folder, rows = Path(os.environ["BENCH_SETS"]), []
    names = sys.argv[1:] or sorted(each.parent.name for each in folder.glob("*/truth.csv"))
    for name in names:
        rows.append(row(name, cells_of(name, *some_of(folder / name))))
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
