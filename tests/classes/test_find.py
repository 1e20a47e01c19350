import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bacon_gcd.classes import find
from bacon_gcd.classes.calibration import matching_temperature
from bacon_gcd.classes.count import ClassNumber, crowded
from bacon_gcd.classes.find import (
    count_classes,
    find_classes,
    known_sizes,
    linkage_for,
    rules_for,
)
from bacon_gcd.classes.membership import best_of, class_means, judged, with_lost_classes
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.reliability import NO_SIGNS
from bacon_gcd.classes.rules import Rules
from bacon_gcd.cluster import unit
from tests.classes.planted_features import agreement, planted, small_view, some_labels


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


@pytest.mark.parametrize(
    ("sizes", "expected"), [((50, 60, 40), "ward"), ((200, 60, 8), "average"), ((90,), "ward")]
)
def test_new_images_are_grouped_as_if_their_classes_were_as_uneven_as_known_ones(sizes, expected):
    assert linkage_for(np.array(sizes)) == expected


def test_images_below_the_threshold_do_not_count_in_the_size_of_a_known_class():
    guess = np.repeat([0, 1], [200, 20])
    labels = np.where(np.arange(220) % 20 == 0, guess, -1)
    above = np.arange(220) >= 180
    assert known_sizes(labels, guess, above).tolist() == [20 + 9, 20]  # and nine labels below it
    assert known_sizes(labels, guess, guess >= 0).tolist() == [200, 20]


def test_one_known_class_has_no_spread_and_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert linkage_for(np.array([9])) == "ward"


def test_without_labels_no_class_tells_how_large_and_uneven_the_others_are():
    nothing = np.full(9, -1)
    sizes = known_sizes(nothing, np.zeros(9, dtype=np.int64), nothing == 0)
    assert sizes.tolist() == []
    assert linkage_for(sizes) == "ward"
    assert rules_for(sizes, 60 * 15) == Rules()
    assert rules_for(sizes, 10 * 15) == Rules().for_class_size(10)


def test_known_classes_are_uneven_from_the_limit_on():
    spread = np.log([10.0, 20.0, 60.0]).std(ddof=1)
    sizes = np.array([10, 20, 60])
    assert linkage_for(sizes, Rules(uneven=spread)) == "average"
    assert linkage_for(sizes, Rules(uneven=spread + 1e-9)) == "ward"


def test_new_classes_are_taken_to_be_as_large_as_known_ones():
    rules = Rules(usual_images=40.0, rows_per_part=8, evidence_weight=0.02, size_classes=0.0)
    found = rules_for(np.array([20, 20]), 999, rules)
    assert (found.rows_per_part, found.evidence_weight) == (4, pytest.approx(0.04))
    assert rules_for(np.array([10, 10, 60]), 999, rules) == rules  # 47.5, as most images see it
    tiny = rules_for(np.array([1, 1]), 999, rules)
    assert (tiny.rows_per_part, tiny.evidence_weight) == (2, 0.25)


def test_few_known_classes_say_less_of_the_size_of_new_ones():
    rules = Rules(usual_images=40.0, evidence_weight=0.02, size_classes=2.0)
    two, many = (rules_for(np.full(n, 10), 999, rules) for n in (2, 2000))
    assert two.evidence_weight == pytest.approx(0.02 * 2)  # half of the way, in logs, to 0.08
    assert many.evidence_weight == pytest.approx(0.08, rel=0.01)


def test_many_small_classes_are_all_found():
    """Parts of eight images would each hold images of two of them."""
    features, ids = planted(20, each=6, d=64, spread=0.8)
    labels = some_labels(ids, 10, 3)
    found = find_classes(features, labels, seed=0)
    assert found.number.beside == {"heights": 20, "evidence": 20}
    large = find_classes(features, labels, seed=0, rules=Rules(usual_images=1.0))
    assert large.number.estimate < 17


