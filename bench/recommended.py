"""BaCon-S on pooled frozen features of a part of a benchmark: one line of scores per variant.

python -m bench.recommended DATASET --part 4 --seed 0 released recommended \
    recommended,start_heads=novel
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.backbone.sources import FreshTokens, ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import Workbench, prepare
from bacon_gcd.classes.placed import nearest_class, place_classes
from bacon_gcd.cluster import assign, kmeans
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.methods import recipe_for, settings_for
from bacon_gcd.methods.base import Method
from bacon_gcd.metrics import anchored, name_clusters, score
from bacon_gcd.training.embed import embed
from bacon_gcd.training.start import new_trainer

NOISE = 0.1  # of the training views, as a share of the features' standard deviation
RECIPE = {"epochs": 30, "learning_rate": 0.02, "batch_size": 128}


class Problem(NamedTuple):
    """Features of a part of the training images and of some test images, at their own length.

    Unit vectors will not do: the projector's first outputs are then so small that its bias takes
    over, all images project to one point, and the contrastive branch stops learning.
    """

    train: Tensor
    labels: np.ndarray
    true: np.ndarray
    test: Tensor
    true_test: np.ndarray
    n_classes: int
    n_known: int


def main() -> None:
    """Print the scores of frozen features and of each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("variants", nargs="*", help="PRESET or PRESET,setting=value,...")
    parser.add_argument("--part", type=int, default=4, help="one image of so many of each class")
    parser.add_argument("--test", type=int, default=2000, help="test images, as many of each class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features", type=Path, default=Path("features"), help="kept here")
    asked = parser.parse_intermixed_args()
    settings = resolve(RunSettings(dataset=asked.dataset, method="kmeans"), changes={}, recipe={})
    problem = pooled(prepare(settings, data=None), asked)
    print(f"{len(problem.train)} images, {(problem.labels >= 0).sum()} labeled", flush=True)
    show("frozen", None, problem, asked.seed)
    for variant in asked.variants:
        show(variant, trained(variant, problem, asked.seed), problem, asked.seed)


def pooled(bench: Workbench, asked: argparse.Namespace) -> Problem:
    """Features of the chosen images, computed once and kept in a file."""
    chosen = part_of(bench.true_train, bench.labels >= 0, asked.part)
    per_class = asked.test // bench.split.n_classes
    tested = np.sort(
        np.concatenate(
            [np.flatnonzero(bench.true_test == c)[:per_class] for c in range(bench.split.n_classes)]
        )
    )
    rows = np.concatenate([bench.split.train[chosen], bench.split.test[tested]])
    path = asked.features / f"{asked.dataset}-{asked.part}-{asked.test}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        view = ViewSettings(kind="weak", image_size=bench.backbone.image_size)
        source = FreshTokens(bench.table, rows, bench.backbone, view, workers=1)
        np.save(path, embed(bench.backbone.new_tail(), source).numpy())
    features = torch.from_numpy(np.load(path))
    return Problem(
        features[: len(chosen)],
        bench.labels[chosen],
        bench.true_train[chosen],
        features[len(chosen) :],
        bench.true_test[tested],
        bench.split.n_classes,
        bench.split.n_known,
    )


def part_of(classes: np.ndarray, labeled: np.ndarray, part: int) -> np.ndarray:
    """Every part-th image of each class, of the labeled and of the others; at least one."""
    groups = [
        np.flatnonzero((classes == c) & (labeled == kind))[::part]
        for c in np.unique(classes)
        for kind in (True, False)
    ]
    return np.sort(np.concatenate(groups))


def trained(variant: str, problem: Problem, seed: int) -> Method:
    """The variant, trained on the training vectors."""
    preset, *pairs = variant.split(",")
    changes = {"projector_width": "0"} | dict(pair.split("=") for pair in pairs)
    trainer = new_trainer(
        "bacon-s",
        settings_for("bacon-s", preset=preset, changes=changes),
        recipe_for("bacon-s", preset=preset, changes=RECIPE),
        ReadyTokens(problem.train, noise=NOISE),
        problem.labels,
        Vectors(problem.train.shape[1]),
        n_classes=problem.n_classes,
        n_known=problem.n_known,
        seed=seed,
    )
    trainer.run()
    return trainer.method


def show(variant: str, method: Method | None, problem: Problem, seed: int) -> None:
    """A row of a table: all / old / new, and by name, of each way to answer."""
    train, test = problem.train, problem.test
    if method is not None:
        train, test = (embed(method.features, ReadyTokens(part)) for part in (train, test))
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    n_classes, n_known, labels = problem.n_classes, problem.n_known, problem.labels
    own = np.where(np.arange(n_classes) < n_known, np.arange(n_classes), -1)
    clusters = kmeans(test, n_classes, n_init=10, seed=0)
    seen = np.flatnonzero(labels >= 0)
    names = name_clusters(
        assign(train[seen], clusters.centroids),
        labels[seen],
        n_clusters=n_classes,
        n_known=n_known,
    )
    placed = place_classes(train, labels, n_classes=n_classes, n_known=n_known, seed=seed)
    cells = [
        cell(clusters.labels, problem, names),
        cell(nearest_class(test, placed.centroids), problem, own),
    ]
    free = labels < 0
    cells.append(cell(placed.class_ids[free], problem, own, true=problem.true[free]))
    if method is not None:
        logits = embed(method.classify, ReadyTokens(problem.test))
        cells.append(cell(logits.argmax(dim=1).numpy(), problem, own))
        cells.append(f"{projected_cosine(method, problem.test[:: max(len(test) // 256, 1)]):.3f}")
    print(f"| {variant}, seed {seed} | " + " | ".join(cells) + " |", flush=True)


@torch.no_grad()
def projected_cosine(method: Method, vectors: Tensor) -> float:
    """Mean cosine of the projections of different images; 1: the branch has collapsed."""
    similarity = method.projector.cosines(method.features(vectors))
    n = len(similarity)
    return float((similarity.sum() - similarity.diagonal().sum()) / (n * (n - 1)))


def cell(
    predicted: np.ndarray, problem: Problem, names: np.ndarray, true: np.ndarray | None = None
) -> str:
    """All / old / new, then the same by name."""
    true = problem.true_test if true is None else true
    counts = np.bincount(problem.true, minlength=problem.n_classes)
    found = score(predicted, true, n_known=problem.n_known, train_counts=counts)
    named = anchored(predicted, true, names=names, n_known=problem.n_known)
    return (
        f"{found.all:.1f} / {found.old:.1f} / {found.new:.1f}; "
        f"{named.all:.1f} / {named.old:.1f} / {named.new:.1f}"
    )


if __name__ == "__main__":
    main()
