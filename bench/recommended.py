"""BaCon-S on pooled features of stored views, of a part of a benchmark: one row per variant.

python -m bench.recommended cifar100-lt --part 6 --seed 0 released recommended \
    recommended,contrasted=features

Columns: k-means on the test images; found classes on test images; the same on unlabeled images.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import prepare
from bacon_gcd.classes.placed import nearest_class, place_classes
from bacon_gcd.cluster import kmeans
from bacon_gcd.methods import recipe_for, settings_for
from bacon_gcd.metrics import anchored, score
from bacon_gcd.training.embed import embed, embed_views
from bacon_gcd.training.start import new_trainer

RECIPE = {"epochs": 20, "learning_rate": 0.02, "batch_size": 128}


@dataclass(frozen=True)
class Problem:
    """Vectors at their own length: of unit ones the projector makes a single point."""

    train: ReadyTokens
    labels: np.ndarray
    true: np.ndarray
    test: ReadyTokens
    true_test: np.ndarray
    n_classes: int
    n_known: int
    seed: int


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("variants", nargs="*", help="PRESET or PRESET,setting=value,...")
    parser.add_argument("--part", type=int, default=6, help="one image of so many of each class")
    parser.add_argument("--test", type=int, default=10, help="test images of each class")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    problem = part_of(asked)
    tail = Vectors(problem.test.token_shape[0]).new_tail()
    show("frozen", problem, embed_views(tail, problem.train, n_views=0), tail)
    show("frozen, averaged views", problem, embed_views(tail, problem.train, n_views=4), tail)
    for variant in asked.variants:
        features = trained(variant, problem)
        show(variant, problem, embed_views(features, problem.train, n_views=0), features)


def part_of(asked):
    """Every part-th image of each class, of the labeled and of the others; four stored views."""
    settings = RunSettings(
        dataset=asked.dataset, method="bacon-s", tuned="vectors", trunk="float32", views="4"
    )
    bench = prepare(resolve(settings, changes={}, recipe={}), data=None)
    seen, true = bench.labels >= 0, bench.true_train
    groups = [np.flatnonzero((true == c) & (seen == k)) for c in np.unique(true) for k in (0, 1)]
    rows = np.sort(np.concatenate([each[:: asked.part] for each in groups]))
    tested = [np.flatnonzero(bench.true_test == c)[: asked.test] for c in np.unique(true)]
    tested = np.sort(np.concatenate(tested))
    views = torch.stack([bench.train_source.stored_view(rows, v) for v in range(5)], dim=1)
    print(f"{len(rows)} images, {seen[rows].sum()} labeled; {len(tested)} test images", flush=True)
    return Problem(
        ReadyTokens(views, n_views=4),
        bench.labels[rows],
        true[rows],
        ReadyTokens(bench.test_source.test(tested)),
        bench.true_test[tested],
        bench.split.n_classes,
        bench.split.n_known,
        asked.seed,
    )


def trained(variant, problem):
    """The features of the variant after training."""
    preset, *pairs = variant.split(",")
    changes = {"projector_width": "0"} | dict(pair.split("=") for pair in pairs)
    trainer = new_trainer(
        "bacon-s",
        settings_for("bacon-s", preset=preset, changes=changes),
        recipe_for("bacon-s", preset=preset, changes=RECIPE),
        problem.train,
        problem.labels,
        Vectors(problem.test.token_shape[0]),
        n_classes=problem.n_classes,
        n_known=problem.n_known,
        seed=problem.seed,
    )
    trainer.run()
    return trainer.method.features


def show(variant, problem, train, function):
    """A row of a table."""
    test = F.normalize(embed(function, problem.test), dim=1)
    clusters = kmeans(test, problem.n_classes, n_init=10, seed=0).labels
    found = place_classes(
        train,
        problem.labels,
        n_classes=problem.n_classes,
        n_known=problem.n_known,
        seed=problem.seed,
    )
    free = problem.labels < 0
    cells = (
        cell(clusters, problem.true_test, problem),
        cell(nearest_class(test, found.centroids), problem.true_test, problem, named=True),
        cell(found.class_ids[free], problem.true[free], problem, named=True),
    )
    print(f"| {variant}, seed {problem.seed} | " + " | ".join(cells) + " |", flush=True)


def cell(predicted, true, problem, *, named=False):
    """All / old / new, and the same by name where class ids are those of the labels."""
    n_known, ids = problem.n_known, np.arange(problem.n_classes)
    counts = np.bincount(problem.true, minlength=problem.n_classes)
    parts = [score(predicted, true, n_known=n_known, train_counts=counts)]
    if named:
        names = np.where(ids < n_known, ids, -1)
        parts.append(anchored(predicted, true, names=names, n_known=n_known))
    return "; ".join(f"{p.all:.1f} / {p.old:.1f} / {p.new:.1f}" for p in parts)


if __name__ == "__main__":
    main()
