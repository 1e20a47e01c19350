from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.classes import membership
from bacon_gcd.classes.clusterings import clusterings
from bacon_gcd.classes.membership import (
    best_classes,
    class_means,
    group,
    grouped,
    keep_one,
    nearest_known,
    new_rows,
    sort,
    view_of,
)
from bacon_gcd.classes.novelty import any_known, known_evidence
from bacon_gcd.classes.ridge import fit_ridge, less_by_size
from bacon_gcd.classes.space import reduced
from bacon_gcd.cluster import kmeans, unit
from tests.classes.planted_features import planted, small_view, some_labels
from tests.reference.ridge import squares_within, without_each


def test_points_for_grouping_lie_between_an_image_and_its_neighbors():
    features, ids = planted(4)
    labels = some_labels(ids, 2, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    near = view.space.directions[torch.from_numpy(view.neighbors[0])].mean(dim=0)
    torch.testing.assert_close(
        view.points[0], unit((view.space.directions[:1] + near) / 2)[0], atol=1e-5, rtol=1e-5
    )


def test_new_rows_are_those_below_the_line_and_enough_for_the_classes():
    score, free = np.array([5.0, 1.0, 3.0, -2.0, 9.0]), np.array([True] * 4 + [False])
    assert new_rows(score, 2.0, free, 1).tolist() == [1, 3]
    assert new_rows(score, 2.0, free, 2).tolist() == [0, 1, 2, 3]


def test_images_on_the_line_are_not_new():
    score, free = np.array([2.0, 2.0, 1.0]), np.ones(3, dtype=bool)
    assert new_rows(score, 2.0, free, 0).tolist() == [2]


@pytest.mark.parametrize("n_known", [1, 2])
def test_the_nearest_known_class_is_that_of_an_image_and_its_neighbors(n_known):
    view, labels, _ = small_view(n_known)
    guess, score = nearest_known(view, labels)
    evidence = known_evidence(view.known_space, labels).numpy()
    odds = any_known(view.known_space, torch.from_numpy(evidence)).numpy()
    for row in range(len(labels)):
        near = [row, *view.neighbors[row]]
        best = labels[row] if labels[row] >= 0 else evidence[near].mean(axis=0).argmax()
        assert guess[row] == best
        assert score[row] == pytest.approx(odds[near].mean(), rel=1e-4)


def test_the_nearest_known_class_of_a_labeled_image_is_its_label():
    view, labels, ids = small_view()
    wrong = np.flatnonzero((ids == 1) & (labels < 0))[0]
    assert nearest_known(view, labels)[0][wrong] == 1
    labels[wrong] = 0
    assert nearest_known(view, labels)[0][wrong] == 0


def test_without_labels_nothing_is_known():
    view, labels, _ = small_view(0)
    guess, score = nearest_known(view, labels)
    assert not guess.any()
    assert (score == -np.inf).all()


@pytest.mark.parametrize("judged", [0, 1, 2])
def test_sorting_is_by_the_evidence_of_groups_and_then_by_the_regression(judged):
    view, labels, ids = small_view(
        judged=judged, unlabeled_weight=0.4, dims_per_class=0, clusterings=0
    )
    guess, score = np.where(ids == 1, 1, 0), np.where(ids >= 2, -5.0, 5.0)
    first = grouped(view, labels, guess, score, 0.0, n_new=2)
    counts, sums = torch.zeros(4), torch.zeros(4, view.space.rows.shape[1])
    for row, c in enumerate(first):
        weight = 1.0 if labels[row] >= 0 else 0.4
        counts[c] += weight
        sums[c] += weight * view.space.rows[row]
    evidence = view.space.evidence(counts, sums)
    near = torch.from_numpy(np.column_stack([np.arange(len(ids)), view.neighbors]))
    by_hand = evidence[near].mean(dim=1)
    classes = np.where(labels >= 0, labels, by_hand.argmax(dim=1).numpy())
    judge = fit_ridge(view.whole, classes, view.rules)
    for _ in range(judged):
        by_hand = less_by_size(judge.scores(classes, 4), classes, view.rules)
        classes = np.where(labels >= 0, labels, by_hand.argmax(dim=1).numpy())
    by_evidence = sort(view, labels, guess, score, 0.0, n_new=2)
    found = membership.judged(view, labels, by_evidence, n_new=2)
    torch.testing.assert_close(found, by_hand, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("many", "n_asked"), [(5.0, 0), (5.1, 3)])
def test_where_labels_are_few_the_regression_begins_with_clusterings_too(many, n_asked):
    rules = {"judged": 1, "clusterings": 3, "label_weight": 0.5, "dims_per_class": 0}
    view, labels, ids = small_view(many_labels=many, **rules)  # five labels of each known class
    scores = torch.eye(4)[torch.from_numpy(np.roll(ids, 1))]
    first = np.where(labels >= 0, labels, np.roll(ids, 1))
    answers = [
        first,
        *clusterings(view.points, labels, first, n_classes=4, seed=0, rules=view.rules),
    ]
    assert len(answers) == 1 + n_asked
    members = 2.5 * torch.eye(4)[torch.from_numpy(first)]
    members += sum(torch.eye(4)[torch.from_numpy(each)] for each in answers[1:])
    by_hand = without_each(
        view.whole.double().numpy(),
        (members / members.sum(dim=1, keepdim=True)).numpy(),
        4,
        squares_within(view.whole.double().numpy(), first),
    )
    expected = less_by_size(torch.from_numpy(by_hand).float(), first, view.rules)
    found = membership.judged(view, labels, scores, n_new=2)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("n_known", [0, 1])
def test_scores_have_a_column_for_every_known_and_every_new_class(n_known):
    view, labels, ids = small_view(n_known)
    guess, score = np.zeros(len(ids), dtype=np.int64), np.where(ids >= n_known, -5.0, 5.0)
    found = sort(view, labels, guess, score, 0.0, n_new=4 - n_known)
    assert found.shape == (len(ids), 4)


@pytest.mark.parametrize("n_known", [0, 2])
def test_images_below_the_line_are_grouped_behind_the_known_classes(n_known):
    view, labels, ids = small_view(n_known)
    guess, score = np.minimum(ids, max(n_known - 1, 0)), np.where(ids >= n_known, -5.0, 5.0)
    found = grouped(view, labels, guess, score, 0.0, n_new=4 - n_known)
    new = ids >= n_known
    assert np.array_equal(found[~new], ids[~new])
    by_group = n_known + group(view, np.flatnonzero(new), 4 - n_known)
    assert np.array_equal(found[new], by_group)


def test_a_labeled_image_stays_in_its_class_whatever_its_score_is():
    view, labels, ids = small_view()
    guess, score = np.ones(len(ids), dtype=np.int64), np.where(ids == 1, 5.0, -5.0)
    found = grouped(view, labels, guess, score, 0.0, n_new=2)
    assert np.array_equal(found[labels >= 0], labels[labels >= 0])


def test_without_new_classes_every_image_is_of_a_known_one():
    view, labels, ids = small_view()
    guess = ids % 2
    score = np.full(len(ids), -5.0)
    found = grouped(view, labels, guess, score, 0.0, n_new=0)
    assert np.array_equal(found, np.where(labels >= 0, labels, guess))


def test_labeled_images_stay_and_only_new_classes_are_kept_alive():
    scores = torch.tensor([[0.0, 9.0, 1.0, 0.0], [0.0, 9.0, 0.5, 3.0], [0.0, 9.0, 0.4, 2.0]])
    found = best_classes(scores.clone(), np.array([0, -1, -1]), n_new=1)
    assert found.tolist() == [0, 3, 1]
    assert best_classes(scores.clone(), np.array([0, -1, -1]), n_new=0).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("n_rows", "n_groups", "n_parts", "most_parts"),
    [(32, 1, 4, 6), (20, 5, 10, 10), (7, 4, 7, 8), (40, 9, 18, 18)],
)
def test_groups_are_merged_of_parts_of_which_there_are_enough(
    n_rows, n_groups, n_parts, most_parts, monkeypatch
):
    view, _, _ = small_view(most_parts=6)
    drawn = np.random.default_rng(0).normal(size=(40, 6))  # another start of k-means would differ
    view, asked = replace(view, points=unit(torch.from_numpy(drawn).float())), {}
    monkeypatch.setattr(membership, "merges", lambda points, **named: asked.update(named))
    found = group(view, np.arange(n_rows), n_groups)
    assert (asked["n_parts"], asked["rules"].most_parts) == (n_parts, most_parts)
    by_hand = kmeans(view.points[:n_rows], n_groups, n_init=1, seed=0).labels
    assert np.array_equal(found, by_hand)


