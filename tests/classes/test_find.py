import numpy as np
import pytest
import torch

from bacon_gcd.classes.count import ClassNumber
from bacon_gcd.classes.find import (
    find_classes,
    fragment_edge,
    fragments,
    grouped_right,
    keep_one,
    linkage_for,
    new_rows,
    view_of,
    without_fragments,
    without_lone_classes,
)
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import reduced
from bacon_gcd.cluster import unit


def planted(n_classes=10, each=40, d=32, spread=0.5, seed=0):
    rng = np.random.default_rng(seed)
    means = unit(torch.from_numpy(rng.normal(size=(n_classes, d))).float())
    ids = np.repeat(np.arange(n_classes), each)
    noise = torch.from_numpy(rng.normal(size=(len(ids), d))).float() * spread / d**0.5
    mixed = rng.permutation(len(ids))
    return unit(means[torch.from_numpy(ids)] + noise)[torch.from_numpy(mixed)], ids[mixed]


def some_labels(ids, n_known, each):
    labels = np.full(len(ids), -1)
    for c in range(n_known):
        labels[np.flatnonzero(ids == c)[:each]] = c
    return labels


def agreement(found, ids, n_known):
    """Share of images that are right: known by name, new ones by the majority of their class."""
    right = (found == ids) & (ids < n_known)
    for c in range(n_known, ids.max() + 1):
        inside = found[ids == c]
        best = np.bincount(inside).argmax()
        right[ids == c] = (inside == best) & (best >= n_known)
    return right.mean()


@pytest.mark.parametrize("each", [1, 3, 20])
def test_planted_classes_are_found_and_counted(each):
    features, ids = planted()
    labels = some_labels(ids, 5, each)
    found = find_classes(features, labels, seed=0)
    assert 9 <= found.number.estimate <= 11
    assert found.number.interval[0] <= 10 <= found.number.interval[1]
    assert agreement(found.class_ids, ids, 5) > 0.9


def test_without_any_label_clear_classes_are_found():
    features, ids = planted(6)
    found = find_classes(features, np.full(len(ids), -1), seed=0)
    assert found.number.estimate == 6
    assert agreement(found.class_ids, ids, 0) > 0.95
    assert found.expected is None


def test_a_known_class_gives_up_a_group_that_has_no_label():
    """Two thirds of what lies nearest to a known class are another species."""
    rng = np.random.default_rng(0)
    d = 32
    axes = torch.eye(d)
    near = unit((axes[0] * 0.8 + axes[1] * 0.6)[None])[0]
    means = [axes[0], *axes[2:7], near]
    sizes = [40, 40, 40, 40, 40, 40, 80]
    noise = [torch.from_numpy(rng.normal(size=(n, d))).float() * 0.05 for n in sizes]
    features = unit(torch.cat([m + e for m, e in zip(means, noise, strict=True)]))
    ids = np.repeat(np.arange(7), sizes)
    found = find_classes(features, some_labels(ids, 6, 10), seed=0)
    assert (found.class_ids[ids == 6] >= 6).mean() > 0.9
    assert (found.class_ids[ids == 0] == 0).mean() > 0.9


def test_labeled_images_keep_their_class_and_are_certain():
    features, ids = planted()
    labels = some_labels(ids, 5, 4)
    labels[np.flatnonzero(ids == 9)[:2]] = 0  # wrong labels are kept, too
    found = find_classes(features, labels, seed=0)
    given = labels >= 0
    assert (found.class_ids[given] == labels[given]).all()
    assert (found.probabilities[given, labels[given]] == 1).all()
    assert found.probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-4)


def test_an_asked_number_of_classes_is_given_and_each_has_an_image():
    features, ids = planted()
    for asked in (5, 7, 14):
        found = find_classes(features, some_labels(ids, 5, 5), seed=0, allowed=(asked, asked))
        assert found.number.estimate == asked
        assert len(np.unique(found.class_ids)) == asked
        assert found.centroids.shape[0] == found.probabilities.shape[1] == asked


def test_new_classes_come_by_size():
    features, ids = planted(each=40)
    keep = (ids < 8) | (np.arange(len(ids)) % 4 == 0)
    found = find_classes(features[torch.from_numpy(keep)], some_labels(ids[keep], 4, 5), seed=0)
    sizes = np.bincount(found.class_ids)[4:]
    assert (np.diff(sizes) <= 0).all()


def test_the_same_seed_gives_the_same_answer():
    features, ids = planted()
    labels = some_labels(ids, 5, 3)
    first, second = (find_classes(features, labels, seed=1) for _ in range(2))
    assert np.array_equal(first.class_ids, second.class_ids)
    assert np.array_equal(first.probabilities, second.probabilities)


