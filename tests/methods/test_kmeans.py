"""The two methods that need no training; the algorithm itself is in test_cluster."""

import numpy as np
import pytest
import torch

from bacon_gcd.methods.kmeans import class_slots
from tests.method_runs import only, trainer_for
from tests.planted import planted


@pytest.mark.parametrize(
    ("names", "n_known", "expected"),
    [
        ([1, -1, 0, -1], 2, [1, 2, 0, 3]),  # named clusters, the others are novel
        ([-1, -1, 0, -1], 2, [2, 3, 0, 1]),  # nobody took class 1: the last cluster does
        ([-1, -1], 0, [0, 1]),
        ([0, 1, 2, 3], 4, [0, 1, 2, 3]),
    ],
)
def test_each_cluster_gets_one_class_id(names, n_known, expected):
    slots = class_slots(np.array(names), n_known=n_known, n_classes=max(4, len(names)))
    assert slots.tolist() == expected


def test_labels_name_plain_clusters_but_hold_anchored_ones():
    """Two labels on the wrong side: anchored clusters follow them, plain ones do not."""
    problem = planted(n_classes=3, n_known=2, spread=0.05, ratio=1.0, n_max=12)
    labels = problem.data.labels.copy()
    strangers = np.flatnonzero(problem.true == 2)[:2]
    labels[strangers] = 0
    problem = only(problem, np.arange(len(labels)), labels)
    centroids = {}
    for name in ("kmeans", "anchored-kmeans"):
        trainer = trainer_for(name, problem)
        trainer.method.place_centroids(trainer.probe)
        centroids[name] = trainer.method.centroids
    true_mean = problem.data.source.test(np.flatnonzero(problem.true == 0)).mean(0)
    closeness = {n: float(c[0] @ true_mean / true_mean.norm()) for n, c in centroids.items()}
    assert closeness["kmeans"] > 0.999
    assert closeness["anchored-kmeans"] < closeness["kmeans"] - 0.005


def test_fewer_images_than_classes_leave_classes_empty():
    problem = planted(n_classes=6, n_known=1, n_max=8)
    problem = only(problem, np.flatnonzero(problem.true == 0)[:4])
    trainer = trainer_for("kmeans", problem)
    trainer.method.place_centroids(trainer.probe)
    assert (trainer.method.centroids.norm(dim=1) > 0).sum() == 4


def test_the_two_methods_are_one_with_a_switch():
    problem = planted(n_classes=12, n_known=2, spread=2.0)

    def placed(name, **changes):
        trainer = trainer_for(name, problem, **changes)
        trainer.method.place_centroids(trainer.probe)
        return trainer.method

    plain, anchored = placed("kmeans"), placed("anchored-kmeans")
    switched, quick = placed("kmeans", anchored=True), placed("anchored-kmeans", restarts=1)
    assert (plain.headline, anchored.headline) == ("test_kmeans", "inductive")
    assert switched.headline == "inductive"
    assert torch.equal(switched.centroids, anchored.centroids)
    assert not torch.equal(quick.centroids, anchored.centroids)