class Cut:
    """A merge tree of three parts that is always cut like this."""

    n_parts = 3

    def __init__(self, found):
        self.found = np.array(found)

    def cut(self, n_clusters):
        return self.found


def test_a_cut_that_gives_the_number_of_groups_is_taken(monkeypatch):
    view, _, _ = small_view()
    for found, taken in (([0, 2, 1, 2], True), ([0, 1, 1, 0], False)):
        monkeypatch.setattr(membership, "merges", lambda *args, found=found, **named: Cut(found))
        assert (group(view, np.arange(4), 3).tolist() == found) == taken
    assert len(np.unique(group(view, np.arange(4), 4))) == 4  # of three parts: by k-means
    assert len(group(view, np.arange(2), 5)) == 2


def test_an_empty_class_takes_no_labeled_image_and_none_that_is_alone():
    scores = torch.tensor([[5.0, 0.0, 5.0], [5.0, 0.0, 4.0], [5.0, 0.0, 3.0], [0.0, 5.0, 5.0]])
    ids, before = np.array([0, 0, 0, 1]), scores.clone()
    keep_one(ids, scores, np.array([False, True, True, True]), np.array([False, True, True]))
    assert ids.tolist() == [0, 2, 0, 1]
    before[1, 2] = 5.0 + 1e-3
    torch.testing.assert_close(scores, before, atol=1e-5, rtol=0.0)


