"""The fast convolution is torch's convolution, gradients included."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.backbone import winograd
from bacon_gcd.backbone.winograd import conv3x3, direct3x3, frozen3x3, kernels_at_points


def example(side, n, n_in, n_out, *, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(side * side, n, n_in, generator=generator, dtype=dtype)
    weight = torch.randn(n_out, n_in, 3, 3, generator=generator, dtype=dtype)
    return maps, weight


def by_torch(maps, weight, side):
    images = maps.reshape(side, side, *maps.shape[1:]).permute(2, 3, 0, 1)
    result = F.conv2d(images, weight, padding=1)
    return result.permute(2, 3, 0, 1).reshape(side * side, maps.shape[1], len(weight))


def values_and_gradients(convolve, maps, weight, side):
    maps, weight = maps.clone().requires_grad_(), weight.clone().requires_grad_()
    result = convolve(maps, weight, side)
    # A gradient that differs at every position, so that a transposed transform cannot hide.
    (result * torch.arange(result.numel()).reshape(result.shape).cos()).sum().backward()
    return result.detach(), maps.grad, weight.grad


def fast(maps, weight, side):
    return conv3x3(maps, weight, side=side)


@settings(max_examples=30, deadline=None)
@given(
    side=st.integers(1, 10),
    n=st.integers(1, 5),
    n_in=st.integers(1, 6),
    n_out=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_values_and_both_gradients_are_those_of_torch(side, n, n_in, n_out, seed):
    maps, weight = example(side, n, n_in, n_out, seed=seed)
    ours = values_and_gradients(fast, maps, weight, side)
    for mine, theirs in zip(ours, values_and_gradients(by_torch, maps, weight, side), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("side", [3, 4, 5, 6, 7, 8])
def test_small_maps_do_take_the_fast_way(side, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("torch's convolution was called")

    maps, weight = example(side, 2, 3, 4)
    monkeypatch.setattr(winograd, "direct3x3", refuse)
    torch.testing.assert_close(conv3x3(maps, weight, side=side), by_torch(maps, weight, side))


def test_a_single_one_in_the_middle_gives_the_kernel_turned_around():
    maps, weight = torch.zeros(16, 1, 1), torch.arange(9.0).reshape(1, 1, 3, 3)
    maps[5] = 1  # row 1, column 1 of 4x4
    result = conv3x3(maps, weight, side=4).reshape(4, 4)
    torch.testing.assert_close(result[:3, :3], weight[0, 0].flip(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(result[3], torch.zeros(4), atol=1e-5, rtol=0)


def test_single_precision_loses_little():
    maps, weight = example(4, 64, 256, 256)
    exact = by_torch(maps, weight, 4)
    ours = conv3x3(maps.float(), weight.float(), side=4).double()
    assert (ours - exact).norm() / exact.norm() < 3e-6  # torch's own: 5e-7


@pytest.mark.parametrize("piece", [1, 2000, 20_000])
def test_pieces_of_points_and_rows_change_nothing(piece, monkeypatch):
    maps, weight = example(7, 5, 4, 3)
    whole = values_and_gradients(fast, maps, weight, 7)
    monkeypatch.setattr(winograd, "PIECE_BYTES", piece)
    groups = winograd._point_groups(winograd._transforms(7, weight.dtype, weight.device), weight)
    assert len(groups) > 1 or piece == 20_000
    for mine, expected in zip(values_and_gradients(fast, maps, weight, 7), whole, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-12)


def test_what_no_gradient_needs_is_not_kept():
    maps, weight = example(4, 2, 3, 4)
    weight.requires_grad_()
    only_weight = conv3x3(maps, weight, side=4)
    both = conv3x3(maps.clone().requires_grad_(), weight, side=4)
    assert len(only_weight.grad_fn.saved_tensors) == 2
    assert len(both.grad_fn.saved_tensors) > 2


def test_a_frozen_weight_still_passes_the_gradient_on():
    maps, weight = example(4, 2, 3, 4)
    leaf, other = maps.clone().requires_grad_(), maps.clone().requires_grad_()
    conv3x3(leaf, weight, side=4).square().sum().backward()
    by_torch(other, weight, 4).square().sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad)


def test_no_rows_give_no_rows_and_a_zero_gradient():
    maps, weight = example(4, 0, 3, 5)
    weight.requires_grad_()
    result = conv3x3(maps, weight, side=4)
    result.sum().backward()
    assert result.shape == (16, 0, 5)
    assert not weight.grad.any()


def test_other_number_types_are_left_to_torch():
    maps, weight = example(4, 2, 3, 4, dtype=torch.bfloat16)
    assert torch.equal(conv3x3(maps, weight, side=4), direct3x3(maps, weight, side=4))


@pytest.mark.parametrize("side", [3, 4, 7])
def test_kernels_computed_once_give_the_same(side):
    maps, weight = example(side, 3, 4, 5)
    frozen = frozen3x3(maps, kernels_at_points(weight, side=side), side=side)
    torch.testing.assert_close(frozen, by_torch(maps, weight, side), rtol=1e-10, atol=1e-10)


def test_maps_that_are_a_slice_of_wider_ones_are_read_correctly():
    wide, weight = example(4, 3, 6, 2)
    maps = wide[:, :, 1:4]
    weight = weight[:, :3]
    torch.testing.assert_close(conv3x3(maps, weight, side=4), by_torch(maps, weight, 4))


def test_tiles_are_those_that_multiply_least():
    assert [winograd.tile_of(side) for side in range(3, 9)] == [3, 4, 3, 3, 4, 4]
