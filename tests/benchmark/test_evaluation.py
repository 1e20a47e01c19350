"""Blocks of scores: what they may look at."""

from types import SimpleNamespace

import numpy as np
import torch

from bacon_gcd.benchmark import evaluation
from bacon_gcd.cluster import unit
from tests.planted import planted


def test_placed_classes_do_not_depend_on_the_test_images(monkeypatch):
    problem = planted(spread=0.5)
    train = unit(problem.data.source.test(np.arange(len(problem.true))))
    test = unit(problem.test.test(np.arange(len(problem.true_test))))
    bench = SimpleNamespace(
        labels=problem.data.labels,
        true_train=problem.true,
        true_test=problem.true_test,
        split=SimpleNamespace(n_classes=6, n_known=4),
        settings=SimpleNamespace(seed=0),
    )
    monkeypatch.setattr(evaluation, "block", lambda predicted, true, bench: predicted)
    whole = evaluation.placed_blocks(test, train, bench)["placed"]
    few = evaluation.placed_blocks(test[:7], train, bench)["placed"]
    assert whole[:7].tolist() == few.tolist()
    known = problem.true_test < 4
    assert (whole[known] == problem.true_test[known]).mean() > 0.9


def test_a_method_that_answers_by_placed_centroids_has_a_curve_of_them(monkeypatch):
    asked = []
    block = {"all": 1.0, "old": 2.0, "new": 3.0}
    monkeypatch.setattr(evaluation, "test_probe", lambda bench: "test")
    monkeypatch.setattr(evaluation, "train_probe", lambda bench: "train")
    monkeypatch.setattr(evaluation, "unit_features", lambda method, probe: torch.zeros(1))
    monkeypatch.setattr(evaluation, "class_features", lambda method, bench: "untrained")
    monkeypatch.setattr(
        evaluation,
        "placed_blocks",
        lambda *_, found_on: asked.append(found_on) or {"placed": block},
    )
    assert evaluation.quick_scores(SimpleNamespace(headline="placed"), None) == block
    assert asked == ["untrained"]
