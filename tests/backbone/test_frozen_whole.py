"""A network frozen as a whole: its features are the tokens."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from bacon_gcd.backbone import filling
from bacon_gcd.backbone.bank import FreshTokens, build_bank
from bacon_gcd.backbone.catalogue import LITE, OFFLINE
from bacon_gcd.backbone.weights import MIRRORED, VECTORS, load_backbone, untrained
from bacon_gcd.config import UserError
from bacon_gcd.data.images import from_arrays
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.discovery.settings import DiscoverSettings
from bacon_gcd.discovery.summary import averaging
from bacon_gcd.model import backbone_from, describe_backbone
from tests.small_backbone import use_small_backbone


@pytest.fixture
def name(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    return use_small_backbone(monkeypatch)


def small_table(n):
    return from_arrays(np.random.default_rng(0).integers(0, 256, (n, 64, 64, 3), dtype=np.uint8))


def images(n):
    return torch.randn(n, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_progress_counts_images_that_are_computed_alone_and_the_bytes_are_those_of_all(
    name, tmp_path, monkeypatch
):
    counted = []

    @contextmanager
    def progress(what, total):
        assert (what, total) == ("embedding", 20)
        yield lambda done, note="": counted.append(done)

    monkeypatch.setattr(filling, "progress", progress)
    found = []
    for size in (1, None):
        counted.clear()
        backbone = load_backbone(name, tuned="vectors")
        assert backbone.at_a_time == 1
        backbone.at_a_time = size
        options = {"n_views": 0, "folder": tmp_path / str(size)}
        bank = build_bank(small_table(20), np.arange(20), backbone, **options)
        found.append(bank.test(np.arange(20)))
        assert [n for n in counted if n] == ([1] * 20 if size else [20])
    assert torch.equal(*found)


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


def test_on_a_cpu_a_frozen_vit_sees_one_image_after_the_other(name, monkeypatch):
    frozen = load_backbone(name, tuned="vectors")
    vit, seen = frozen.network.backbone, []
    trunk = vit.trunk
    monkeypatch.setattr(vit, "trunk", lambda shown: (seen.append(len(shown)), trunk(shown))[1])
    together = frozen.trunk(images(5))
    assert seen == [1] * 5
    assert torch.equal(frozen.trunk(images(5)[:2]), together[:2])
    monkeypatch.setattr(vit, "one_by_one", False)
    torch.testing.assert_close(frozen.trunk(images(5)), together)
    assert seen[-1] == 5


def test_without_training_only_convolutional_networks_see_mirror_images():
    assert untrained(OFFLINE) == VECTORS
    assert untrained("vit_base_patch16_224.dino") == VECTORS
    for name in (LITE, "resnet18.pypi_in1k", f"{LITE}+resnet18.pypi_in1k", "hf:some/folder"):
        assert untrained(name) == MIRRORED
    assert averaging(DiscoverSettings("photos", backbone=OFFLINE)) == ""
    assert averaging(DiscoverSettings("photos", backbone=LITE)).endswith("its mirror image")


def framed_and_plain():
    """Two images that differ only at their edges, which a center crop cuts off."""
    pixels = np.full((2, 64, 64, 3), 90, dtype=np.uint8)
    pixels[1, [0, -1]] = pixels[1][:, [0, -1]] = 255
    return from_arrays(pixels, [-1, -1])


@pytest.mark.parametrize("tuned", ["block", "mirrored"])
@pytest.mark.parametrize("uncropped", [False, True])
def test_an_uncropped_backbone_sees_the_edges_of_an_image(name, tmp_path, tuned, uncropped):
    table, backbone = framed_and_plain(), load_backbone(name, tuned=tuned, uncropped=uncropped)
    bank = build_bank(table, np.arange(2), backbone, n_views=0, seed=0, folder=tmp_path)
    fresh = FreshTokens(table, np.arange(2), backbone, ViewSettings("weak", backbone.image_size))
    for tokens in (bank.test([0, 1]), fresh.test([0, 1])):
        assert torch.equal(tokens[0], tokens[1]) != uncropped
    torch.testing.assert_close(bank.test([0, 1]), fresh.test([0, 1]), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("uncropped", [False, True])
def test_a_model_goes_on_seeing_images_as_it_did(name, uncropped):
    opened = load_backbone(name, tuned="mirrored", uncropped=uncropped)
    facts = describe_backbone(opened, tuned="mirrored")
    assert backbone_from(facts).uncropped == uncropped
    del facts["uncropped"]  # as before there was a choice
    assert not backbone_from(facts).uncropped
