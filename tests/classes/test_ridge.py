import numpy as np
import pytest
import torch

from bacon_gcd.classes import ridge
from bacon_gcd.classes.ridge import class_sums, fit_ridge, judge, less_by_size, rounds_for
from bacon_gcd.classes.rules import Rules
from bacon_gcd.cluster import unit
from tests.reference.ridge import squares_within, without_each


def drawn(n=40, d=6, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, n_classes, n)
    means = rng.normal(size=(n_classes, d))
    return torch.from_numpy(means[ids] + rng.normal(size=(n, d))).float(), ids


@pytest.mark.parametrize("penalty", [0.1, 1.0, 5.0])
def test_the_prediction_for_a_row_is_that_of_a_regression_on_the_others(penalty):
    rows, ids = drawn()
    found = fit_ridge(rows, ids, Rules(penalty=penalty)).scores(ids, 3).numpy()
    exact = rows.double().numpy()
    by_hand = without_each(exact, ids, 3, penalty * squares_within(exact, ids))
    np.testing.assert_allclose(found, by_hand, atol=1e-4)


def test_the_penalty_is_that_of_rows_close_together_and_of_a_class_of_one_row():
    rows, ids = drawn(n=20)
    rows, ids = rows * 0.05, np.append(ids[:-1], 3)
    exact = rows.double().numpy()
    assert squares_within(exact, ids) < 0.1
    found = fit_ridge(rows, ids).scores(ids, 4).numpy()
    by_hand = without_each(exact, ids, 4, squares_within(exact, ids))
    np.testing.assert_allclose(found, by_hand, atol=1e-3)


def test_a_class_per_row_leaves_a_millionth_as_the_penalty():
    rows = torch.diag(torch.tensor([1e-3, 2e-3, 3e-3]))
    away = (rows - rows.mean(dim=0)).double()
    by_hand = torch.linalg.inv(away.T @ away + 1e-6 * torch.eye(3))
    found = fit_ridge(rows, np.arange(3)).inverse.double()
    torch.testing.assert_close(found, by_hand, rtol=1e-3, atol=0.0)


def test_other_classes_are_judged_by_the_same_regression():
    rows, ids = drawn()
    fitted = fit_ridge(rows, ids)
    others = np.random.default_rng(1).integers(0, 5, len(ids))
    exact = rows.double().numpy()
    by_hand = without_each(exact, others, 5, squares_within(exact, ids))
    np.testing.assert_allclose(fitted.scores(others, 5).numpy(), by_hand, atol=1e-4)


def test_several_answers_are_judged_as_their_weighted_mean():
    rows, first = drawn(n=25)
    second = np.random.default_rng(1).integers(0, 3, len(first))
    fitted = fit_ridge(rows, first)
    members = (2 * np.eye(3)[first] + np.eye(3)[second]) / 3
    exact = rows.double().numpy()
    by_hand = without_each(exact, members, 3, squares_within(exact, first))
    found = fitted.mean_scores([first, second], 3, weight=2.0).numpy()
    np.testing.assert_allclose(found, by_hand, atol=1e-4)
    assert torch.equal(fitted.mean_scores([first], 3, weight=2.0), fitted.scores(first, 3))


def test_other_answers_count_in_the_first_round_only():
    rows, ids = drawn(n=60, d=12)
    asked = []

    def others(class_ids):
        asked.append(class_ids)
        return [np.zeros(60, dtype=np.int64)] * 5

    first = torch.eye(3)[torch.from_numpy(ids)]

    def best(scores):
        return scores.argmax(dim=1).numpy()

    _, found = judge(rows, first, best, Rules(judged=1), others=others, weight=1.0)
    assert (found == 0).mean() > 0.9  # five of six answers say so
    np.testing.assert_array_equal(asked[0], ids)
    twice, _ = judge(rows, first, best, Rules(judged=2), others=others, weight=1.0)
    torch.testing.assert_close(
        twice, less_by_size(fit_ridge(rows, ids).scores(found, 3), found, Rules())
    )
    assert len(asked) == 2


def test_memberships_of_a_row_add_up_to_one_and_an_empty_class_has_none():
    rows, ids = drawn()
    found = fit_ridge(rows, ids).scores(ids, 5)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(len(ids)))
    torch.testing.assert_close(found[:, 3:], torch.zeros(len(ids), 2))


