import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bacon_gcd.classes import border
from bacon_gcd.classes.border import Border, fitted_border, learned_border, lone_line
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.novelty import fold_scores, stand_ins
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import reduced
from bacon_gcd.cluster import unit


def columns(scores, around=0.0):
    """(n, 2) what features say, and what labels around say."""
    scores = np.asarray(scores, dtype=float)
    return np.stack([scores, np.broadcast_to(around, scores.shape)], axis=1)


def line_of(known, new, rules=None):
    return fitted_border(columns(known), columns(new), rules or Rules()).line


def test_the_line_lies_between_known_and_new_scores():
    rng = np.random.default_rng(0)
    assert -10 < line_of(rng.normal(-4, 1, 100), rng.normal(-12, 1, 100)) < -6


def test_more_scores_of_one_kind_do_not_move_the_line():
    known, new = np.array([3.0, 4.0, 5.0, 6.0] * 100), np.array([-6.0, -5.0, -4.0, -3.0] * 100)
    assert line_of(known, new) == pytest.approx(line_of(known, np.tile(new, 5)), abs=0.05)


@pytest.mark.parametrize("most_weight", [4, 200])
def test_the_line_is_the_middle_of_the_likeliest_logistic_curve(most_weight):
    rng = np.random.default_rng(3)
    known, new = rng.normal(6, 2, 12), rng.normal(3, 2, 7)
    rules = Rules(most_weight=most_weight, prior_strength=3.0)

    def loss(parameters):
        steepness, middle = parameters
        slope = np.exp(steepness)
        missed = np.log(1 + np.exp(-slope * (known - middle))).mean() * min(12, most_weight)
        taken = np.log(1 + np.exp(slope * (new - middle))).mean() * min(7, most_weight)
        prior = (steepness - np.log(rules.usual_slope)) ** 2 + middle**2 / 20
        return missed + taken + 3.0 * prior

    by_hand = minimize(loss, np.array([0.0, 4.0]), method="BFGS").x[1]
    assert line_of(known, new, rules) == pytest.approx(by_hand, abs=2e-3)


def test_labels_around_count_as_far_as_they_tell_hidden_classes():
    rng = np.random.default_rng(0)
    alike = rng.normal(0, 3, (2, 300))  # features that say nothing
    telling = [
        columns(rows, rng.normal(mean, 2, 300)) for rows, mean in zip(alike, (6, 0), strict=True)
    ]
    silent = [columns(rows, rng.normal(3, 2, 300)) for rows in alike]
    assert fitted_border(*silent).weight < fitted_border(*telling).weight / 4
    found = fitted_border(*telling)
    right = [(found.score(telling[0]) > found.line).mean()]
    right.append((found.score(telling[1]) < found.line).mean())
    assert min(right) > 0.8


def test_labels_around_never_count_against_a_known_class():
    rng = np.random.default_rng(0)
    known, new = (columns(rng.normal(0, 3, 300), around) for around in (0.0, 6.0))
    assert fitted_border(known, new).weight == 0.0


def test_a_large_weight_needs_many_hidden_images():
    rng = np.random.default_rng(0)
    known, new = (columns(rng.normal(0, 3, 300), rng.normal(m, 2, 300)) for m in (6, 0))
    few = fitted_border(known[:5], new[:5]).weight
    assert 0 < few < fitted_border(known, new).weight


def test_the_score_of_an_image_is_both_columns():
    assert Border(0.0, 0.5).score(np.array([[1.0, 4.0], [2.0, -2.0]])).tolist() == [3.0, 1.0]


def noise(n_labeled, n_classes, d):
    rng = np.random.default_rng(0)
    features = unit(torch.from_numpy(rng.normal(size=(100, d))).float())
    labels = np.where(np.arange(100) < n_labeled, np.arange(100) % n_classes, -1)
    return reduced(features, labels, seed=0), labels


NO_NEIGHBORS = np.zeros((100, 2), dtype=np.int64)


