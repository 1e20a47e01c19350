from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bacon_gcd.backbone import tail as tail_module
from bacon_gcd.backbone.tail import (
    Block,
    ChainedTail,
    FoldedTail,
    PlainTail,
    attend,
    fold_tokens,
)

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def random_block(
    dim: int = 12, *, heads: int = 3, layer_scale: bool = False, seed: int = 0
) -> Block:
    block = Block(dim, heads=heads, hidden=2 * dim, layer_scale=layer_scale).double()
    for number, parameter in enumerate(block.parameters()):
        parameter.data = 0.3 * draw(*parameter.shape, seed=100 * seed + number)
    for name, parameter in block.named_parameters():
        if ("norm" in name and name.endswith("weight")) or name.endswith("gamma"):
            parameter.data += 1.0
    return block


def random_norm(dim: int = 12) -> nn.LayerNorm:
    norm = nn.LayerNorm(dim, eps=1e-6).double()
    norm.weight.data, norm.bias.data = 1 + 0.3 * draw(dim, seed=7), draw(dim, seed=8)
    return norm


def both_tails(
    *, dtype: torch.dtype = torch.float64, dim: int = 12, heads: int = 3, layer_scale: bool = False
) -> tuple[PlainTail, FoldedTail]:
    block = random_block(dim, heads=heads, layer_scale=layer_scale)
    plain = PlainTail(block, random_norm(dim)).to(dtype)
    folded = FoldedTail(copy.deepcopy(block), random_norm(dim)).to(dtype)
    return plain, folded


