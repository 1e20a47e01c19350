"""Learn the whitening of EfficientNet-Lite0, and say what it is worth on sets it has not seen.

BACON_DATA=FOLDER python -m bench.whitening   writes the file that the package ships, prints a table

Not one of `make bench`: a benchmark that is run with all others must not change the package.
"""

import torch

from bacon_gcd.backbone.catalogue import LITE
from bacon_gcd.backbone.whitening import STORED, store_whitening
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.space import centered
from bench.discovery_sets import (
    DEVELOPED_ON,
    ONLY_REPORTED,
    features_of,
    learned_whitening,
    lite_weights,
    plain_features,
)
from bench.measure import table


def same_class(x, classes):
    """Percent of the ten nearest images that are of the same class."""
    near = nearest(centered(torch.from_numpy(x)), n_neighbors=10)
    return float(100 * (classes[near] == classes[:, None]).mean())


def main():
    torch.set_num_threads(1)
    learned = learned_whitening([plain_features(name, LITE) for name in DEVELOPED_ON])
    path = STORED / f"{LITE}.safetensors"
    known = ", ".join(DEVELOPED_ON)
    store_whitening(path, learned, weights=lite_weights(), learned_on=known)
    rows = []
    for name in DEVELOPED_ON + ONLY_REPORTED:
        plain, whitened = plain_features(name, LITE), features_of(name, LITE)
        rows.append({"set": name, "plain": same_class(*plain), "whitened": same_class(*whitened)})
    print(table(rows))


if __name__ == "__main__":
    main()
