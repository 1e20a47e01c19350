from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.config import UserError


def draw(n: int, dim: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_an_untrained_tail_changes_nothing(scale):
    backbone, vectors = Vectors(8), scale * draw(5, 8)
    tokens = backbone.trunk(vectors)
    assert torch.equal(tokens, vectors)
    assert backbone.token_shape == (8,)
    assert torch.equal(backbone.new_tail()(tokens), vectors)


def test_tails_learn_independently_and_every_layer_moves():
    backbone, vectors = Vectors(8), draw(6, 8)
    first, second = backbone.new_tail(), backbone.new_tail()
    start = {name: p.detach().clone() for name, p in first.named_parameters()}
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    for _ in range(2):  # the first layer's gradient passes through the second, zero at first
        optimizer.zero_grad()
        (first(vectors) - vectors.flip(0)).square().mean().backward()
        optimizer.step()
    assert all((p - start[name]).abs().max() > 0 for name, p in first.named_parameters())
    assert torch.equal(second(vectors), vectors)


def test_what_is_learned_does_not_depend_on_the_scale_of_the_vectors():
    tail, vectors = Vectors(8).new_tail(), draw(6, 8)
    torch.nn.init.normal_(tail.fc2.weight, generator=torch.Generator().manual_seed(1))
    assert (tail(vectors) - vectors).abs().max() > 0.1
    torch.testing.assert_close(tail(100 * vectors), 100 * tail(vectors))


def test_zero_vectors_and_empty_batches_are_finite_with_gradient():
    tail = Vectors(4).new_tail()
    torch.nn.init.ones_(tail.fc2.weight)
    for vectors in (torch.zeros(2, 4), torch.zeros(0, 4), torch.zeros(2, 4, dtype=torch.float16)):
        tail.zero_grad()
        out = tail(vectors)
        out.sum().backward()
        assert torch.equal(out, torch.zeros(len(vectors), 4))
        assert all(p.grad is not None and p.grad.isfinite().all() for p in tail.parameters())


def test_the_first_layer_comes_from_the_seed_and_not_from_the_global_state():
    before = torch.random.get_rng_state()
    one, same, other = (Vectors(6, seed=seed).new_tail().fc1.weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_hash_is_the_number_of_values():
    assert Vectors(6).hash == Vectors(6, seed=3).hash != Vectors(7).hash


def test_mistakes_are_one_line():
    with pytest.raises(UserError, match=r"\(5,\) given; 6 values expected"):
        Vectors(6).trunk(torch.zeros(2, 5))
    with pytest.raises(UserError, match="at least 1"):
        Vectors(0)
