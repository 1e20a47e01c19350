"""Packed tokens: half the bytes, values to within half a step of their token's scale."""

import numpy as np
import pytest
import torch

from bacon_gcd.backbone.bank import build_bank, n_unfinished
from bacon_gcd.backbone.packing import pack, stored_shape, unpack
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.config import UserError
from bacon_gcd.data.images import from_arrays
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.pipeline import discover
from tests.backbone.test_bank import TinyBackbone
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    return use_small_backbone(monkeypatch)


@pytest.mark.parametrize("shape", [(5, 8), (3, 7), (6,)])
def test_values_are_kept_to_half_a_step_of_their_token(shape):
    tokens = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)) * 30
    tokens[0] = 0.0
    packed = pack(tokens)
    step = tokens.abs().amax(dim=-1, keepdim=True) / 127
    assert packed.shape == (4, *stored_shape(shape, "int8"))
    assert packed.dtype == torch.float16
    error = (unpack(packed, shape[-1]) - tokens).abs()
    # The scale itself is a half float: 127 steps of it are off by 127 / 2048 of a step.
    assert (error <= 0.57 * step + 1e-7).all()
    assert error[1:].max() > 0


def test_a_packed_bank_hands_out_the_tokens_of_a_plain_one_in_half_the_bytes(small, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 9, 3), dtype=np.uint8)
    table, rows = from_arrays(pixels), np.arange(12)
    backbone, options = load_backbone(small), {"n_views": 2, "folder": tmp_path}
    banks = [build_bank(table, rows, backbone, stored=s, **options) for s in ("half", "int8")]
    assert banks[0].key != banks[1].key
    assert banks[1].n_bytes < 0.6 * banks[0].n_bytes
    order = np.array([7, 0, 3])
    views = [bank.batch(order, ("weak", "weak"), seed=0, step=1) for bank in banks]
    for ours, theirs in ([b.test(order) for b in banks], views):
        assert ours.shape == theirs.shape
        step = ours.abs().amax(dim=-1, keepdim=True) / 127
        assert ((ours - theirs).abs() <= 0.57 * step + 1e-6).all()
        assert not torch.equal(ours, theirs)
    assert n_unfinished(table, backbone, stored="int8", seed=0, **options) == 0
    assert build_bank(table, rows, backbone, stored="int8", **options).n_computed == 0


def test_tokens_of_two_values_are_packed_though_they_need_as_many_bytes(tmp_path):
    table = from_arrays(np.random.default_rng(0).integers(0, 256, (3, 9, 9, 3), dtype=np.uint8))
    banks = [
        build_bank(table, np.arange(3), TinyBackbone(), n_views=0, stored=s, folder=tmp_path)
        for s in ("half", "int8")
    ]
    assert banks[0].n_bytes == banks[1].n_bytes
    ours, theirs = (bank.test([2, 0]) for bank in banks)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=float(ours.abs().max()) / 127)


def test_discover_keeps_packed_tokens_and_says_so_in_its_settings(small, tmp_path):
    photos = plant(tmp_path / "photos")
    done = discover(photos, tmp_path / "run", effort="quick", stored="int8")
    assert DiscoverRun.load(done.folder).config["stored"] == "int8"
    with pytest.raises(
        UserError, match="stored tokens 'byte' is not known; choose from half, int8"
    ):
        discover(photos, tmp_path / "other", stored="byte")