def test_two_empty_classes_take_two_images_and_a_last_image_stays():
    scores = torch.tensor([[5.0, 4.0, 4.9], [5.0, 4.5, 4.8], [5.0, 0.0, 1.0]])
    ids = np.array([0, 0, 0])
    keep_one(ids, scores, np.ones(3, dtype=bool), np.ones(3, dtype=bool))
    assert ids.tolist() == [2, 1, 0]
    alone, scores = np.array([0]), torch.tensor([[5.0, 1.0]])
    keep_one(alone, scores, np.array([True]), np.array([True, True]))
    assert (alone.tolist(), scores.tolist()) == ([0], [[5.0, 1.0]])


def test_class_means_are_weighted_and_of_unit_length():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = class_means(features, np.array([1, 1, 0]), np.array([3.0, 4.0, 0.5]), 3)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))


def test_a_class_that_lost_all_images_gets_the_best_one():
    scores = torch.tensor([[3.0, 0.0, 2.5], [3.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    ids = np.array([0, 0, 1])
    keep_one(ids, scores, np.array([True] * 3), np.array([False, True, True]))
    assert ids.tolist() == [2, 0, 1]


def test_a_new_class_that_lost_all_images_gets_no_labeled_one():
    scores = torch.tensor([[9.0, 8.9], [9.0, 1.0], [9.0, 2.0]])
    assert best_classes(scores, np.array([0, -1, -1]), n_new=1).tolist() == [0, 0, 1]


def test_the_best_image_for_an_empty_class_is_the_one_whose_own_class_is_hardly_better():
    scores, ids = torch.tensor([[9.0, 4.0], [3.5, 3.0], [9.0, 0.0]]), np.array([0, 0, 0])
    keep_one(ids, scores, np.ones(3, dtype=bool), np.array([False, True]))
    assert ids.tolist() == [0, 1, 0]
