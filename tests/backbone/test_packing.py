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
    plain, packed = (load_backbone(small) for _ in range(2))
    packed.stored = "int8"
    banks = [build_bank(table, rows, b, n_views=2, folder=tmp_path) for b in (plain, packed)]
    assert banks[0].key != banks[1].key
    assert banks[1].n_bytes < 0.6 * banks[0].n_bytes
    order = np.array([7, 0, 3])
    views = [bank.batch(order, ("weak", "weak"), seed=0, step=1) for bank in banks]
    for ours, theirs in ([b.test(order) for b in banks], views):
        assert ours.shape == theirs.shape
        step = ours.abs().amax(dim=-1, keepdim=True) / 127
        assert ((ours - theirs).abs() <= 0.57 * step + 1e-6).all()
        assert not torch.equal(ours, theirs)
    assert n_unfinished(table, packed, n_views=2, seed=0, folder=tmp_path) == 0
    assert build_bank(table, rows, packed, n_views=2, folder=tmp_path).n_computed == 0


def test_discover_keeps_packed_tokens_and_says_so_in_its_settings(small, tmp_path):
    photos = plant(tmp_path / "photos")
    done = discover(photos, tmp_path / "run", effort="quick", stored="int8")
    assert DiscoverRun.load(done.folder).config["stored"] == "int8"
    with pytest.raises(
        UserError, match="stored tokens 'byte' is not known; choose from half, int8"
    ):
        discover(photos, tmp_path / "other", stored="byte")
