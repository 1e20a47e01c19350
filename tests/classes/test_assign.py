"""Classes, outliers and suspected labels on rows whose answer is known."""

import numpy as np
import pytest
import torch

from bacon_gcd.classes.assign import (
    best_known,
    choose_side,
    class_radii,
    fits_nowhere,
    probability_known,
    radii,
    second_choice,
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


def test_the_second_choice_is_the_likeliest_class_but_the_chosen_one():
    shares = np.array([[0.1, 0.9], [1.0, 0.0], [0.6, 0.4]])
    assert second_choice(shares, np.array([1, 0, 1])).tolist() == [0, 1, 0]
    # A class of probability zero is still another class.
    assert second_choice(np.array([[0.0, 1.0, 0.0]]), np.array([1])).tolist() == [0]


def test_where_there_is_one_class_nothing_comes_second():
    assert second_choice(np.ones((2, 1)), np.array([0, 0])).tolist() == [-1, -1]


def test_the_nearest_known_class_is_the_likeliest_of_the_known_ones():
    shares = np.array([[0.1, 0.2, 0.7], [0.4, 0.3, 0.3]])
    assert best_known(shares, 2).tolist() == [1, 0]
    assert best_known(shares, 1).tolist() == [0, 0]
    assert best_known(shares, 0).tolist() == [-1, -1]


def test_an_image_has_its_second_choice_and_its_nearest_known_class():
    shares = np.array([[0.2, 0.3, 0.5]])
    found = sort_by(shares, np.array([-1]), np.array([[0]]), n_known=2)
    assert (found.class_ids[0], found.second_choice[0], found.nearest_known[0]) == (2, 1, 1)


def test_rounding_makes_no_probability_greater_than_one():
    shares = np.full((1, 10), 0.1, dtype=np.float32)
    assert shares.sum(dtype=np.float64) > 1
    assert probability_known(shares, 10).tolist() == [1.0]
    assert probability_known(shares, 5)[0] == pytest.approx(0.5)


def test_of_several_novel_classes_the_best_is_taken():
    assert choose_side(np.array([[0.1, 0.2, 0.4, 0.3]]), 1, 0.5).tolist() == [2]


def test_a_row_just_on_the_radius_is_inside():
    assert fits_nowhere(torch.eye(2), torch.eye(2), np.zeros(2)).tolist() == [False, False]


def test_features_that_carry_a_gradient_are_compared_like_others():
    rows = torch.eye(2).requires_grad_()
    labels = np.full(2, -1)
    np.testing.assert_array_equal(
        class_radii(rows, labels, torch.eye(2)), class_radii(rows.detach(), labels, torch.eye(2))
    )
    assert fits_nowhere(rows, torch.eye(2), np.zeros(2)).tolist() == [False, False]


def spread_of(values):
    return 1.4826 * np.median(np.abs(values - np.median(values)))


def test_a_class_of_eight_has_its_own_radius_and_a_smaller_one_that_of_all():
    eight, seven = np.linspace(0.1, 0.8, 8), np.linspace(0.3, 0.5, 7)
    everyone = np.concatenate([eight, seven])
    limits = radii(everyone, np.repeat([0, 1], [8, 7]), 3)
    shared = np.median(everyone) + 3.5 * spread_of(everyone)
    expected = [np.median(eight) + 3.5 * spread_of(eight), shared, shared]
    np.testing.assert_allclose(limits, expected)


def test_a_class_is_never_taken_to_be_tighter_than_half_of_the_typical_spread():
    tight, wide = np.full(8, 0.2), np.linspace(0.0, 1.0, 9)
    everyone = np.concatenate([tight, wide])
    limits = radii(everyone, np.repeat([0, 1], [8, 9]), 2)
    assert limits[0] == pytest.approx(0.2 + 3.5 * spread_of(everyone) / 2)


def test_rounding_is_no_distance():
    assert radii(np.zeros(8), np.zeros(8, dtype=int), 1).tolist() == [1e-6]


def suspected(votes, *, size):
    """The suggestion for the first image, of class 0, whose neighbors are of these classes."""
    classes = np.repeat(np.arange(max(votes, default=0) + 1), size)
    labels = np.where(np.arange(len(classes)) == 0, 0, -1)
    near = np.zeros((len(classes), len(votes)), dtype=int)
    near[0] = [size * vote for vote in votes]  # the first image of each class
    return suspects(labels, classes, near)[0]


@pytest.mark.parametrize(
    ("votes", "suggestion"),
    [
        ([1, 1, 1, 1, 2, 3], 1),  # two thirds are enough
        ([1, 1, 1, 2, 3, 4], -1),
        ([1, 1, 1, 1, 1, 0], -1),  # one of its own class
        ([2], 2),
        ([], -1),
    ],
)
def test_two_thirds_of_the_neighbors_must_agree_and_none_be_of_the_own_class(votes, suggestion):
    assert suspected(votes, size=9) == suggestion


def test_a_class_that_just_fails_to_fill_the_neighbors_is_not_suspected():
    assert suspected([1, 1, 1], size=3) == -1  # an image has two others of its class
    assert suspected([1, 1, 1], size=4) == 1
