"""Classes, outliers and suspected labels on rows whose answer is known."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes.assign import (
    choose_side,
    class_radii,
    fits_nowhere,
    radii,
    sort_by,
    suspects,
)


def test_labeled_rows_never_leave_their_class():
    shares = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]])
    labels = np.array([1, -1, -1, 1])
    found = sort_by(shares, labels, np.array([[1], [0], [3], [2]]), n_known=2)
    np.testing.assert_array_equal(found.class_ids, [1, 0, 1, 1])
    np.testing.assert_array_equal(found.confidence, [1, 0.8, 0.7, 1])


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


SURE = np.array([[0.3, 0.3, 0.4], [0.2, 0.1, 0.7], [0.45, 0.45, 0.1]])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(None, [2, 2, 0]), (0.5, [0, 2, 0]), (0.95, [2, 2, 2]), (0.0, [0, 0, 0])],
)
def test_the_threshold_decides_the_side_and_the_side_the_class(threshold, expected):
    np.testing.assert_array_equal(choose_side(SURE, 2, threshold), expected)


def test_a_probability_of_just_the_threshold_is_known():
    assert choose_side(np.array([[0.5, 0.5]]), 1, 0.5).tolist() == [0]


@pytest.mark.parametrize("n_known", [0, 3])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_where_one_side_has_no_class_the_best_of_all_is_taken(n_known, threshold):
    np.testing.assert_array_equal(choose_side(SURE, n_known, threshold), [2, 2, 0])


def test_no_rows_have_no_classes():
    assert choose_side(np.empty((0, 3)), 2, 0.5).shape == (0,)


def test_a_threshold_moves_unlabeled_rows_only():
    shares = np.array([[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]])
    labels, near = np.array([0, -1, -1]), np.array([[1], [0], [1]])
    sides = {t: sort_by(shares, labels, near, n_known=1, threshold=t) for t in (None, 1.0)}
    assert sides[None].class_ids.tolist() == [0, 0, 1]
    assert sides[1.0].class_ids.tolist() == [0, 1, 1]
    assert sides[1.0].confidence[1] == pytest.approx(1 - sides[None].confidence[1])
    assert sides[None].known_probability[0] == 1


def test_a_row_outside_the_radius_of_its_nearest_class_fits_nowhere():
    rows = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1], [1, 0.9], [0.1, 1]]), dim=1)
    limits = np.array([0.1, 0.001])
    assert fits_nowhere(rows, 7 * torch.eye(2), limits).tolist() == [False, True, True]


def test_labeled_rows_count_in_the_radius_of_their_own_class():
    rows = torch.eye(2)[[0] * 20 + [1] * 20]
    apart = class_radii(rows, np.full(40, -1), 3 * torch.eye(2))
    labels = np.repeat([-1, 0, -1], [20, 20, 0])
    mixed = class_radii(rows, labels, 3 * torch.eye(2))
    assert apart[0] < 0.01 < mixed[0]
