import inspect
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from bacon_gcd import losses
from bacon_gcd.classes.reliability import (
    CENTROID_TEMPERATURE,
    Checked,
    Signs,
    agreement_of_neighbors,
    expected,
    independent_images,
    regression_serves,
    share_interval,
    usual_accuracy,
    with_precision,
)
from bacon_gcd.classes.rules import Rules


def test_neighbors_in_the_same_class_make_an_answer_surer():
    classes = np.array([0, 0, 0, 1, 1, 1])
    apart = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    mixed = np.array([[1, 3], [0, 4], [0, 5], [4, 0], [3, 1], [3, 2]])
    everyone = np.ones(6, dtype=bool)
    assert agreement_of_neighbors(classes, apart, everyone) == 1.0
    assert agreement_of_neighbors(classes, mixed, everyone) == 0.5
    assert usual_accuracy(Signs(neighbors=1.0)) == pytest.approx(1.2 * (1 - 0.42))
    assert usual_accuracy(Signs(neighbors=0.5)) == 0.1


def test_only_unlabeled_images_are_asked():
    classes, neighbors = np.array([0, 0, 1]), np.array([[1], [0], [0]])
    assert agreement_of_neighbors(classes, neighbors, np.array([False, False, True])) == 0.0
    assert agreement_of_neighbors(classes, neighbors, np.zeros(3, dtype=bool)) is None
    assert usual_accuracy(Signs()) == 1.0


def test_without_hidden_images_halves_and_neighbors_tell_the_accuracy():
    rules = Rules(told_without_hidden=(0.5, 0.25, -0.1))
    assert usual_accuracy(Signs(0.8, 0.6), rules) == pytest.approx(0.5 * 0.8 + 0.25 * 0.6 - 0.1)
    assert usual_accuracy(Signs(0.0, 0.0), rules) == 0.05
    assert usual_accuracy(Signs(3.0, 3.0), rules) == 0.98


def test_halves_and_neighbors_move_what_hidden_images_say():
    rules = replace(RULES, told=(0.2, 0.4, 0.3, 0.01), told_images=40.0)
    alone = expected([CHECK], known_share=0.8, rules=rules)
    found = expected([CHECK], known_share=0.8, signs=Signs(0.7, 0.9), rules=rules)
    assert found.accuracy == pytest.approx(0.2 * alone.accuracy + 0.4 * 0.7 + 0.3 * 0.9 + 0.01)
    low, high = share_interval(found.accuracy, 40)
    assert alone.interval[0] < low  # hidden images say less, and may be right
    assert found.interval == (alone.interval[0], high)
    assert (found.halves, alone.halves) == (0.7, None)
    assert 0.8 * found.known + 0.2 * found.new == pytest.approx(found.accuracy)
    moves = [logit(getattr(found, name)) - logit(getattr(alone, name)) for name in ("known", "new")]
    assert moves == pytest.approx([moves[0]] * 2)
    assert expected([CHECK], known_share=0.8, signs=Signs(neighbors=0.9), rules=rules) == alone


def test_the_interval_is_not_longer_where_hidden_images_say_more():
    rules = replace(RULES, told=(0.2, 0.4, 0.3, -0.4), told_images=40.0)
    alone = expected([CHECK], known_share=0.8, rules=rules)
    found = expected([CHECK], known_share=0.8, signs=Signs(0.3, 0.4), rules=rules)
    assert found.interval == share_interval(found.accuracy, 40)
    assert found.interval[0] < alone.interval[0]


def test_images_of_each_side_are_as_often_right_as_they_are_sure():
    alone = expected([CHECK], known_share=0.75, rules=RULES)
    confidence = np.array([0.9, 0.7, 0.8, 0.2])
    found = with_precision(alone, confidence, np.array([True, True, True, False]))
    assert (found.precision, found.precision_new) == pytest.approx((0.8, 0.2))
    assert 0.75 * found.precision + 0.25 * found.precision_new == pytest.approx(confidence.mean())
    assert replace(found, precision=None, precision_new=None) == alone
    found = with_precision(alone, confidence, np.ones(4, dtype=bool))
    assert (found.precision, found.precision_new) == (pytest.approx(0.65), None)


