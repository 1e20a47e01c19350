import numpy as np
import pytest
import torch
from safetensors import safe_open

from bacon_gcd.backbone import efficientnet
from bacon_gcd.backbone.catalogue import LITE, cached
from bacon_gcd.backbone.state import read_state, state_digest
from bacon_gcd.backbone.whitening import (
    STORED,
    Whitening,
    find_whitening,
    store_whitening,
    whitening_from,
)
from tests.backbone.test_efficientnet import images, random_state

N_DIMS = 6


def covariance(seed=0):
    rows = np.random.default_rng(seed).normal(size=(40, N_DIMS)) * np.arange(1, N_DIMS + 1)
    return torch.from_numpy(np.cov(rows.T))


def features(n=5, n_dims=N_DIMS):
    return torch.randn(n, n_dims, generator=torch.Generator().manual_seed(2))


def test_a_direction_of_large_variance_counts_less_by_hand():
    within = torch.diag(torch.tensor([9.0, 1.0, 1.0, 1.0]))  # relative to the mean: 3, 1/3, ...
    whitening = whitening_from(within, weight=0.5, n_directions=1)
    found = whitening(torch.tensor([[2.0, 3.0, 5.0, 7.0]]))
    # sqrt(0.5 / (0.5 + 0.5 * 3)) = 1/2
    torch.testing.assert_close(found, torch.tensor([[1.0, 3.0, 5.0, 7.0]]))


def test_along_all_directions_it_is_the_inverse_root_of_the_mixed_covariance():
    within, weight = covariance(), 0.3
    mixed = (1 - weight) * np.eye(N_DIMS) + weight * (within / within.diagonal().mean()).numpy()
    values, axes = np.linalg.eigh(mixed)
    literal = (axes * values**-0.5) @ axes.T * (1 - weight) ** 0.5
    found = whitening_from(within, weight=weight, n_directions=N_DIMS)(features())
    torch.testing.assert_close(found, features() @ torch.from_numpy(literal).float())


def test_without_weight_nothing_changes():
    found = whitening_from(covariance(), weight=0.0, n_directions=3)(features())
    torch.testing.assert_close(found, features())


def test_it_can_be_undone():
    whitening = whitening_from(covariance(), weight=0.6, n_directions=3)
    torch.testing.assert_close(whitening.undo(whitening(features())), features())
    assert not torch.allclose(whitening(features()), features(), atol=0.1)


def test_a_stored_one_is_found_by_the_weights_it_was_learned_with(tmp_path):
    whitening = whitening_from(covariance(), weight=0.3, n_directions=2)
    store_whitening(tmp_path / "a.safetensors", whitening, weights="abc", learned_on="nothing")
    found = find_whitening("abc", tmp_path)
    assert found is not None
    torch.testing.assert_close(found(features()), whitening(features()), rtol=2e-3, atol=2e-3)
    assert find_whitening("abd", tmp_path) is None
    assert find_whitening("abc", tmp_path / "absent") is None


def test_the_hash_tells_two_of_them_apart():
    one, other = (
        whitening_from(covariance(seed), weight=0.3, n_directions=2).hash for seed in (0, 1)
    )
    assert one != other
    again = whitening_from(covariance(0), weight=0.3, n_directions=2).hash
    assert one == again


def test_efficientnet_lite0_has_one_that_fits():
    with safe_open(STORED / f"{LITE}.safetensors", framework="pt") as file:
        directions, shares = file.get_tensor("directions"), file.get_tensor("shares")
    assert directions.shape == (efficientnet.HEAD, len(shares))
    assert 0 < float(shares.min()) < float(shares.max()) < 1
    overlap = directions.float().T @ directions.float()
    torch.testing.assert_close(overlap, torch.eye(len(shares)), rtol=0, atol=1e-3)


def test_it_was_learned_with_the_weights_of_the_catalogue():
    path = cached(LITE)
    if path is None:
        pytest.skip(f"the weights of {LITE} are not here")
    assert find_whitening(state_digest(efficientnet.used_of(read_state(path)))) is not None


def test_features_of_its_weights_are_whitened_and_have_another_hash(monkeypatch):
    state, size = random_state(), 32
    plain = efficientnet.from_state("x", state, image_size=size)
    axes = torch.linalg.qr(features(efficientnet.HEAD, 4)).Q
    whitening = Whitening(axes, torch.tensor([0.9, 0.5, 0.2, 0.1]))
    own = state_digest(efficientnet.used_of(state))
    monkeypatch.setattr(
        efficientnet, "find_whitening", lambda weights: whitening if weights == own else None
    )
    whitened = efficientnet.from_state("x", state, image_size=size)
    shown = images(4, size)
    torch.testing.assert_close(whitened.trunk(shown), whitening(plain.trunk(shown)))
    assert whitened.hash != plain.hash
    assert own not in (plain.weights, whitened.weights)  # models of the mean are told apart
    other = efficientnet.from_state("x", random_state(seed=1), image_size=size)
    assert isinstance(other.network.whitening, torch.nn.Identity)
