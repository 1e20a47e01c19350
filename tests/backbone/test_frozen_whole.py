"""A network frozen as a whole: its features are the tokens."""

import pytest
import torch
from torch.nn.functional import normalize

from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.config import UserError
from tests.small_backbone import use_small_backbone


@pytest.fixture
def name(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    return use_small_backbone(monkeypatch)


def images(n):
    return torch.randn(n, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_tokens_are_the_features_at_their_own_length(name):
    tuned, frozen = load_backbone(name), load_backbone(name, tuned="vectors")
    with torch.no_grad():
        expected = tuned.new_tail()(tuned.trunk(images(3)))
        found = frozen.new_tail()(frozen.trunk(images(3)))
    torch.testing.assert_close(found, expected)
    lengths = found.norm(dim=1)
    assert (lengths > 1.5).all()  # unit vectors would collapse the projector
    assert frozen.token_shape == (tuned.feature_dim,)


def test_its_tokens_are_not_those_of_another_cut(name):
    tuned, frozen = load_backbone(name), load_backbone(name, tuned="vectors")
    assert frozen.hash != tuned.hash
    assert frozen.weights == tuned.weights


def test_only_the_small_tail_is_trained(name):
    frozen = load_backbone(name, tuned="vectors")
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in frozen.new_tail().parameters())


def test_another_part_is_one_line(name):
    with pytest.raises(UserError, match="tuned 'nothing'"):
        load_backbone(name, tuned="nothing")


def test_mirrored_features_are_the_mean_of_an_image_and_its_mirror_image(name):
    frozen, mirrored = load_backbone(name, tuned="vectors"), load_backbone(name, tuned="mirrored")
    first, second = frozen.trunk(images(3)), frozen.trunk(images(3).flip(3))
    expected = normalize(first, dim=1) + normalize(second, dim=1)
    torch.testing.assert_close(mirrored.trunk(images(3)), expected)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(mirrored.trunk(images(3).flip(3)), expected)


def test_mirrored_tokens_are_never_taken_for_others(name):
    frozen, mirrored = load_backbone(name, tuned="vectors"), load_backbone(name, tuned="mirrored")
    assert frozen.hash != mirrored.hash
    assert frozen.weights == mirrored.weights