def checked(right, is_known, hidden=(2,)):
    n = len(right)
    return Checked(
        np.arange(n),
        np.array(right, dtype=bool),
        np.array(is_known, dtype=bool),
        np.array(hidden),
    )


# Of 8 known images 6 are right, of 5 new ones 2.
CHECK = checked(
    right=[1] * 6 + [0] * 2 + [1, 1, 0, 0, 0],
    is_known=[1] * 8 + [0] * 5,
)
RULES = Rules(new_ease=0.5, still_missed=0.4)


def test_the_expected_accuracy_weighs_known_and_new_images_as_they_were_found():
    found = expected([CHECK], known_share=0.8, rules=RULES)
    n_known = independent_images(8)  # so few do not tell 1 - 0.4 * 2 / 8
    assert (found.known, found.new) == pytest.approx(((n_known + 1) / (n_known + 2), 0.5 * 2 / 5))
    assert found.accuracy == pytest.approx(0.8 * 0.9 + 0.2 * 0.5 * 2 / 5)
    assert (found.n_images, found.n_classes) == (13, 1)
    assert found.interval == share_interval(found.accuracy, 9)  # 1 / (1 / 13 + 1 / 25) = 8.6


def test_neither_side_is_forgotten_where_one_was_hardly_found():
    for asked, used in ((0.0, 0.05), (0.02, 0.05), (0.99, 0.95), (0.9, 0.9)):
        found = expected([CHECK], known_share=asked, rules=RULES)
        assert found.accuracy == pytest.approx(used * 0.9 + (1 - used) * 0.5 * 2 / 5)


def test_images_of_several_folds_count_once_and_their_hidden_classes_are_joined():
    found = expected([CHECK, replace(CHECK, hidden=np.array([0, 2]))], known_share=0.5)
    assert (found.n_images, found.n_classes) == (13, 2)


@pytest.mark.parametrize(("n_known", "n_new", "told"), [(5, 5, True), (4, 9, False), (9, 4, False)])
def test_too_few_images_of_a_kind_say_nothing(n_known, n_new, told):
    side = [1] * n_known + [0] * n_new
    assert (expected([checked(side, side, side)], known_share=0.5) is not None) == told
    assert expected([], known_share=0.5) is None


def test_many_images_of_one_set_say_as_much_as_a_few_independent_ones():
    rules = Rules(most_independent=25.0)
    assert [independent_images(n, rules) for n in (1, 5, 25, 100, 10**9)] == [1, 4, 12, 20, 25]


def test_the_interval_is_that_of_wilson():
    share, n, z = 0.7, 20, 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    assert share_interval(share, n) == pytest.approx((middle - half, middle + half), abs=1e-6)


def test_the_regression_is_left_out_where_hidden_images_clearly_speak_against_it():
    right, wrong = np.ones(5, dtype=bool), np.zeros(5, dtype=bool)
    assert regression_serves([])
    assert regression_serves([(right, right), (wrong, right)])
    assert not regression_serves([(right, wrong)])  # 5 more than 2 sqrt(5)
    assert regression_serves([(right[:4], wrong[:4])])  # 4 are as many as 2 sqrt(4)
    assert regression_serves([(right, wrong), (wrong[:2], right[:2])])  # 3 of 7
    assert not regression_serves([(right, wrong), (right, wrong), (wrong[:2], right[:2])])
    # Images that both have right, or both wrong, say nothing.
    assert regression_serves([(right[:4], wrong[:4]), (wrong, wrong), (wrong, wrong)])
    assert not regression_serves([(right, wrong), (right, right), (right, right)])


def test_centroids_have_the_temperature_of_the_classifier():
    of_student = inspect.signature(losses.self_distillation).parameters["student_temperature"]
    assert of_student.default == CENTROID_TEMPERATURE


def test_images_that_are_all_right_do_not_promise_that_all_others_are():
    check = checked([1] * 8, [1] * 4 + [0] * 4)
    found = expected([check, check], known_share=0.5, rules=Rules(new_ease=1.0))
    n_images = independent_images(8)  # of each kind
    assert found.known == found.new == (n_images + 1) / (n_images + 2) < 1
