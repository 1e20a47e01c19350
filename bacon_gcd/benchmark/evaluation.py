"""Blocks of scores at the last epoch; the truth is used here and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.classes.placed import place_classes
from bacon_gcd.classes.sorter import sort_others
from bacon_gcd.cluster import as_ids, assign, kmeans
from bacon_gcd.methods.base import Method
from bacon_gcd.metrics import anchored, name_clusters, score
from bacon_gcd.training.embed import TrainProbe

IntArray = npt.NDArray[np.int64]
FINAL_RESTARTS = 10  # of the k-means that gives the headline number
JOINT = "joint_kmeans"
PLACED = "placed"


def evaluate(method: Method, bench: Workbench) -> dict[str, Any]:
    """Six blocks, `classifier` None for a method that has none; `joint_kmeans` where asked."""
    test = unit_features(method, test_probe(bench))
    train = unit_features(method, train_probe(bench))
    unlabeled = np.flatnonzero(bench.labels < 0)
    blocks = {
        "test_kmeans": clustered_block(test, train, bench, restarts=FINAL_RESTARTS),
        "inductive": block(method.nearest_class(test), bench.true_test, bench),
        "transductive": block(
            method.nearest_class(train[unlabeled]), bench.true_train[unlabeled], bench
        ),
        "classifier": classifier_block(method, bench),
        **placed_blocks(test, train, bench, found_on=class_features(method, bench)),
    }
    if method.headline == JOINT:
        blocks[JOINT] = joint_block(test, train, bench, restarts=FINAL_RESTARTS)
    return blocks


def clustered_block(
    test: Tensor, train: Tensor, bench: Workbench, *, restarts: int
) -> dict[str, Any]:
    """BaCon Algorithm 2: k-means on the test features. Labeled images name the clusters."""
    found = kmeans(test, bench.split.n_classes, n_init=restarts, seed=0)
    labeled = np.flatnonzero(bench.labels >= 0)
    names = name_clusters(
        assign(train[labeled], found.centroids),
        bench.labels[labeled],
        n_clusters=bench.split.n_classes,
        n_known=bench.split.n_known,
    )
    return block(found.labels, bench.true_test, bench, names=names)


def joint_block(test: Tensor, train: Tensor, bench: Workbench, *, restarts: int) -> dict[str, Any]:
    """GCD's semi-supervised k-means on training and test images together; scores of the latter.

    Labeled training images hold the known classes; nothing else tells the two kinds apart.
    """
    labels = np.concatenate([bench.labels, np.full(len(test), -1)])
    features = torch.cat([train, test])
    found = kmeans(features, bench.split.n_classes, labels=labels, n_init=restarts, seed=0)
    return block(found.labels[len(train) :], bench.true_test, bench)


def placed_blocks(
    test: Tensor, train: Tensor, bench: Workbench, *, found_on: Tensor | None = None
) -> dict[str, dict[str, Any]]:
    """Classes found from the training images alone: test images go where their evidence is.

    `placed_train` are the unlabeled training images, as they were sorted to find the classes.

    found_on: (N, D) unit features of the training images by which classes are found; `train`
        unless given.
    """
    n_classes, seed = bench.split.n_classes, bench.settings.seed
    found_on = train if found_on is None else found_on
    placed = place_classes(
        found_on, bench.labels, n_classes=n_classes, n_known=bench.split.n_known, seed=seed
    )
    with torch.device("cpu"):  # as classes are found
        answers = sort_others(
            test.cpu(), train.cpu(), placed.class_ids, bench.labels, n_classes=n_classes, seed=seed
        )
    unlabeled = np.flatnonzero(bench.labels < 0)
    found, true = placed.class_ids[unlabeled], bench.true_train[unlabeled]
    return {
        PLACED: block(answers, bench.true_test, bench),
        "placed_train": block(found, true, bench),
    }


def classifier_block(method: Method, bench: Workbench) -> dict[str, Any] | None:
    """The trained classifier's own answers on the test images."""
    if not method.has_classifier:
        return None
    logits = test_probe(bench).run(method.classify)
    return block(as_ids(logits.argmax(dim=1)), bench.true_test, bench)


