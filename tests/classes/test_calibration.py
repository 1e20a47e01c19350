import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from bacon_gcd.classes.calibration import (
    calibrated,
    log_odds,
    matching_shift,
    matching_temperature,
    with_known_evidence,
)
from bacon_gcd.classes.rules import Rules


def test_the_temperature_makes_the_mean_confidence_what_was_asked():
    scores = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) * 5
    for sure in (0.6, 0.9):
        temperature = matching_temperature(scores, sure)
        top = (scores / temperature).softmax(dim=1).amax(dim=1).mean()
        assert float(top) == pytest.approx(sure, abs=0.01)


def test_there_is_no_temperature_of_no_images_or_of_one_class():
    assert matching_temperature(torch.empty(0, 4), 0.5) == 1.0
    assert matching_temperature(torch.randn(5, 1), 0.5) == 1.0


def by_trying_all(scores, sure):
    """The first of 300 temperatures from 0.005 to 10,000 at which the softmax is not surer."""
    for temperature in np.geomspace(0.005, 10_000, 300):
        if float((scores / temperature).softmax(dim=1).amax(dim=1).mean()) <= sure:
            break
    return temperature


@pytest.mark.parametrize("sure", [0.35, 0.5, 0.7, 0.97])
@pytest.mark.parametrize("spread", [0.1, 40.0])
def test_the_temperature_is_the_first_that_is_not_too_sure(sure, spread):
    scores = spread * torch.randn(90, 3, generator=torch.Generator().manual_seed(1))
    assert matching_temperature(scores, sure) == by_trying_all(scores, sure)


def test_scores_that_are_never_or_always_surer_have_the_first_or_last_temperature():
    equal, apart = torch.zeros(3, 2), torch.tensor([[0.0, 1e9]])
    assert matching_temperature(equal, 0.5) == pytest.approx(0.005)  # as sure as that, not surer
    assert matching_temperature(apart, 0.9) == pytest.approx(10_000)


def test_a_temperature_is_read_from_every_second_of_4000_images():
    scores = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    scores[1::2] = 0.0
    assert matching_temperature(scores, 0.8) == by_trying_all(scores[::2], 0.8)
    assert matching_temperature(scores[:3999], 0.8) == by_trying_all(scores[:3999], 0.8)


def some_probabilities(n_rows=400, n_classes=6, seed=0):
    scores = torch.randn(n_rows, n_classes, generator=torch.Generator().manual_seed(seed))
    return (2 * scores).softmax(dim=1)


@pytest.mark.parametrize("sure", [0.3, 0.6, 0.95])
def test_calibrated_probabilities_are_as_sure_as_asked_and_keep_the_best_class(sure):
    given = some_probabilities()
    found = calibrated(given, torch.ones(400, dtype=torch.bool), sure, Rules())
    assert float(found.amax(dim=1).mean()) == pytest.approx(sure, abs=0.02)
    assert torch.equal(found.argmax(dim=1), given.argmax(dim=1))
    torch.testing.assert_close(found.sum(dim=1), torch.ones(400))
    assert float(found.min()) >= 0


def test_log_odds_of_the_best_class_are_multiplied_by_the_slope():
    given = some_probabilities(n_classes=40)
    found = calibrated(given, torch.ones(400, dtype=torch.bool), 0.5, Rules(confidence_slope=0.6))
    before, after = (logit(each.amax(dim=1).double().numpy()) for each in (given, found))
    assert np.ptp(after - 0.6 * before) < 1e-3


def test_surer_rows_take_from_all_classes_and_less_sure_ones_give_to_all():
    given = torch.tensor([[0.6, 0.3, 0.1], [0.9, 0.08, 0.02]])
    counted = torch.tensor([True, True])
    more = calibrated(given, counted, 0.97, Rules(confidence_slope=1.0))
    torch.testing.assert_close(more[0, 1:] / more[0, 1:].sum(), torch.tensor([0.75, 0.25]))
    less = calibrated(given, counted, 0.55, Rules(confidence_slope=1.0))
    share = (0.6 - less[0, 0]) / (0.6 - 1 / 3)
    torch.testing.assert_close(less[0], (1 - share) * given[0] + share / 3)