@pytest.mark.parametrize(
    ("n_known", "n_free", "allowed", "limits"),
    [
        (2, 5, None, (2, 7)),
        (2, 5, (1, 99), (2, 7)),
        (2, 5, (3, 4), (3, 4)),
        (0, 5, None, (1, 5)),
        (0, 5, (1, 3), (1, 3)),
        (1, 3, None, (1, 4)),
    ],
)
def test_classes_are_counted_within_what_is_possible(n_known, n_free, allowed, limits, monkeypatch):
    view, _, _ = small_view()
    labels = np.append(np.arange(n_known), np.full(n_free, -1))
    asked = {}

    def counted(space, points, new, *, n_known, seed, rules):
        asked["new"] = new.tolist()
        return 1.5, {"heights": float(n_known)}

    monkeypatch.setattr(find, "count_new", counted)
    monkeypatch.setattr(find, "count_by_shape", lambda *args, **named: (3.0, 2.0, 4.0))
    monkeypatch.setattr(find, "number_of", lambda *args: args)
    below = np.arange(len(labels)) % 2 == 0
    found = count_classes(view, labels, below, allowed=allowed)
    ways = (1.5, {"heights": float(n_known)}) if n_known else (3.0, {"least": 2.0, "most": 4.0})
    assert found == (n_known, *ways, limits, view.rules)
    if n_known:
        assert asked["new"] == (below & (labels < 0)).tolist()


@pytest.mark.parametrize("each", [1, 2])
def test_the_number_of_new_classes_follows_the_new_images_and_the_labels(each, monkeypatch):
    view, _, _ = small_view()
    labels = np.append(np.repeat(np.arange(20), each), np.full(400, -1))
    monkeypatch.setattr(find, "count_new", lambda *args, **named: (8.0, {"heights": 8.0}))
    monkeypatch.setattr(find, "number_of", lambda *args: args)
    below = np.arange(len(labels)) < 20 * each + 300
    found = count_classes(view, labels, below, allowed=None)
    new = below & (labels < 0)
    more = crowded(8.0, new, n_known=20, n_unlabeled=400, lone=each == 1, rules=view.rules)
    assert more > 10
    assert found[:2] == (20, more)


@pytest.mark.parametrize(
    ("labels", "allowed", "number"),
    [([0, 1, -1, -1], (3, 3), 3), ([0, 1], None, 2), ([0, 1, -1], (1, 2), 2), ([], None, 1)],
)
def test_a_number_that_is_given_is_not_counted(labels, allowed, number):
    view, _, _ = small_view()
    labels = np.array(labels, dtype=np.int64)
    found = count_classes(view, labels, labels < 0, allowed=allowed)
    assert found == ClassNumber(number, (number, number), {})


def answer_of(features, labels, class_ids, probabilities, number):
    found = find.Checks(None, number, probabilities, class_ids, (), NO_SIGNS)
    return find._answer(Question(features, labels, 0), found, probabilities, None)


