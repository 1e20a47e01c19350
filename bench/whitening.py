"""Learn the whitening of the default backbone, and say what it is worth on sets it has not seen.

BACON_DATA=FOLDER python -m bench.whitening   writes the file that the package ships, prints a table

Not one of `make bench`: a benchmark that is run with all others must not change the package.
"""

import torch

from bacon_gcd.backbone.whitening import STORED, store_whitening
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.space import centered
from bench.discovery_sets import (
    BACKBONE,
    DEVELOPED_ON,
    ONLY_REPORTED,
    default_weights,
    features_of,
    learned_whitening,
    plain_features,
)
from bench.measure import table


def same_class(x, classes):
    """Percent of the ten nearest images that are of the same class."""
    near = nearest(centered(torch.from_numpy(x)), n_neighbors=10)
    return float(100 * (classes[near] == classes[:, None]).mean())


def main():
    torch.set_num_threads(1)
    learned = learned_whitening([plain_features(name) for name in DEVELOPED_ON])
    path = STORED / f"{BACKBONE}.safetensors"
    known = ", ".join(DEVELOPED_ON)
    store_whitening(path, learned, weights=default_weights(), learned_on=known)
    rows = []
    for name in DEVELOPED_ON + ONLY_REPORTED:
        plain, whitened = plain_features(name), features_of(name)
        rows.append({"set": name, "plain": same_class(*plain), "whitened": same_class(*whitened)})
    print(table(rows))


if __name__ == "__main__":
    main()