def test_only_counted_rows_have_the_mean_that_is_asked():
    given, counted = some_probabilities(), torch.arange(400) < 100
    found = calibrated(given, counted, 0.5, Rules())
    assert float(found[counted].amax(dim=1).mean()) == pytest.approx(0.5, abs=0.02)
    assert torch.equal(calibrated(given, torch.zeros(400, dtype=torch.bool), 0.5, Rules()), given)
    assert torch.equal(calibrated(torch.ones(3, 1), counted[:3], 0.5, Rules()), torch.ones(3, 1))


def test_two_classes_are_calibrated_like_more():
    given = some_probabilities(n_classes=2)
    found = calibrated(given, torch.ones(400, dtype=torch.bool), 0.8, Rules())
    assert float(found.amax(dim=1).mean()) == pytest.approx(0.8, abs=0.02)


def test_the_shift_is_that_of_every_second_of_4000_rows():
    given = some_probabilities(4000)
    given[1::2] = torch.eye(6)[0]
    found = calibrated(given, torch.ones(4000, dtype=torch.bool), 0.6, Rules())
    assert float(found[::2].amax(dim=1).mean()) == pytest.approx(0.6, abs=0.02)


def test_certain_rows_stay_probabilities():
    given = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.7, 0.3]])
    found = calibrated(given, torch.ones(3, dtype=torch.bool), 0.8, Rules())
    assert found.isfinite().all()
    torch.testing.assert_close(found.sum(dim=1), torch.ones(3))


def test_a_shift_gives_the_mean_that_was_asked():
    odds, weights = np.array([-2.0, 0.5, 3.0]), np.array([1.0, 2.0, 5.0])
    for mean in (0.1, 0.5, 0.9):
        assert expit(odds + matching_shift(odds, mean)).mean() == pytest.approx(mean)
        by = matching_shift(odds, mean, weights)
        assert np.average(expit(odds + by), weights=weights) == pytest.approx(mean)
    assert np.isfinite(log_odds(np.array([0.0, 1.0]))).all()


def test_evidence_moves_known_classes_together_and_never_past_the_best_new_one():
    scores = torch.tensor([[1.0, 0.4, 0.0], [0.2, 0.1, 0.6], [0.5, 0.1, 0.4], [0.0, 0.3, 0.9]])
    above, free = np.array([1.0, 2.0, -3.0, -0.5]), np.array([True, True, True, False])
    found = with_known_evidence(scores, above, free, 2, Rules(evidence_share=0.5))
    ahead = np.array([1.0, -0.4, 0.1, -0.6])
    by = 0.5 * ahead[:3].std() / above[:3].std() * above
    by[1], by[2] = min(by[1], 0.4), max(by[2], -0.1)  # no image changes sides
    expected = scores.numpy() + by[:, None] * np.array([1, 1, 0])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert torch.equal(found[0].argmax(), scores[0].argmax())


def test_one_known_class_is_moved_too():
    scores = torch.tensor([[1.0, 0.0, 0.2], [0.0, 0.5, 0.1]])
    found = with_known_evidence(scores, np.array([1.0, -1.0]), np.ones(2, dtype=bool), 1)
    assert float(found[0, 0]) > 1
    assert float(found[1, 0]) < 0


@pytest.mark.parametrize("n_known", [0, 3])
def test_with_classes_of_one_kind_evidence_moves_nothing(n_known):
    scores, nothing = torch.randn(4, 3), np.full(4, -np.inf)
    assert torch.equal(with_known_evidence(scores, nothing, nothing < 0, n_known), scores)


def test_evidence_that_is_the_same_for_all_moves_nothing():
    scores = torch.randn(4, 3)
    assert torch.equal(with_known_evidence(scores, np.ones(4), np.ones(4, dtype=bool), 2), scores)