def test_hidden_classes_say_what_accuracy_to_expect():
    features, ids = planted()
    found = find_classes(features, some_labels(ids, 6, 10), seed=0)
    assert found.expected is not None
    assert 40 <= found.expected.n_images <= 60
    assert 0.7 < found.expected.accuracy < 1
    free = some_labels(ids, 6, 10) < 0
    sure = found.probabilities[free].max(axis=1).mean()
    assert sure == pytest.approx(found.expected.accuracy, abs=0.05)


@pytest.mark.parametrize(
    ("n_rows", "labels"),
    [(4, [-1] * 4), (4, [0, 1, -1, -1]), (5, [0, 0, 0, 0, 0]), (6, [0, -1, -1, -1, -1, -1])],
)
def test_tiny_and_degenerate_sets_have_an_answer(n_rows, labels):
    features = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(n_rows, 8))).float())
    found = find_classes(features, np.array(labels), seed=0)
    assert found.class_ids.shape == (n_rows,)
    assert np.isfinite(found.probabilities).all()


def test_equal_images_have_an_answer():
    found = find_classes(unit(torch.ones(12, 8)), np.array([0, 1] + [-1] * 10), seed=0)
    assert np.isfinite(found.probabilities).all()


def test_the_edge_lies_between_known_and_new_scores_below_the_threshold():
    known, new = np.array([9.0, 8.0, -1.0]), np.array([5.0, -10.0, -12.0])
    found = fragment_edge(known, new, 0.0, Rules(edge=0.4))
    assert found == pytest.approx(0.6 * -1 + 0.4 * -11)
    assert fragment_edge(np.array([3.0]), np.array([4.0]), 0.0) == 0.0


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


@pytest.mark.parametrize(
    ("sizes", "expected"), [((50, 60, 40), "ward"), ((200, 60, 8), "average"), ((90,), "ward")]
)
def test_new_images_are_grouped_as_if_their_classes_were_as_uneven_as_known_ones(sizes, expected):
    guess = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.where(np.arange(len(guess)) % 8 == 0, guess, -1)
    assert linkage_for(labels, guess, labels == labels) == expected


def test_images_below_the_threshold_do_not_count_in_the_size_of_a_known_class():
    guess = np.repeat([0, 1], [200, 20])
    labels = np.where(np.arange(220) % 20 == 0, guess, -1)
    above = np.arange(220) >= 180
    assert linkage_for(labels, guess, above) == "ward"
    assert linkage_for(labels, guess, guess >= 0) == "average"


def test_without_labels_no_class_tells_how_uneven_the_others_are():
    nothing = np.full(9, -1)
    assert linkage_for(nothing, np.zeros(9, dtype=np.int64), nothing == 0) == "ward"


def test_fragments_are_the_highest_groups_above_the_edge():
    groups, scores = np.array([0, 0, 1, 1, 2, 3]), np.array([-2.0, -2.0, -1.0, -1.0, -1.5, -9.0])
    assert fragments(groups, scores, 4, edge=-3.0, most=3).tolist() == [False, True, True, False]
    assert fragments(groups, scores, 4, edge=-1.2, most=9).tolist() == [False, True, False, False]
    assert not fragments(groups, scores, 4, edge=-3.0, most=0).any()


def test_points_for_grouping_lie_between_an_image_and_its_neighbors():
    features, ids = planted(4)
    labels = some_labels(ids, 2, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    near = view.space.directions[torch.from_numpy(view.neighbors[0])].mean(dim=0)
    torch.testing.assert_close(
        view.points[0], unit((view.space.directions[:1] + near) / 2)[0], atol=1e-5, rtol=1e-5
    )


def test_grouped_right_matches_groups_one_to_one():
    groups = np.array([0, 0, 1, 1, 1, -2])
    classes = np.array([7, 7, 7, 9, 9, 9])
    assert grouped_right(groups, classes).tolist() == [True, True, False, True, True, False]
    assert not grouped_right(np.array([-1, -3]), np.array([4, 4])).any()


def test_new_rows_are_those_below_the_line_and_enough_for_the_classes():
    score, free = np.array([5.0, 1.0, 3.0, -2.0, 9.0]), np.array([True] * 4 + [False])
    assert new_rows(score, 2.0, free, 1).tolist() == [1, 3]
    assert new_rows(score, 2.0, free, 2).tolist() == [0, 1, 2, 3]


def test_a_class_that_lost_all_images_gets_the_best_one():
    scores = torch.tensor([[3.0, 0.0, 2.5], [3.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    ids = np.array([0, 0, 1])
    keep_one(ids, scores, np.array([True] * 3), np.array([False, True, True]))
    assert ids.tolist() == [2, 0, 1]


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