def test_four_scores_of_each_kind_make_a_curve_and_three_do_not(monkeypatch):
    rows, labels = noise(4, 4, d=4)
    monkeypatch.setattr(border, "fold_scores", lambda *args, **named: (columns([]), columns([])))
    known, new = columns([9.0, 10.0, 11.0, 12.0]), columns([-12.0, -11.0, -10.0, -9.0])
    found = learned_border(rows, labels, NO_NEIGHBORS, (known, new), seed=0)
    assert found == fitted_border(known, new)
    assert found.line == pytest.approx(0.0, abs=0.01)
    for few, many in ((known[:3], new), (known, new[:3])):
        found = learned_border(rows, labels, NO_NEIGHBORS, (few, many), seed=0)
        assert found == Border(pytest.approx(np.quantile(many[:, 0], 0.7) / 2))


@pytest.mark.parametrize(
    ("n_hidden", "n_beside", "asked"), [(4, 4, False), (3, 4, True), (3, 3, False)]
)
def test_neighbors_are_asked_where_fewer_than_four_labels_can_be_hidden(
    n_hidden, n_beside, asked, monkeypatch
):
    rows, labels = noise(4, 4, d=4)
    near = (columns(np.arange(7.0, 7.0 + n_beside)), columns(np.arange(1.0, 5.0)))
    monkeypatch.setattr(border, "fold_scores", lambda *args, **named: near)
    scores = (columns(np.arange(n_hidden)), columns([-20.0, -10.0, -30.0]))
    found = learned_border(rows, labels, NO_NEIGHBORS, scores, seed=0)
    line = lone_line(scores[1][:, 0])
    assert line == pytest.approx(np.quantile(scores[1][:, 0], 0.7) / 2)
    assert found.line == pytest.approx(fitted_border(*near).line if asked else line)


def test_neighbors_are_not_asked_where_no_class_can_be_hidden():
    rows, labels = noise(1, 1, d=4)
    nothing = (columns([]), columns([]))
    assert learned_border(rows, labels, NO_NEIGHBORS, nothing, seed=0) == Border(0.0)


def test_without_a_label_to_spare_hidden_classes_alone_say_where_new_ends():
    assert lone_line(np.linspace(0, 10, 101)) == pytest.approx(3.5)
    assert lone_line(np.empty(0)) == 0.0


def clusters(n_classes=9, n=40, labels_each=1, seed=0):
    rng = np.random.default_rng(seed)
    centers = 3 * rng.standard_normal((n_classes, 12))
    true = np.repeat(np.arange(n_classes), n)
    features = unit(torch.from_numpy(centers[true] + rng.standard_normal((len(true), 12))).float())
    labels = np.where((np.arange(len(true)) % n < labels_each) & (true < 6), true, -1)
    return features, labels


def test_with_one_label_per_class_neighbors_help_to_find_the_border():
    features, labels = clusters()
    rows = reduced(features, labels, seed=0)
    neighbors = nearest(rows.space(labels).directions, n_neighbors=10)
    scores = fold_scores(rows, labels, n_neighbors=10, seed=0)
    assert not len(scores[0])
    beside = stand_ins(labels, neighbors)
    known, new = fold_scores(rows, labels, n_neighbors=10, seed=0, beside=beside)
    found = learned_border(rows, labels, neighbors, scores, seed=0)
    assert found == fitted_border(known, new)
    assert found.line != pytest.approx(lone_line(scores[1][:, 0]))
    assert np.median(new[:, 0]) < found.line < np.median(known[:, 0])


def test_with_labels_to_hide_neighbors_are_not_asked():
    features, labels = clusters(labels_each=6)
    rows = reduced(features, labels, seed=0)
    neighbors = nearest(rows.space(labels).directions, n_neighbors=10)
    scores = fold_scores(rows, labels, n_neighbors=10, seed=0)
    assert learned_border(rows, labels, neighbors, scores, seed=0) == fitted_border(*scores)
