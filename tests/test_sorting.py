"""Classes, outliers and suspected labels on rows whose answer is known."""

import numpy as np
import torch

from bacon_gcd.sorting import by_size, radii, sort_images, suspects


def test_novel_centroids_are_ordered_by_the_size_they_get():
    features = torch.eye(3)[[0, 1, 1, 2, 2, 2]]
    labels = np.array([0, -1, -1, -1, -1, -1])
    ordered = by_size(features, labels, 5 * torch.eye(3), n_known=1)
    torch.testing.assert_close(ordered, torch.eye(3)[[0, 2, 1]])


def test_labeled_rows_never_leave_their_class():
    features = torch.eye(2)[[0, 0, 1, 1]]
    labels = np.array([1, -1, -1, 1])
    found = sort_images(
        features, labels, torch.eye(2), np.array([[1], [0], [3], [2]]), temperature=0.1
    )
    np.testing.assert_array_equal(found.class_ids, [1, 0, 1, 1])
    np.testing.assert_array_equal(found.confidence[[0, 3]], 1)
    assert found.confidence[1] == np.float64(torch.tensor([10.0, 0.0]).softmax(0)[0])


def test_a_row_far_from_its_centroid_is_an_outlier():
    away = np.concatenate([np.linspace(0.1, 0.2, 30), [0.9], np.linspace(0.4, 0.5, 30), [0.45]])
    classes = np.repeat([0, 1], [31, 31])
    out = away > radii(away, classes, 2)[classes]
    assert np.flatnonzero(out).tolist() == [30]


def test_equal_rows_have_no_outlier_and_empty_classes_a_radius():
    limits = radii(np.zeros(10), np.zeros(10, dtype=int), 3)
    assert (limits > 0).all()
    assert np.isfinite(limits).all()


def test_a_label_all_neighbors_contradict_is_suspected():
    classes = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    labels = np.array([0, -1, -1, -1, 1, -1, -1, -1])
    neighbors = np.array([[4, 5, 6]] + [[2, 3, 1]] * 3 + [[5, 6, 7]] * 4)
    np.testing.assert_array_equal(suspects(labels, classes, neighbors), [1] + [-1] * 7)


def test_a_rare_class_is_not_suspected_for_lying_among_others():
    classes = np.array([0, 1, 1, 1, 1])
    labels = np.array([0, 1, -1, -1, -1])
    neighbors = np.array([[1, 2, 3]] + [[2, 3, 4]] * 4)
    assert (suspects(labels, classes, neighbors) == -1).all()
