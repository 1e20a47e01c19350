from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from bacon_gcd.backbone import vit as vit_module
from bacon_gcd.backbone.tail import ChainedTail, FoldedTail
from bacon_gcd.backbone.vit import ViT, ViTConfig, native_bfloat16, resize_positions
from bacon_gcd.config import UserError
from tests.reference import vit as reference

TINY = ViTConfig("tiny", patch=4, dim=12, depth=3, heads=3, pretrained_grid=4, image_size=16)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def tiny_state(config: ViTConfig = TINY, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return reference.random_state(
        patch=config.patch,
        dim=config.dim,
        depth=config.depth,
        grid=config.pretrained_grid,
        layer_scale=config.layer_scale,
        n_register=config.n_register,
        dtype=dtype,
    )


def pictures(side: int, *, n: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, side, side, generator=generator, dtype=dtype)


def features(vit: ViT, images: Tensor) -> Tensor:
    return vit.new_tail()(vit.trunk(images)).detach()


def by_hand(config: ViTConfig, state: dict[str, Tensor], images: Tensor) -> Tensor:
    shape = {"patch": config.patch, "heads": config.heads, "n_register": config.n_register}
    return reference.cls_features(state, images, **shape)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("image_size", [16, 12, 20])
@pytest.mark.parametrize("layer_scale", [False, True])
def test_the_cls_feature_is_that_of_the_literal_vit(layer_scale, image_size, dtype):
    config = dataclasses.replace(TINY, layer_scale=layer_scale)
    state = tiny_state(config)
    images = pictures(image_size)
    single = {name: weight.to(dtype) for name, weight in state.items()}
    vit = ViT.from_state(config, single, image_size=image_size)
    expected = by_hand(config, state, images)
    got = features(vit, images.to(dtype)).double()
    torch.testing.assert_close(got, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("image_size", [16, 8, 20])
def test_registers_stand_behind_cls_and_have_no_position(image_size):
    config = dataclasses.replace(TINY, n_register=2, layer_scale=True)
    state, images = tiny_state(config), pictures(image_size)
    vit = ViT.from_state(config, state, image_size=image_size)
    assert vit.token_shape == (1 + 1 + 2 + (image_size // 4) ** 2, 12)
    torch.testing.assert_close(features(vit, images), by_hand(config, state, images))


@pytest.mark.parametrize("tuned_blocks", [1, 2, 3])
def test_any_number_of_tuned_blocks_gives_the_same_untrained_feature(tuned_blocks):
    state, images = tiny_state(), pictures(16)
    vit = ViT.from_state(TINY, state, tuned_blocks=tuned_blocks)
    tokens = vit.trunk(images.clone().requires_grad_())
    assert tokens.shape[1:] == vit.token_shape == (17 + (tuned_blocks == 1), 12)
    assert not tokens.requires_grad
    assert isinstance(vit.new_tail(), FoldedTail if tuned_blocks == 1 else ChainedTail)
    torch.testing.assert_close(features(vit, images), by_hand(TINY, state, images))


def test_the_stored_names_are_those_of_the_file():
    for config in (TINY, dataclasses.replace(TINY, layer_scale=True, n_register=2)):
        state = tiny_state(config)
        kept = ViT.from_state(config, state).state_dict()
        assert kept.keys() == state.keys()
        assert all(torch.equal(kept[name], state[name]) for name in state)


def test_positions_on_their_own_grid_are_untouched_and_others_follow_the_original_rule():
    positions = torch.randn(1, 36, 5, generator=torch.Generator().manual_seed(0)).double()
    assert resize_positions(positions, 6, antialias=False) is positions
    for antialias in (False, True):
        for grid in (1, 2, 5, 7, 13):
            got = resize_positions(positions, grid, antialias=antialias)
            expected = reference.resize(positions[0], grid, antialias=antialias)
            torch.testing.assert_close(got[0], expected)


def test_tails_are_independent_copies_and_the_trunk_never_learns():
    vit = ViT.from_state(TINY, tiny_state())
    tokens = vit.trunk(pictures(16))
    before = {name: weight.clone() for name, weight in vit.state_dict().items()}
    first, second = vit.new_tail(), vit.new_tail()
    untouched = second(tokens).detach()
    optimizer = torch.optim.SGD([p for p in first.parameters() if p.requires_grad], lr=0.1)
    first(tokens).square().sum().backward()
    optimizer.step()
    assert (first(tokens) - untouched).abs().max() > 1e-3
    assert torch.equal(second(tokens), untouched)
    assert torch.equal(vit.new_tail()(tokens), untouched)
    assert all(torch.equal(weight, before[name]) for name, weight in vit.state_dict().items())
    assert not any(p.requires_grad for p in vit.parameters())
    first.load_state_dict({name: torch.zeros_like(w) for name, w in first.state_dict().items()})
    assert torch.equal(second(tokens), untouched)


def test_the_hash_names_everything_the_tokens_depend_on(monkeypatch):
    state = tiny_state(dtype=torch.float32)
    nudged = state | {"norm.bias": state["norm.bias"] + 1e-3}
    monkeypatch.setattr(vit_module, "native_bfloat16", lambda device: True)
    hashes = [
        ViT.from_state(TINY, state).hash,
        ViT.from_state(TINY, nudged).hash,
        ViT.from_state(TINY, state, image_size=20).hash,
        ViT.from_state(TINY, state, tuned_blocks=2).hash,
        ViT.from_state(TINY, state, trunk_dtype=torch.bfloat16).hash,
        ViT.from_state(dataclasses.replace(TINY, heads=2), state).hash,
    ]
    assert len(set(hashes)) == len(hashes)
    assert ViT.from_state(TINY, dict(reversed(state.items()))).hash == hashes[0]


def test_a_bfloat16_trunk_is_close_and_only_used_where_it_is_native(monkeypatch):
    state, images = tiny_state(dtype=torch.float32), pictures(16, dtype=torch.float32)
    exact = ViT.from_state(TINY, state)
    monkeypatch.setattr(vit_module, "native_bfloat16", lambda device: False)
    fallback = ViT.from_state(TINY, state, trunk_dtype=torch.bfloat16)
    assert fallback.hash == exact.hash
    assert torch.equal(fallback.trunk(images), exact.trunk(images))
    monkeypatch.setattr(vit_module, "native_bfloat16", lambda device: True)
    lower = ViT.from_state(TINY, state, trunk_dtype=torch.bfloat16).trunk(images)
    assert lower.dtype == torch.float32
    error = (lower - exact.trunk(images)).abs().max()
    assert 0 < error < 0.3


def test_native_bfloat16_asks_the_processor(monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    assert not native_bfloat16("cpu")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    assert native_bfloat16("cpu")
    assert not native_bfloat16("meta")


def test_half_precision_files_are_raised_and_other_names_left_out():
    state = {name: weight.half() for name, weight in tiny_state().items()}
    vit = ViT.from_state(TINY, state | {"head.weight": torch.zeros(3, 12)})
    assert {weight.dtype for weight in vit.state_dict().values()} == {torch.float32}


def test_loading_draws_no_random_numbers():
    before = torch.random.get_rng_state()
    ViT.from_state(TINY, tiny_state()).new_tail()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_mistakes_are_one_line():
    state = tiny_state()
    with pytest.raises(UserError, match=r"image size 18 .*choose 16 or 20$"):
        ViT.from_state(TINY, state, image_size=18)
    with pytest.raises(UserError, match=r"tuned_blocks 4.*1 to 3$"):
        ViT.from_state(TINY, state, tuned_blocks=4)
    with pytest.raises(UserError, match=r"blocks\.1\.norm1\.weight"):
        ViT.from_state(TINY, {k: v for k, v in state.items() if k != "blocks.1.norm1.weight"})
    with pytest.raises(UserError, match=r"pos_embed"):
        ViT.from_state(dataclasses.replace(TINY, pretrained_grid=5), state)
    with pytest.raises(ValueError, match="16 px"):
        ViT.from_state(TINY, state).trunk(pictures(20))