def gradients(tail: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """Of a random linear function of the features, for every trainable parameter."""
    tail.zero_grad()
    features = tail(tokens)
    (features * draw(*features.shape, seed=9).to(features)).sum().backward()
    return {k: p.grad.clone() for k, p in tail.named_parameters() if p.grad is not None}


def assert_same(one: Tensor, other: Tensor) -> None:
    tolerance = TOLERANCE[one.dtype]
    scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
    torch.testing.assert_close(one, other, atol=tolerance * scale, rtol=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layer_scale", [False, True])
def test_the_folded_block_is_the_plain_block_with_every_gradient(dtype, layer_scale):
    plain, folded = both_tails(dtype=dtype, layer_scale=layer_scale)
    raw = (3 * draw(5, 7, 12) + 1).to(dtype)
    assert_same(folded(fold_tokens(raw)), plain(raw))
    expected, got = gradients(plain, raw), gradients(folded, fold_tokens(raw))
    assert got.keys() == expected.keys()
    assert len(got) == (14 if layer_scale else 12)
    for name in expected:
        assert_same(got[name], expected[name])


@given(
    n=st.integers(0, 4),
    t=st.integers(1, 6),
    heads=st.integers(1, 4),
    size=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_both_tails_agree_for_any_shape(n, t, heads, size, seed):
    dim = heads * size + heads * (size == 1)  # a LayerNorm of one value is always zero
    plain, folded = both_tails(dim=dim, heads=heads)
    raw = draw(n, t, dim, seed=seed)
    assert_same(folded(fold_tokens(raw)), plain(raw))
    expected, got = gradients(plain, raw), gradients(folded, fold_tokens(raw))
    for name in expected:
        # a LayerNorm over a few nearly equal values amplifies rounding
        torch.testing.assert_close(got[name], expected[name], atol=1e-9, rtol=1e-7)


def test_both_tails_share_one_state_dict():
    plain, folded = both_tails(layer_scale=True)
    assert list(plain.state_dict()) == list(folded.state_dict())
    other = FoldedTail(random_block(layer_scale=True, seed=5), random_norm())
    other.load_state_dict(plain.state_dict())
    tokens = fold_tokens(draw(2, 4, 12))
    assert torch.equal(other(tokens), folded(tokens))


def test_twelve_tensors_are_trained_and_the_final_norm_is_frozen():
    with torch.device("meta"):
        tail = FoldedTail(
            Block(768, heads=12, hidden=3072, layer_scale=False), nn.LayerNorm(768, eps=1e-6)
        )
    trained = [p for p in tail.parameters() if p.requires_grad]
    assert (len(trained), sum(p.numel() for p in trained)) == (12, 7_087_872)
    assert not any(p.requires_grad for p in tail.norm.parameters())


def test_the_key_bias_gets_exactly_no_gradient():
    _, folded = both_tails()
    bias = gradients(folded, fold_tokens(draw(3, 5, 12)))["block.attn.qkv.bias"]
    query, key, value = bias.chunk(3)
    assert torch.equal(key, torch.zeros_like(key))
    assert query.abs().min() > 0
    assert value.abs().min() > 0


def test_folded_tokens_are_the_raw_cls_and_the_standardized_tokens():
    raw = 4 * draw(2, 3, 12) + 2
    folded = fold_tokens(raw)
    assert folded.shape == (2, 4, 12)
    assert torch.equal(folded[:, 0], raw[:, 0])
    torch.testing.assert_close(folded[:, 1:].mean(-1), torch.zeros(2, 3).double())
    torch.testing.assert_close(folded[:, 1:].var(-1, correction=0), torch.ones(2, 3).double())


def test_attention_passes_gradcheck_for_tokens_and_queries():
    tokens, query = draw(3, 4, 5).requires_grad_(), draw(3, 2, 5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(attend, (tokens, query))


def test_the_folded_tail_passes_gradcheck():
    _, folded = both_tails(dim=4, heads=2, layer_scale=True)
    tokens = fold_tokens(draw(2, 3, 4))
    names = [name for name, p in folded.named_parameters() if p.requires_grad]

    def features(*values: Tensor) -> Tensor:
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(folded, named, (tokens,))

    values = [dict(folded.named_parameters())[name].detach().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(features, values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_pieces_of_any_size_give_the_same_numbers(dtype, monkeypatch):
    _, folded = both_tails()
    tokens = fold_tokens(draw(7, 5, 12)).to(dtype)
    whole, whole_gradients = folded(tokens), gradients(folded, tokens)
    monkeypatch.setattr(tail_module, "PIECE_BYTES", 2 * 5 * 12 * 8)  # two images, so 2 + 2 + 2 + 1
    assert_same(folded(tokens), whole)
    for name, gradient in gradients(folded, tokens).items():
        assert_same(gradient, whole_gradients[name])


def test_half_precision_tokens_cost_no_more_than_their_rounding():
    plain, folded = both_tails(dtype=torch.float32)
    raw = draw(6, 9, 12).float()
    stored = fold_tokens(raw).half()
    assert_same(folded(stored), folded(stored.float()))
    got = gradients(folded, stored)
    for name, gradient in gradients(folded, stored.float()).items():
        assert_same(got[name], gradient)
    torch.testing.assert_close(folded(stored), plain(raw), atol=5e-3, rtol=0.0)


def test_tokens_are_not_copied_for_the_backward_pass():
    _, folded = both_tails(dtype=torch.float32)
    stored = fold_tokens(draw(6, 9, 12).float()).half()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        folded(stored)
    large = [x for x in kept if x.numel() >= stored[:, 1:].numel()]
    assert [x.untyped_storage().data_ptr() for x in large] == [stored.untyped_storage().data_ptr()]


def test_no_images_give_no_features_and_a_zero_gradient():
    _, folded = both_tails()
    assert folded(torch.zeros(0, 5, 12)).shape == (0, 12)
    for gradient in gradients(folded, torch.zeros(0, 5, 12).double()).values():
        assert torch.equal(gradient, torch.zeros_like(gradient))


def by_hand(blocks: list[Block], norm: nn.LayerNorm, raw: Tensor) -> Tensor:
    for block in blocks:
        raw = block(raw)
    return norm(raw[:, 0])


def test_a_chained_tail_feeds_each_block_the_output_of_the_one_before():
    blocks, norm, raw = [random_block(seed=s) for s in (1, 2, 3)], random_norm(), draw(4, 5, 12)
    chained = ChainedTail(copy.deepcopy(blocks), norm)
    assert_same(chained(raw), by_hand(blocks, norm, raw))
    same_input = norm(blocks[-1](raw)[:, 0])  # the mistake of the released code
    assert (chained(raw) - same_input).abs().max() > 0.1


def test_a_chained_tail_trains_every_block_as_plain_blocks_would():
    blocks, norm, raw = [random_block(seed=s) for s in (1, 2)], random_norm(), draw(4, 5, 12)
    chained = ChainedTail(copy.deepcopy(blocks), copy.deepcopy(norm))
    plain = nn.Sequential(blocks[0], PlainTail(blocks[1], norm))
    got, expected = gradients(chained, raw), gradients(plain, raw)
    assert len(got) == 24
    for one, other in zip(got.values(), expected.values(), strict=True):
        assert_same(one, other)
    assert not any(p.requires_grad for p in chained.last.norm.parameters())