def test_an_answer_has_new_classes_by_size_and_certain_labels():
    features = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))).float())
    labels, classes = np.array([0, -1, -1, -1, -1, -1]), np.array([0, 0, 1, 2, 2, 1])
    classes = np.append(classes[:-1], 2)  # class 2 has three images, class 1 has one
    given = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), 6)).float()
    number = ClassNumber(3, (2, 4), {})
    found = answer_of(features, labels, classes, given.clone(), number)
    assert found.class_ids.tolist() == [0, 0, 2, 1, 1, 1]
    np.testing.assert_array_equal(found.probabilities[0], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(found.probabilities[1:], given[1:, [0, 2, 1]].numpy())
    weights = np.array([1.0] + [0.3] * 5)
    middles = class_means(features, found.class_ids, weights, 3)
    torch.testing.assert_close(found.centroids, middles)
    sure = float(given[1:].amax(dim=1).mean())
    assert found.temperature == matching_temperature(features[1:] @ middles.T, sure)
    assert (found.number, found.expected) == (number, None)


def test_an_answer_without_unlabeled_images_is_certain():
    features, labels = unit(torch.eye(3)), np.array([0, 1, 0])
    number = ClassNumber(2, (2, 2), {})
    found = answer_of(features, labels, labels, torch.full((3, 2), 0.5), number)
    assert found.probabilities.tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert found.temperature == 1.0


def test_images_on_the_line_are_known(monkeypatch):
    features, ids = planted(4, each=10, d=6)
    labels, asked = some_labels(ids, 2, 5), {}
    score = np.where(ids >= 2, -1.0, np.where(labels >= 0, 9.0, 0.5))
    monkeypatch.setattr(find, "nearest_known", lambda *args: (np.minimum(ids, 1), score))
    monkeypatch.setattr(find, "learned_threshold", lambda *args, **named: 0.5)
    sizes = find.known_sizes
    monkeypatch.setattr(
        find, "known_sizes", lambda *args: asked.update(above=args[2]) or sizes(*args)
    )

    def counted(view, labels, below, *, allowed):
        asked["below"] = below
        return ClassNumber(4, (4, 4), {})

    monkeypatch.setattr(find, "count_classes", counted)
    monkeypatch.setattr(find, "checked", lambda *args, **named: asked.update(named) or [])
    monkeypatch.setattr(find, "expected", lambda *args, **named: asked.update(named))
    monkeypatch.setattr(find, "usual_accuracy", lambda *args: 0.8)
    found = find_classes(features, labels, seed=0)
    assert np.array_equal(asked["above"], ids < 2)
    assert np.array_equal(asked["below"], ids >= 2)
    assert asked["n_new"] == 2
    free = labels < 0
    assert asked["known_share"] == pytest.approx((found.class_ids[free] < 2).mean())
    assert found.probabilities[free].max(axis=1).mean() == pytest.approx(0.8, abs=0.02)
    assert agreement(found.class_ids, ids, 2) > 0.9


@pytest.mark.parametrize(
    ("beside", "hidden", "asked"),
    [({"heights": 3}, [1.0], True), ({}, [1.0], False), ({"heights": 3}, [], False)],
)
def test_fragments_are_asked_for_where_classes_were_counted(beside, hidden, asked, monkeypatch):
    features, ids = planted(4, each=10, d=6)
    called = []

    def without(view, labels, score, line, known, new, number):
        called.append(number)
        return number, score

    hidden_scores = (np.array(hidden), np.array([-1.0]))
    monkeypatch.setattr(find, "fold_scores", lambda *args, **named: hidden_scores)
    monkeypatch.setattr(find, "learned_threshold", lambda *args, **named: 0.0)
    number = ClassNumber(3, (2, 4), beside)
    monkeypatch.setattr(find, "count_classes", lambda *args, **named: number)
    monkeypatch.setattr(find, "without_fragments", without)
    monkeypatch.setattr(find, "checked", lambda *args, **named: [])
    find_classes(features, some_labels(ids, 2, 5), seed=0)
    assert bool(called) == asked


def test_where_all_images_are_labeled_all_are_known(monkeypatch):
    features, ids = planted(3, each=8, d=6)
    asked = {}
    monkeypatch.setattr(find, "checked", lambda *args, **named: [])
    monkeypatch.setattr(find, "expected", lambda *args, **named: asked.update(named))
    found = find_classes(features, ids, seed=0)
    assert asked["known_share"] == 1.0
    assert np.array_equal(found.class_ids, ids)


def test_without_labels_no_image_is_of_a_known_class(monkeypatch):
    features, ids = planted(3, each=8, d=6)
    asked = {}
    monkeypatch.setattr(find, "expected", lambda *args, **named: asked.update(named))
    find_classes(features, np.full(len(ids), -1), seed=0, allowed=(3, 3))
    assert asked["known_share"] == 0.0


@pytest.mark.parametrize("serves", [True, False])
def test_the_accuracy_is_that_of_the_sorting_that_is_used(serves, monkeypatch):
    features, ids = planted(4, each=10, d=6)
    by_evidence, by_regression = SimpleNamespace(right="first"), SimpleNamespace(right="second")
    regressed = torch.eye(4)[torch.from_numpy((ids + 1) % 4)]
    asked = {}
    monkeypatch.setattr(find, "checked", lambda *args, **named: [(by_evidence, by_regression)])
    monkeypatch.setattr(find, "regression_serves", lambda pairs: asked.update(p=pairs) or serves)
    monkeypatch.setattr(find, "judged", lambda *args, **named: regressed)
    monkeypatch.setattr(find, "expected", lambda checks, **named: asked.update(checks=checks))
    labels = some_labels(ids, 2, 5)
    found = find_classes(features, labels, seed=0, allowed=(4, 4))
    assert asked["p"] == [("first", "second")]
    assert asked["checks"] == [by_regression if serves else by_evidence]
    free = labels < 0
    assert (found.class_ids[free & (ids == 0)] == 1).all() == serves


@pytest.mark.parametrize(
    ("n_known", "allowed", "least"), [(0, None, 1), (2, None, 2), (2, (3, 9), 3), (2, (1, 9), 2)]
)
def test_as_many_classes_stay_as_are_known_or_asked_for(n_known, allowed, least, monkeypatch):
    features, ids = planted(4, each=10, d=6)
    number, asked = ClassNumber(4, (4, 4), {"heights": 4}), {}

    def without(number, scores, labels, *, least, rules):
        asked["least"] = least
        return number, scores

    monkeypatch.setattr(find, "count_classes", lambda *args, **named: number)
    monkeypatch.setattr(find, "without_fragments", lambda *args: (number, args[2]))
    monkeypatch.setattr(find, "without_lone_classes", without)
    find_classes(features, some_labels(ids, n_known, 5), seed=0, allowed=allowed)
    assert asked["least"] == least


def test_a_new_class_that_keeps_one_image_has_all_of_them_back():
    labels = np.array([0, 1, -1, -1, -1, -1, -1, -1, -1])
    before = torch.eye(5)[torch.tensor([0, 1, 2, 2, 2, 3, 3, 0, 4])]
    scores = torch.eye(5)[torch.tensor([1, 1, 2, 0, 4, 3, 3, 3, 4])]
    found = with_lost_classes(scores, before, labels)
    # class 2 has its three images, class 4 keeps one; image 7 left a known class
    assert best_of(labels, found).tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 4]
    assert (found[3:5, 2] - scores[3:5].max(dim=1).values).tolist() == pytest.approx(
        [1e-3] * 2, abs=1e-5
    )
    torch.testing.assert_close(found[[0, 1, 5, 6, 7]], scores[[0, 1, 5, 6, 7]])


