"""Guesses of class sizes: planted ones are found, and what cannot be told is not told."""

import pytest
import torch

from bacon_gcd.methods import class_sizes
from bacon_gcd.methods.class_sizes import (
    clustered,
    clustered_counts,
    counts_from_confusion,
    held_out,
    spread_counts,
    without_labeled,
)
from tests.planted import planted


def test_clusters_of_any_length_give_back_the_planted_sizes():
    problem = planted(spread=0.05)
    features = problem.data.source.test(range(len(problem.true)))
    sizes = {"n_classes": 6, "n_known": 4, "rank_match": False}
    found = clustered_counts(features, problem.data.labels, **sizes)
    novel = sorted(problem.counts[4:], reverse=True)
    assert found.tolist() == [*problem.counts[:4], *novel]
    lengths = 1 + torch.rand(len(features), 1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(clustered_counts(lengths * features, problem.data.labels, **sizes), found)


def test_many_images_are_clustered_from_a_sample_as_well_as_from_all(monkeypatch):
    problem = planted(spread=0.6, n_max=400)
    features = problem.data.source.test(range(len(problem.true)))
    whole = clustered(features, 6, restarts=3)
    monkeypatch.setattr(class_sizes, "SAMPLED", 200)
    monkeypatch.setattr(class_sizes, "ROUNDS", 3)
    sampled = clustered(features, 6, restarts=3)
    assert sampled.n_iterations <= 3
    assert len(sampled.labels) == len(features)
    assert sampled.inertia < 1.02 * whole.inertia


def test_known_classes_keep_their_labeled_shape_and_novel_ones_get_an_even_share():
    counts = spread_counts(torch.tensor([30.0, 10.0]), 4, 80)
    assert counts.tolist() == [30.0, 10.0, 20.0, 20.0]
    assert spread_counts(torch.tensor([3.0, 0.0]), 2, 10).sum() == pytest.approx(10)
    assert spread_counts(torch.empty(0), 4, 8).tolist() == [2.0] * 4


def test_true_sizes_lose_what_is_labeled():
    left = without_labeled(torch.tensor([10.0, 4, 6]), torch.tensor([5.0, 4]), 11)
    assert left.tolist() == [5.0, 0.0, 6.0]
    clipped = without_labeled(torch.tensor([10.0, 3, 6]), torch.tensor([5.0, 4]), 22)
    assert clipped.tolist() == [10.0, 0.0, 12.0]


def test_at_most_half_of_a_class_is_held_out():
    labels = torch.tensor([0, 1, 0, 0, -1, 0, 0, 2, -1, 2])
    assert held_out(labels, most=10).nonzero().squeeze(1).tolist() == [0, 2, 7]
    assert held_out(labels, most=1).nonzero().squeeze(1).tolist() == [0, 7]
    assert not held_out(torch.full((3,), -1), most=1).any()


def test_confusions_give_back_the_true_counts():
    confusion = torch.tensor([[0.8, 0.1], [0.2, 0.9]], dtype=torch.float64)  # columns: true class
    held_out, labels = confusion.T[[0, 0, 1]], torch.tensor([0, 0, 1])
    unlabeled = confusion.T[[0] * 7 + [1] * 3]
    counts = counts_from_confusion(held_out, labels, unlabeled)
    torch.testing.assert_close(counts, torch.tensor([7.0, 3.0], dtype=torch.float64))


@pytest.mark.parametrize(("condition", "trusted"), [(90, True), (110, False)])
def test_confusions_are_trusted_up_to_a_condition_of_100(condition, trusted):
    tilt = 0.5 / condition
    held_out = torch.tensor([[0.5 + tilt, 0.5 - tilt], [0.5 - tilt, 0.5 + tilt]]).double()
    counts = counts_from_confusion(held_out, torch.tensor([0, 1]), held_out)
    assert (counts is not None) == trusted


def test_unsure_confusions_give_nothing():
    alike = torch.tensor([[0.5, 0.5], [0.501, 0.499]])
    assert counts_from_confusion(alike, torch.tensor([0, 1]), alike) is None
    sure = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    assert counts_from_confusion(sure, torch.tensor([0, 0]), sure) is None
    beyond = torch.tensor([[1.0, 0.0]])  # more sure than class 0 ever is: class 1 would be negative
    assert counts_from_confusion(sure, torch.tensor([0, 1]), beyond) is None