def test_a_row_in_the_wrong_class_is_told_by_the_others():
    rng = np.random.default_rng(0)
    ids = np.repeat([0, 1], 20)
    centers = torch.eye(8)[torch.from_numpy(ids)]
    rows = unit(centers + 0.1 * torch.from_numpy(rng.normal(size=(40, 8))).float())
    mixed = ids.copy()
    mixed[[3, 27]] = 1 - mixed[[3, 27]]
    found = fit_ridge(rows, mixed).scores(mixed, 2).argmax(dim=1).numpy()
    np.testing.assert_array_equal(found, ids)


def test_noise_is_not_found_in_its_own_class():
    """In many dimensions a regression fits any classes; without the row itself it cannot."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(100, 200))).float()
    ids = rng.integers(0, 2, 100)
    found = fit_ridge(rows, ids).scores(ids, 2).argmax(dim=1).numpy()
    assert abs((found == ids).mean() - 0.5) < 0.15


def test_parts_of_the_rows_give_what_all_of_them_give(monkeypatch):
    rows, ids = drawn()
    whole = fit_ridge(rows, ids).scores(ids, 3)
    monkeypatch.setattr(ridge, "CHUNK", 7)
    torch.testing.assert_close(fit_ridge(rows, ids).scores(ids, 3), whole)


@pytest.mark.parametrize("rows", [torch.ones(1, 4), torch.ones(5, 4), torch.eye(3)])
def test_one_row_equal_rows_and_a_class_per_row_have_finite_scores(rows):
    ids = np.arange(len(rows)) if len(rows) == 3 else np.zeros(len(rows), dtype=np.int64)
    found = fit_ridge(rows, ids).scores(ids, 3)
    assert found.isfinite().all()


def test_class_sums_are_numbers_and_sums_of_rows():
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sizes, sums = class_sums(rows, np.array([2, 0, 2]), 3)
    assert sizes.tolist() == [1, 0, 2]
    assert sums.tolist() == [[3, 4], [0, 0], [6, 8]]


def test_scores_are_divided_by_a_power_of_the_class_size_that_grows_with_the_classes():
    ids = np.repeat([0, 1], [32, 2])  # and a class that lost its images, which counts as 1
    found = less_by_size(torch.ones(34, 3), ids, Rules(size_power=0.5, many_classes=3.0))
    assert found[:, 1].div(found[:, 0]).tolist() == pytest.approx([2.0] * 34)  # 16 ** (0.5 / 2)
    assert found[:, 2].div(found[:, 1]).tolist() == pytest.approx([2**0.25] * 34)
    less = less_by_size(torch.ones(34, 3), ids, Rules(size_power=0.5, many_classes=6.0))
    assert less[:, 1].div(less[:, 0]).tolist() == pytest.approx([16 ** (0.5 / 9)] * 34)
    even = np.repeat([0, 1, 2], 4)
    torch.testing.assert_close(less_by_size(found[:12], even), found[:12])


@pytest.mark.parametrize(("power", "kept"), [(0.0, 0), (0.25, 12)])
def test_a_small_class_beside_large_ones_keeps_its_images(power, kept):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(6), [80, 80, 80, 80, 80, 12])
    means = torch.from_numpy(rng.normal(size=(6, 24))).float()
    noise = 0.7 * torch.from_numpy(rng.normal(size=(412, 24))).float()
    index, rules = torch.from_numpy(ids), Rules(size_power=power, many_classes=0.0)
    first = torch.eye(6)[index]
    _, found = judge(means[index] + noise, first, lambda s: s.argmax(dim=1).numpy(), rules)
    assert (found[ids == 5] == 5).sum() == kept


def test_in_few_dimensions_no_regression_sorts():
    assert [rounds_for(16, n, Rules(judged=3)) for n in (7, 8, 9)] == [3, 3, 0]
    line = torch.linspace(-1, 1, 60)[:, None]  # three classes on a line: the middle one is masked
    ids = np.repeat([0, 1, 2], 20)
    found = fit_ridge(line, ids).scores(ids, 3).argmax(dim=1).numpy()
    assert (found[ids == 1] != 1).any()
