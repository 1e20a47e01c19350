import numpy as np
import pytest

from bacon_gcd.classes.label_rate import fit_label_rates, labels_around, number_around
from bacon_gcd.classes.rules import Rules
from tests.reference.label_rate import label_odds


def labeled(n_images, n_classes, n_labels):
    """(n_images,) labels: so many of each class."""
    labels = np.full(n_images, -1)
    labels[: n_classes * n_labels] = np.arange(n_classes * n_labels) % n_classes
    return labels


@pytest.mark.parametrize(
    ("n_images", "n_labels", "around"), [(200, 6, 10), (200, 5, 0), (4000, 6, 60), (15, 6, 1)]
)
def test_more_images_are_looked_around_at_and_none_where_labels_are_few(n_images, n_labels, around):
    assert number_around(labeled(n_images, 2, n_labels), Rules()) == around


def test_labels_around_are_the_labeled_neighbors():
    labels, neighbors = np.array([3, -1, 0, -1]), np.array([[1, 2], [0, 2], [1, 3], [0, 1]])
    assert labels_around(labels, neighbors).tolist() == [1, 2, 0, 1]
    assert labels_around(labels, np.empty((4, 0), dtype=int)).tolist() == [0, 0, 0, 0]


def test_evidence_is_the_binomial_log_odds():
    around, classes = np.array([8, 9, 7, 2, 3]), np.array([0, 0, 0, 1, 1])
    rates = fit_label_rates(around, classes, 20, n_known=2)
    seen, best = np.array([0, 5, 20, 5]), np.array([0, 0, 0, 1])
    by_hand = [
        label_odds(a, around, around[classes == c], 20) for a, c in zip(seen, best, strict=True)
    ]
    np.testing.assert_allclose(rates.evidence(seen, best), by_hand, rtol=1e-9)


def test_the_more_labels_around_the_likelier_is_a_known_class():
    rates = fit_label_rates(np.array([10, 10]), np.array([0, 0]), 20, n_known=1)
    found = rates.evidence(np.arange(21), np.zeros(21, dtype=int))
    assert (np.diff(found) > 0).all()
    assert found[0] < 0 < found[10]


def test_no_label_around_says_less_where_labels_are_rare():
    common, rare = (
        fit_label_rates(np.full(50, n), np.repeat([0, 1], 25), 60, n_known=2) for n in (30, 1)
    )
    without = np.zeros(1, dtype=int)
    alone = [each.evidence(without, without)[0] * each.mean for each in (common, rare)]
    assert alone[0] < 10 * alone[1] < 0


def test_thinned_labels_move_the_evidence_of_known_images_little():
    """A fold hides a third of the labels: what it learns must hold with all of them."""
    rng = np.random.default_rng(0)
    found = []
    for share in (0.6, 0.4):
        around = rng.binomial(60, share, 4000)
        rates = fit_label_rates(around, np.zeros(4000, dtype=int), 60, n_known=1)
        found.append(float(rates.evidence(around, np.zeros(4000, dtype=int)).mean()))
    assert found[1] == pytest.approx(found[0], rel=0.2)


@pytest.mark.parametrize("n_around", [0, 5])
def test_without_labels_to_count_the_evidence_is_zero(n_around):
    none = np.empty(0, dtype=int)
    rates = fit_label_rates(none, none, n_around, n_known=2)
    assert rates.evidence(np.array([0, 3]), np.array([0, 1])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("hits", [0, 20])
def test_rates_of_nothing_and_of_everything_are_finite(hits):
    rates = fit_label_rates(np.full(900, hits), np.zeros(900, dtype=int), 20, n_known=2)
    found = rates.evidence(np.array([0, 10, 20]), np.array([0, 1, 1]))
    assert np.isfinite(found).all()


def test_a_class_of_few_labels_has_about_the_rate_of_all():
    around, classes = np.array([10] * 99 + [0]), np.array([0] * 99 + [1])
    few = fit_label_rates(around, classes, 20, n_known=2, rules=Rules(rate_images=100.0))
    assert few.of_class[0] == pytest.approx(0.5, abs=0.01)
    assert few.of_class[1] == pytest.approx(100 * few.mean / 120)
