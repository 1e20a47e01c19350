import numpy as np
import pytest
import torch

from bacon_gcd.classes import fragments as module
from bacon_gcd.classes.count import ClassNumber, measured_share
from bacon_gcd.classes.fragments import (
    fragment_edge,
    fragments,
    without_fragments,
    without_lone_classes,
)
from bacon_gcd.classes.membership import view_of
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import reduced
from tests.classes.planted_features import planted, small_view, some_labels


def test_the_edge_lies_between_known_and_new_scores_below_the_threshold():
    known, new = np.array([9.0, 8.0, -1.0]), np.array([5.0, -10.0, -12.0])
    found = fragment_edge(known, new, 0.0, Rules(edge=0.4))
    assert found == pytest.approx(0.6 * -1 + 0.4 * -11)
    assert fragment_edge(np.array([3.0]), np.array([4.0]), 0.0) == 0.0


def test_scores_on_the_line_do_not_count_in_the_edge():
    found = fragment_edge(np.array([0.0, -2.0]), np.array([0.0, -8.0]), 0.0, Rules(edge=0.25))
    assert found == pytest.approx(0.75 * -2 + 0.25 * -8)


def test_a_group_just_below_the_threshold_is_a_fragment_of_a_known_class():
    features, ids = planted(6)
    labels = some_labels(ids, 4, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    score = np.where(ids == 4, -1.0, np.where(ids == 5, -30.0, 10.0))
    number = ClassNumber(6, (5, 9), {"heights": 6})
    known, new = np.array([5.0, -1.0]), np.array([-30.0])  # half of the known images are missed
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found.estimate, found.interval) == (5, (5, 9))
    assert (moved[ids == 4] == 0.0).all()
    assert (moved[ids == 5] == -30.0).all()
    assert (score[ids == 4] == -1.0).all()


def test_no_more_images_return_than_known_ones_are_missed():
    features, ids = planted(6)
    labels = some_labels(ids, 4, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    score = np.where(ids == 4, -1.0, np.where(ids == 5, -30.0, 10.0))
    number = ClassNumber(6, (5, 9), {"heights": 6})
    known, new = np.array([5.0] * 99 + [-1.0]), np.array([-30.0])  # one in a hundred is missed
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert found == number
    assert np.array_equal(moved, score)


def test_fragments_are_the_highest_groups_above_the_edge():
    groups, scores = np.array([0, 0, 1, 1, 2, 3]), np.array([-2.0, -2.0, -1.0, -1.0, -1.5, -9.0])
    assert fragments(groups, scores, 4, edge=-3.0, most=3).tolist() == [False, True, True, False]
    assert fragments(groups, scores, 4, edge=-1.2, most=9).tolist() == [False, True, False, False]
    assert not fragments(groups, scores, 4, edge=-3.0, most=0).any()


@pytest.mark.parametrize(("below", "missed"), [(1, 0.2), (4, 0.5)])
def test_fragments_have_as_many_images_as_known_ones_are_missed(below, missed, monkeypatch):
    view, labels, ids = small_view()
    asked = {}

    def none_gone(groups, scores, n_groups, **named):
        asked.update(named, scores=scores.tolist(), n_groups=n_groups)
        return np.zeros(n_groups, dtype=bool)

    monkeypatch.setattr(module, "fragments", none_gone)
    score = np.where(ids == 3, -5.0, 5.0)
    score[labels == 0] = -9.0  # labeled images are not new, whatever their score is
    known, new = np.array([-1.0] * below + [0.0] + [1.0] * (4 - below)), np.array([-3.0])
    number = ClassNumber(3, (3, 9), {"heights": 3})
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found, moved.tolist()) == (number, score.tolist())
    n_above = int((labels < 0).sum()) - 10
    share = 1 - measured_share(2)
    assert asked["most"] == pytest.approx(share * missed / (1 - missed) * n_above)
    assert asked["edge"] == pytest.approx(0.75 * -1 + 0.25 * -3)
    assert (asked["scores"], asked["n_groups"]) == ([-5.0] * 10, 1)


def test_without_a_new_class_there_is_no_fragment():
    view, labels, _ = small_view()
    score, number = np.full(len(labels), -1.0), ClassNumber(2, (2, 4), {"heights": 2})
    found = without_fragments(view, labels, score, 0.0, score, score, number)
    assert found[0] is number
    assert found[1] is score


@pytest.mark.parametrize("n_known", [1, 2])
def test_the_only_new_class_can_be_a_fragment_and_the_interval_holds_that(n_known):
    view, labels, ids = small_view(n_known)
    score = np.where(ids == 3, -1.0, 5.0)
    number = ClassNumber(n_known + 1, (n_known + 1, 9), {"heights": n_known + 1})
    known, new = np.array([-1.0, 1.0]), np.array([-9.0])
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found.estimate, found.interval) == (n_known, (n_known, 9))
    assert (moved == np.where(ids == 3, 0.0, 5.0)).all()


def test_a_group_on_the_edge_is_a_fragment_and_an_empty_one_has_the_mean_zero():
    groups, scores = np.array([0, 2]), np.array([-2.0, -1.0])
    assert fragments(groups, scores, 3, edge=-2.0, most=9).tolist() == [True, True, True]
    assert fragments(groups, scores, 3, edge=-0.5, most=9).tolist() == [False, True, False]


def test_a_new_class_of_one_image_is_no_class():
    """Columns: two known classes, then new ones of 2, 1 and 1 images."""
    best = [0, 1, 2, 2, 3, 4]
    scores = 0.1 * torch.tensor(
        [[0.0, 0, 0, 0, 0], [0] * 5, [0] * 5, [0] * 5, [0, 0, 5, 0, 4], [0] * 5]
    )
    scores[torch.arange(6), torch.tensor(best)] = 1.0
    labels = np.array([0, 1, -1, -1, -1, -1])
    number = ClassNumber(5, (5, 9), {"pairs": 5})
    found, left = without_lone_classes(number, scores, labels, least=2)
    assert (found.estimate, found.interval) == (3, (3, 9))
    assert left.argmax(dim=1).tolist()[:5] == [0, 1, 2, 2, 2]
    asked, left = without_lone_classes(number, scores, labels, least=4)
    assert asked.estimate == left.shape[1] == 4


@pytest.mark.parametrize("n_known", [0, 1])
def test_the_first_new_class_can_be_alone_and_a_known_one_stays(n_known):
    """One image of each known class, labeled; then new classes of 1 and 2 images."""
    alone, pair = n_known, n_known + 1
    labels = np.array([0] * n_known + [-1, -1, -1])
    scores = torch.zeros(n_known + 3, n_known + 2)
    scores[:-2, alone] = 1.0  # also of the labeled image, which stays in its class
    scores[-2:, pair] = 1.0
    number = ClassNumber(n_known + 2, (1, 9), {"pairs": n_known + 2})
    found, left = without_lone_classes(number, scores, labels, least=1)
    assert found.estimate == n_known + 1
    assert torch.equal(left, scores[:, [*range(n_known), pair]])


@pytest.mark.parametrize("least", [3, 9])
def test_a_class_of_one_image_stays_where_no_fewer_classes_are_allowed(least):
    number = ClassNumber(3, (3, 3), {"pairs": 3})
    found, left = without_lone_classes(number, torch.eye(3), np.full(3, -1), least=least)
    assert (found, left.shape) == (number, (3, 3))