def test_no_class_is_left_without_an_image_when_another_has_its_own_back():
    labels = np.full(5, -1)
    before = torch.eye(3)[torch.tensor([0, 0, 1, 1, 2])]
    # class 1 is lost, and class 2 is made of it
    scores = torch.eye(3)[torch.tensor([0, 0, 2, 2, 0])]
    found = best_of(labels, with_lost_classes(scores, before, labels))
    assert sorted(set(found.tolist())) == [0, 1, 2]


def test_a_number_that_is_asked_for_is_not_filled_up_with_single_images():
    """Beside five large classes the regression leaves a small one with nothing."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(6), [80, 80, 80, 80, 80, 12])
    rows = rng.normal(size=(6, 24))[ids] + 0.7 * rng.normal(size=(412, 24))
    labels = np.where((np.arange(412) % 4 == 0) & (ids < 3), ids, -1)
    question = Question(unit(torch.from_numpy(rows).float()), labels, 0, (6, 6))
    first = find.by_evidence(question)
    _, scores = find.finished(question, first, judge=True)
    lone = judged(first.view, labels, first.scores, n_new=3)
    assert np.bincount(best_of(labels, lone), minlength=6).min() < 2
    assert np.bincount(best_of(labels, scores), minlength=6).min() >= 2


def test_a_label_is_kept_where_the_scores_say_otherwise(monkeypatch):
    features, ids = planted(2, each=10, d=6)
    labels = some_labels(ids, 2, 5)
    second = torch.tensor([0.0, 1.0]).repeat(len(ids), 1)
    monkeypatch.setattr(find, "sort", lambda *args, **named: second)
    monkeypatch.setattr(find, "judged", lambda *args, **named: second)
    found = find_classes(features, labels, seed=0, allowed=(2, 2))
    assert np.array_equal(found.class_ids, np.where(labels == 0, 0, 1))
