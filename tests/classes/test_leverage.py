import numpy as np
import pytest
import torch

from bacon_gcd.classes import leverage
from bacon_gcd.classes.leverage import fit_leverage, log_leverages
from tests.reference.leverage import gaussian_process_variance, leverages_without_themselves


def planted(n_rows=30, dim=6):
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(n_rows, dim)) * np.linspace(0.2, 2, dim)).float()


def test_leverage_is_the_variance_of_a_gaussian_process():
    rows, new = planted(), planted(5)[:, [5, 4, 3, 2, 1, 0]]
    fitted = fit_leverage(rows)
    away = rows - rows.mean(dim=0)
    penalty = float(away.square().sum(dim=0).mean())
    found = log_leverages(new - fitted.mean, fitted.inverse, own=False).exp().numpy()
    expected = gaussian_process_variance(away.numpy(), (new - fitted.mean).numpy(), penalty)
    np.testing.assert_allclose(found, expected / penalty, rtol=1e-4)


def test_a_row_of_the_run_is_judged_as_if_it_were_new():
    away = planted() - planted().mean(dim=0)
    penalty = float(away.square().sum(dim=0).mean())
    inverse = torch.linalg.inv(away.T @ away + penalty * torch.eye(6))
    found = log_leverages(away, inverse, own=True).exp().numpy()
    np.testing.assert_allclose(
        found, leverages_without_themselves(away.numpy(), penalty), rtol=1e-4
    )


def test_rows_like_the_run_are_usual_and_a_new_direction_is_not():
    rows = torch.cat([planted(200, 5), torch.zeros(200, 1)], dim=1)
    fitted = fit_leverage(rows)
    own = log_leverages(rows - fitted.mean, fitted.inverse, own=True)
    assert (fitted.middle, fitted.spread) == pytest.approx(
        (float(own.mean()), float(own.std(correction=0))), rel=1e-4
    )
    assert float(fitted.unusual(4 * torch.eye(6)[5:])) > 2


def test_new_rows_are_compared_with_those_of_the_run():
    rows, new = planted(), planted(4)
    fitted = fit_leverage(rows)
    plain = log_leverages(new - fitted.mean, fitted.inverse, own=False)
    torch.testing.assert_close(fitted.unusual(new), (plain - fitted.middle) / fitted.spread)
    assert fitted.unusual(new[:0]).shape == (0,)


def test_a_row_that_nothing_else_explains_has_a_finite_leverage():
    found = log_leverages(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.eye(2), own=True)
    assert found.tolist() == pytest.approx([np.log(999), np.log(1e-12)], rel=1e-4)


def test_leverages_are_computed_some_rows_at_a_time(monkeypatch):
    rows = planted()
    whole = fit_leverage(rows).unusual(rows)
    monkeypatch.setattr(leverage, "CHUNK", 7)
    torch.testing.assert_close(fit_leverage(rows).unusual(rows), whole)


@pytest.mark.parametrize("n_rows", [1, 2, 9])
def test_rows_that_are_all_alike_have_a_spread(n_rows):
    fitted = fit_leverage(torch.ones(n_rows, 4))
    assert fitted.spread == leverage.LEAST_SPREAD
    assert fitted.unusual(torch.zeros(2, 4)).isfinite().all()
