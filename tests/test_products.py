"""Products of rows and weights: equal to torch's own, by whichever library they are made."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from bacon_gcd import products
from bacon_gcd.backbone.winograd import conv3x3, direct3x3
from bacon_gcd.products import Linear, add_stacked, linear, stacked

pytestmark = pytest.mark.skipif(products._product() is None, reason="torch has no such product")
LARGE = (70, 130, 210)  # rows, inputs and outputs: more work than LEAST_WORK


@pytest.fixture
def by_onednn(monkeypatch):
    """Products that are large enough are made by oneDNN, and counted."""
    calls, times = [], products._times

    def counted(*given):
        calls.append(given[0].shape)
        return times(*given)

    monkeypatch.setattr(products, "half_used", lambda: True)
    monkeypatch.setattr(products, "_times", counted)
    return calls


def random(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed + len(shape))
    return torch.randn(shape, generator=generator, dtype=dtype)


def with_gradients(product, rows, weight, bias):
    leaves = [each.clone().requires_grad_() for each in (rows, weight, bias)]
    result = product(*leaves)
    aim = random(*result.shape, seed=9, dtype=result.dtype)
    return [result, *torch.autograd.grad(result, leaves, aim)]


@pytest.mark.parametrize("rows", [(70, 130), (7, 10, 130), (1, 70, 130)])
def test_value_and_gradients_are_those_of_torch(by_onednn, rows):
    given = random(*rows), random(210, 130), random(210, seed=3)
    ours = with_gradients(linear, *given)
    assert len(by_onednn) == 3  # the product and two of its gradients
    for found, wanted in zip(ours, with_gradients(F.linear, *given), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


def test_rows_and_weights_may_be_transposed(by_onednn):
    n, d, m = LARGE
    rows, weight = random(d, n).T, random(d, m).T
    torch.testing.assert_close(linear(rows, weight), rows @ weight.T, rtol=1e-5, atol=1e-4)
    assert by_onednn


def test_gradients_that_nobody_asks_for_are_not_computed(by_onednn):
    n, d, m = LARGE
    rows, weight = random(n, d), random(m, d).requires_grad_()
    linear(rows, weight).sum().backward()
    assert len(by_onednn) == 2
    torch.testing.assert_close(weight.grad, rows.sum(dim=0).expand(m, d), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("case", ["small", "double", "autocast"])
def test_other_products_are_torch_s_own_to_the_last_bit(by_onednn, case):
    n, d, m = (3, 4, 5) if case == "small" else LARGE
    dtype = torch.float64 if case == "double" else torch.float32
    given = random(n, d, dtype=dtype), random(m, d, dtype=dtype), random(m, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "autocast"):
        found, wanted = linear(*given), F.linear(*given)
    assert not by_onednn
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def test_the_layer_is_torch_s_with_the_same_parameters(by_onednn):
    torch.manual_seed(0)
    ours = Linear(130, 210)
    torch.manual_seed(0)
    theirs = torch.nn.Linear(130, 210)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    rows = random(70, 130)
    torch.testing.assert_close(ours(rows), theirs(rows), rtol=1e-5, atol=1e-4)
    assert copy.deepcopy(ours).in_features == 130


def test_stacked_products_are_matrix_products(by_onednn):
    rows, weights = random(3, 70, 130), random(3, 130, 210).mT
    wanted = rows @ weights.mT
    torch.testing.assert_close(stacked(rows, weights), wanted, rtol=1e-5, atol=1e-4)
    total = random(3, 70, 210, seed=5)
    twice = total + wanted
    add_stacked(total, rows, weights)
    torch.testing.assert_close(total, twice, rtol=1e-5, atol=1e-4)
    assert len(by_onednn) == 6


@pytest.mark.parametrize("shape", [(0, 70, 130), (2, 3, 4)])
def test_none_and_small_ones_are_stacked_by_torch(by_onednn, shape):
    rows = random(*shape)
    weights = random(shape[0], 5, shape[2])
    total = torch.zeros(shape[0], shape[1], 5)
    add_stacked(total, rows, weights)
    assert torch.equal(stacked(rows, weights), rows @ weights.mT)
    assert torch.equal(total, torch.baddbmm(torch.zeros_like(total), rows, weights.mT))
    assert not by_onednn


def test_convolutions_by_it_are_those_of_torch(by_onednn):
    maps, weight = random(16, 192, 64), random(128, 64, 3, 3, seed=1) / 24
    given = [each.clone().requires_grad_() for each in (maps, weight)]
    aim = random(16, 192, 128, seed=2)
    ours = conv3x3(*given, side=4)
    gradients = torch.autograd.grad(ours, given, aim)
    assert by_onednn
    direct = direct3x3(*given, side=4)
    torch.testing.assert_close(ours, direct, rtol=1e-4, atol=1e-4)
    for found, wanted in zip(gradients, torch.autograd.grad(direct, given, aim), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "wide", "used"),
    [("AMD EPYC", True, True), ("Intel", True, False), ("AMD", False, False)],
)
def test_it_is_for_wide_amd_processors(monkeypatch, name, wide, used):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"cpu_name": name, "avx512_f": wide}, raising=False
    )
    monkeypatch.setattr(
        torch,
        "backends",
        SimpleNamespace(
            cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX512"),
            mkldnn=SimpleNamespace(is_available=lambda: True),
        ),
    )
    assert products.half_used.__wrapped__() is used


def entry_with(*names):
    arguments = [SimpleNamespace(name=name) for name in names]
    return SimpleNamespace(default=SimpleNamespace(_schema=SimpleNamespace(arguments=arguments)))


@pytest.mark.parametrize("names", [None, ("X", "W"), ("X", "W", "B", "attr", "scalars", "kind")])
def test_a_torch_without_this_product_makes_it_itself(monkeypatch, names):
    others = {} if names is None else {"_linear_pointwise": entry_with(*names)}
    monkeypatch.setattr(torch, "ops", SimpleNamespace(mkldnn=SimpleNamespace(**others)))
    assert products._product.__wrapped__() is None
