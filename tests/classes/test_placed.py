"""A given number of classes, placed: ids of known classes, empty ones, and correspondence."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes.placed import Placed, in_correspondence, nearest_class, place_classes
from bacon_gcd.cluster import match, unit
from tests.planted import planted


def placed_of(problem, labels=None):
    features = unit(problem.data.source.test(np.arange(len(problem.true))))
    labels = problem.data.labels if labels is None else labels
    return place_classes(features, labels, n_classes=6, n_known=4, seed=0)


def test_planted_classes_get_their_true_counts_and_known_ones_their_ids():
    problem = planted(spread=0.05)
    placed = placed_of(problem)
    assert placed.counts[:4].tolist() == problem.counts[:4].tolist()
    assert placed.counts[4:].tolist() == sorted(problem.counts[4:], reverse=True)
    known = problem.true < 4
    assert (placed.class_ids[known] == problem.true[known]).all()


def test_a_known_class_without_labels_leaves_the_ids_of_the_others_alone():
    problem = planted(spread=0.05)
    labels = np.where(problem.data.labels == 1, -1, problem.data.labels)
    placed = placed_of(problem, labels)
    for c in (0, 2, 3):
        assert (placed.class_ids[problem.true == c] == c).all()
    # Classes 1, 4 and 5 have no names: they share the ids 1, 4 and 5 in some order.
    found = match(placed.class_ids, problem.true, 6)
    assert (found[placed.class_ids] == problem.true).all()


@pytest.mark.parametrize("n_images", [1, 2, 3, 5])
@pytest.mark.parametrize("n_labeled", [0, 1, 2])
def test_with_fewer_images_than_classes_the_last_classes_are_empty(n_images, n_labeled):
    features = unit(torch.randn(n_images, 8, generator=torch.Generator().manual_seed(0)))
    labels = np.where(np.arange(n_images) < n_labeled, 2 * np.arange(n_images), -1)
    placed = place_classes(features, labels, n_classes=9, n_known=3, seed=0)
    assert placed.centroids.shape == (9, 8)
    assert torch.isfinite(placed.centroids).all()
    filled = placed.centroids.any(dim=1).numpy()
    assert filled.sum() == n_images
    assert filled[placed.class_ids].all()
    assert (placed.class_ids[labels >= 0] == labels[labels >= 0]).all()
    assert set(nearest_class(features, placed.centroids)) <= set(np.flatnonzero(filled))
    assert (placed.counts >= 1).all()


def test_novel_classes_keep_their_ids_from_time_to_time_whatever_their_order_of_size():
    centroids = torch.eye(6)
    earlier = Placed(np.array([0, 1, 2, 3, 4, 5, 5]), centroids, 0.1)
    order = torch.tensor([0, 1, 4, 5, 3, 2])  # novel classes 2..5 come in another order
    now = Placed(np.array([0, 1, 2, 3, 4, 5, 5]), unit(centroids[order] + 0.1), 0.1)
    kept = in_correspondence(now, earlier.centroids, n_known=2)
    assert kept.centroids.argmax(dim=1).tolist() == [0, 1, 2, 3, 4, 5]
    assert kept.class_ids.tolist() == [0, 1, 4, 5, 3, 2, 2]
    assert kept.counts.tolist() == [1, 1, 2, 1, 1, 1]