def frozen_kmeans(bench: Workbench, *, restarts: int = FINAL_RESTARTS) -> dict[str, Any]:
    """k-means on the test images' untrained features: the baseline of every table."""
    tail = bench.backbone.new_tail().to(bench.device)
    features = F.normalize(test_probe(bench).run(tail), dim=1)
    found = kmeans(features, bench.split.n_classes, n_init=restarts, seed=0)
    return block(found.labels, bench.true_test, bench)


def frozen_placed(bench: Workbench) -> dict[str, Any]:
    """Classes found from the training images' untrained features; scores of the test images."""
    tail = bench.backbone.new_tail().to(bench.device)
    test, train = (F.normalize(probe.run(tail), dim=1) for probe in _probes(bench))
    return placed_blocks(test, train, bench)[PLACED]


def _probes(bench: Workbench) -> tuple[TrainProbe, TrainProbe]:
    return test_probe(bench), train_probe(bench)


def block(
    predicted: IntArray, true: IntArray, bench: Workbench, *, names: IntArray | None = None
) -> dict[str, Any]:
    """All/old/new, groups, spread, NMI, ARI, and the label-anchored accuracy."""
    n_known, n_classes = bench.split.n_known, bench.split.n_classes
    if names is None:  # class ids of a method: the first K are the known classes themselves
        names = np.where(np.arange(n_classes) < n_known, np.arange(n_classes), -1)
    scores = score(predicted, true, n_known=n_known, train_counts=bench.group_counts)
    by_label = anchored(predicted, true, names=names, n_known=n_known).as_dict()
    by_label.pop("mapping")
    return scores.as_dict() | {"anchored": by_label}


def quick_scores(method: Method, bench: Workbench) -> dict[str, float | None]:
    """All/old/new as the method answers, with one restart of k-means: a point of the curve."""
    scores = classifier_block(method, bench) if method.headline == "classifier" else None
    if scores is None:
        test = unit_features(method, test_probe(bench))
        if method.headline == JOINT:
            train = unit_features(method, train_probe(bench))
            scores = joint_block(test, train, bench, restarts=1)
        elif method.headline == PLACED:
            train = unit_features(method, train_probe(bench))
            found_on = class_features(method, bench)
            scores = placed_blocks(test, train, bench, found_on=found_on)[PLACED]
        else:
            found = kmeans(test, bench.split.n_classes, n_init=1, seed=0)
            scores = block(found.labels, bench.true_test, bench)
    return {part: scores[part] for part in ("all", "old", "new")}


def count_error(
    estimated: npt.NDArray[np.floating[Any]], true: IntArray, n_known: int
) -> dict[str, float]:
    """How far estimated class counts are from the truth. Ours.

    Total variation of the two distributions, 0 (equal) to 1; novel classes have no names, so both
    sides are compared in order of size.
    """
    ours, theirs = estimated / estimated.sum(), true / true.sum()
    known = np.abs(ours[:n_known] - theirs[:n_known]).sum() / 2
    novel = np.abs(np.sort(ours[n_known:]) - np.sort(theirs[n_known:])).sum() / 2
    return {"all": float(known + novel), "known": float(known), "novel": float(novel)}


def unit_features(method: Method, probe: TrainProbe) -> Tensor:
    """(N, D) unit-length features of every image."""
    return F.normalize(probe.run(method.features), dim=1)


def class_features(method: Method, bench: Workbench) -> Tensor:
    """(N, D) unit-length features of the training images on which the method finds classes."""
    return F.normalize(train_probe(bench).run(method.class_features), dim=1)


def train_probe(bench: Workbench) -> TrainProbe:
    """All training images, in order."""
    return TrainProbe(bench.train_source, bench.labels, bench.settings.seed, bench.device)


def test_probe(bench: Workbench) -> TrainProbe:
    """All test images, in order; their labels are hidden."""
    hidden = np.full(len(bench.test_source), -1)
    return TrainProbe(bench.test_source, hidden, bench.settings.seed, bench.device)
