"""Held-out labels, the temperature they choose, and the shares they tell."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes.calibration import hold_out, measure


def test_a_fifth_of_every_class_is_held_out_and_never_all():
    labels = np.repeat([0, 1, 2, -1], [20, 10, 1, 9])
    held = hold_out(labels, None, min_labels=2, seed=0)
    assert [int(held[labels == c].sum()) for c in (0, 1, 2, -1)] == [4, 2, 0, 0]


def test_classes_with_few_labels_keep_them():
    labels = np.repeat([0, 1], [4, 5])
    held = hold_out(labels, None, min_labels=5, seed=0)
    assert [int(held[labels == c].sum()) for c in (0, 1)] == [0, 1]


def test_groups_are_held_out_whole():
    labels = np.repeat([0, 1], 20)
    groups = [f"burst{row // 2}" for row in range(40)]
    held = hold_out(labels, groups, min_labels=2, seed=1)
    assert held.sum() == 8
    np.testing.assert_array_equal(held[::2], held[1::2])


def test_a_group_that_is_a_whole_class_stays():
    labels = np.zeros(10, dtype=int)
    assert not hold_out(labels, ["one"] * 10, min_labels=2, seed=0).any()
    assert not hold_out(np.full(5, -1), None, min_labels=2, seed=0).any()


def test_the_temperature_makes_confidence_come_true():
    rng = np.random.default_rng(0)
    cosines = torch.from_numpy(rng.uniform(0, 1, size=(4000, 3)).astype(np.float32))
    chances = (cosines / 0.2).softmax(dim=1).numpy()
    true = np.array([rng.choice(3, p=p / p.sum()) for p in chances])
    found = measure(cosines, true)
    assert found.temperature == pytest.approx(0.2, rel=0.1)
    assert found.error < 0.03
    assert sum(b.n_images for b in found.bins) == found.n_images == 4000
    assert found.interval[0] < found.accuracy < found.interval[1]


def test_one_held_out_label_gives_a_wide_interval():
    found = measure(torch.tensor([[0.9, 0.1]]), np.array([0]))
    assert found.accuracy == 1
    assert found.interval[0] < 0.3


def test_the_interval_is_wilsons():
    true = np.zeros(100, dtype=np.int64)
    cosines = torch.zeros(100, 2)
    cosines[:50, 0] = cosines[50:, 1] = 0.5  # half of the answers are right
    found = measure(cosines, true)
    assert found.interval == pytest.approx((0.4038, 0.5962), abs=1e-3)
    assert measure(cosines[:50], true[:50]).interval[1] == pytest.approx(1.0)
