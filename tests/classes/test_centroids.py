"""Two ways of placing the classes, and the choice between them."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes import centroids as placing
from bacon_gcd.classes.centroids import WAYS, better_way, by_clusters, by_parts, settle


def plant(sizes, *, n_known, share=0.5, spread=0.9, seed=0):
    """Unit rows around random directions; `share` of the known classes' rows have a label."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(len(sizes), 24))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    true = np.repeat(np.arange(len(sizes)), sizes)
    rows = centers[true] + spread * rng.normal(size=(len(true), 24)) / np.sqrt(24)
    labels = np.where((true < n_known) & (rng.random(len(true)) < share), true, -1)
    return torch.nn.functional.normalize(torch.from_numpy(rows).float(), dim=1), labels, true


def right(centroids, features, labels, true, n_known):
    """Share of unlabeled rows of known classes that get theirs."""
    found = (features @ torch.nn.functional.normalize(centroids, dim=1).T).argmax(dim=1).numpy()
    rows = (labels < 0) & (true < n_known)
    return float((found[rows] == true[rows]).mean())


def a_fifth(labels):
    held = np.zeros(len(labels), dtype=bool)
    held[np.flatnonzero(labels >= 0)[::5]] = True
    return held


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_classes", [3, 4, 5, 12])
def test_there_is_one_centroid_per_class_and_known_ones_come_first(way, n_classes):
    features, labels, true = plant([60, 40, 30, 20, 20], n_known=3)
    centroids = way(features, labels, n_classes, 0)
    assert centroids.shape == (n_classes, 24)
    assert torch.isfinite(centroids).all()
    if n_classes <= 5:
        assert right(centroids, features, labels, true, 3) > 0.9


def test_large_classes_with_many_labels_are_not_cut_up_by_parts():
    sizes = [600, 20, 10, 60, 30, 15]
    features, labels, true = plant(sizes, n_known=3, spread=1.5)
    kept = right(by_parts(features, labels, 6, 0), features, labels, true, 3)
    cut = right(by_clusters(features, labels, 6, 0), features, labels, true, 3)
    assert kept > cut + 0.1


def test_k_means_is_taken_only_if_it_is_right_about_clearly_more_held_out_labels(monkeypatch):
    features, labels, _ = plant([60, 40, 30, 20], n_known=3)
    held = a_fifth(labels)
    wrong = by_clusters(features, labels, 4, 0).roll(1, dims=0)
    monkeypatch.setattr(placing, "WAYS", (lambda *_: wrong, by_clusters))
    assert better_way(features, labels, held, n_classes=4, seed=0)[0] is by_clusters
    monkeypatch.setattr(placing, "WAYS", (by_clusters, by_clusters))
    assert better_way(features, labels, held, n_classes=4, seed=0)[0] is by_parts


def test_what_the_held_out_labels_say_is_told():
    features, labels, _ = plant([600, 20, 10, 60, 30, 15], n_known=3, spread=1.5)
    held = a_fifth(labels)
    way, reliability = better_way(features, labels, held, n_classes=6, seed=0)
    assert way is by_parts
    assert reliability is not None
    assert reliability.n_images == held.sum()


def test_without_held_out_labels_it_is_k_means():
    features, labels, _ = plant([30, 20, 10], n_known=2)
    none = np.zeros(len(labels), dtype=bool)
    assert better_way(features, labels, none, n_classes=3, seed=0) == (by_clusters, None)


def test_novel_classes_are_numbered_by_the_size_they_get():
    features, labels, _ = plant([60, 50, 15, 45, 25], n_known=2, spread=0.5)
    places = settle(features, labels, a_fifth(labels), n_classes=5, seed=0)
    found = (features @ places.centroids.T).argmax(dim=1).numpy()
    sizes = np.bincount(found[labels < 0], minlength=5)[2:]
    assert (np.diff(sizes) <= 0).all()
    assert sizes.tolist() == pytest.approx([45, 25, 15], abs=3)
