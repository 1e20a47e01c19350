"""ResNet cut in two is the ResNet, and its fast tail is the plain one."""

import copy

import pytest
import torch

from bacon_gcd.backbone import resnet as resnet_module
from bacon_gcd.backbone.resnet import CONFIGS, ResNet, expected_shapes
from bacon_gcd.backbone.resnet_tail import PlainResNetTail, ResNetTail
from bacon_gcd.config import UserError
from tests.reference import resnet as reference


@pytest.fixture(scope="module")
def states():
    return {name: reference.random_state(name, seed=0, dtype=torch.float32) for name in CONFIGS}


def pictures(n, size, seed=1):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tune", ["block", "conv"])
@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 32), ("resnet18", 72), ("resnet18", 128), ("resnet50", 96)]
)
def test_trunk_and_tail_are_the_whole_network(states, name, size, tune):
    images = pictures(2, size)
    expected = reference.features({k: v.double() for k, v in states[name].items()}, images.double())
    resnet = ResNet.from_state(f"{name}.tv_in1k", states[name], image_size=size, tune=tune)
    tokens = resnet.trunk(images)
    features = resnet.new_tail()(tokens)
    assert tokens.shape == (2, *resnet.token_shape)
    assert features.shape == (2, resnet.feature_dim)
    torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tune", ["block", "conv"])
@pytest.mark.parametrize(("name", "size"), [("resnet18", 128), ("resnet18", 224), ("resnet50", 96)])
def test_fast_and_plain_tail_agree_in_features_and_every_gradient(states, name, size, tune):
    resnet = ResNet.from_state(f"{name}.x", states[name], image_size=size, tune=tune)
    both = [kind(resnet.tail_state, side=resnet.side) for kind in (ResNetTail, PlainResNetTail)]
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randn(3, *resnet.token_shape, generator=generator, dtype=torch.float64)
    weights = torch.randn(3, resnet.feature_dim, generator=generator, dtype=torch.float64)
    gradients = []
    for tail in both:
        features = tail.double()(tokens)
        (features * weights).sum().backward()
        gradients.append({n: p.grad for n, p in tail.named_parameters()} | {"": features.detach()})
    assert gradients[0].keys() == gradients[1].keys()
    for name_, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name_], rtol=1e-10, atol=1e-10)


def test_the_tail_has_torchvisions_names(states):
    block = ResNet.from_state("resnet18.x", states["resnet18"]).new_tail()
    conv = ResNet.from_state("resnet50.x", states["resnet50"], tune="conv").new_tail()
    parameters = {name for name, _ in block.named_parameters()}
    parts = ("conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias")
    assert parameters == set(parts)
    assert {name for name, _ in conv.named_parameters()} == {
        "conv3.weight",
        "bn3.weight",
        "bn3.bias",
    }
    assert torch.equal(block.conv2.weight, states["resnet18"]["layer4.1.conv2.weight"])


def test_tokens_at_128_pixels_are_sixteen_positions(states):
    assert ResNet.from_state("resnet18.x", states["resnet18"]).token_shape == (16, 512)
    conv = ResNet.from_state("resnet50.x", states["resnet50"], tune="conv")
    assert conv.token_shape == (16, 512 + 2048)


def test_statistics_never_change_and_tails_are_independent(states):
    resnet = ResNet.from_state("resnet18.x", states["resnet18"], image_size=64)
    tail, other = resnet.new_tail().train(), resnet.new_tail()
    before = copy.deepcopy(tail.state_dict())
    optimizer = torch.optim.SGD(tail.parameters(), lr=0.1)
    tail(resnet.trunk(pictures(2, 64))).square().sum().backward()
    optimizer.step()
    for name, value in tail.state_dict().items():
        assert torch.equal(value, before[name]) == ("running" in name), name
        assert torch.equal(other.state_dict()[name], before[name])
        assert torch.equal(resnet.tail_state[name], before[name])


def test_the_trunk_has_nothing_to_train_and_gives_no_gradient(states):
    resnet = ResNet.from_state("resnet18.x", states["resnet18"], image_size=32)
    assert not list(resnet.parameters())
    assert not resnet.trunk(pictures(1, 32).requires_grad_()).requires_grad


def test_images_do_not_depend_on_their_neighbors(states, monkeypatch):
    monkeypatch.setattr(resnet_module, "PIECE", 2)
    resnet = ResNet.from_state("resnet18.x", states["resnet18"], image_size=96)
    images = pictures(5, 96)
    together = resnet.trunk(images)
    for image, tokens in zip(images, together, strict=True):
        torch.testing.assert_close(resnet.trunk(image[None])[0], tokens, rtol=1e-4, atol=1e-4)


def test_no_images_give_no_tokens(states):
    resnet = ResNet.from_state("resnet18.x", states["resnet18"], image_size=64)
    tokens = resnet.trunk(pictures(0, 64))
    assert tokens.shape == (0, 4, 512)
    assert resnet.new_tail()(tokens).shape == (0, 512)


def test_half_precision_tokens_are_accepted(states):
    tail = ResNet.from_state("resnet18.x", states["resnet18"], image_size=64).new_tail()
    tokens = pictures(2, 64).reshape(2, -1)[:, : 4 * 512].reshape(2, 4, 512)
    torch.testing.assert_close(tail(tokens.half()), tail(tokens.half().float()))


def test_the_hash_tells_weights_size_and_cut_apart_and_nothing_else(states):
    state = states["resnet18"]
    changed = state | {"layer1.0.conv1.weight": state["layer1.0.conv1.weight"] + 1e-3}
    hashes = [
        ResNet.from_state("resnet18.x", state, image_size=64).hash,
        ResNet.from_state("resnet18.x", changed, image_size=64).hash,
        ResNet.from_state("resnet18.x", state, image_size=96).hash,
        ResNet.from_state("resnet18.x", state, image_size=64, tune="conv").hash,
    ]
    assert len(set(hashes)) == 4
    with_head = dict(reversed(state.items())) | {"fc.weight": torch.ones(10, 512)}
    assert ResNet.from_state("resnet18.x", with_head, image_size=64).hash == hashes[0]


def test_bfloat16_is_used_only_where_the_processor_has_it(states, monkeypatch):
    options = {"image_size": 64, "trunk_dtype": torch.bfloat16}
    monkeypatch.setattr(resnet_module, "native_bfloat16", lambda _: False)
    without = ResNet.from_state("resnet18.x", states["resnet18"], **options)
    monkeypatch.setattr(resnet_module, "native_bfloat16", lambda _: True)
    with_it = ResNet.from_state("resnet18.x", states["resnet18"], **options)
    assert without.trunk_dtype == torch.float32
    assert with_it.trunk_dtype == torch.bfloat16
    assert without.hash != with_it.hash
    exact, near = without.trunk(pictures(1, 64)), with_it.trunk(pictures(1, 64))
    assert near.dtype == torch.float32
    assert 1e-4 < (near - exact).norm() / exact.norm() < 0.05


def test_mistakes_are_one_line(states):
    state = states["resnet18"]
    lacking = {k: v for k, v in state.items() if not k.startswith("layer3.1")}
    with pytest.raises(UserError, match=r"10 of 100 tensors are missing: layer3.1.conv1.weight, "):
        ResNet.from_state("resnet18.x", lacking)
    with pytest.raises(UserError, match=r"conv1.weight is \(64, 1, 7, 7\) instead of \(64, 3, 7"):
        ResNet.from_state("resnet18.x", state | {"conv1.weight": torch.ones(64, 1, 7, 7)})
    with pytest.raises(UserError, match="choose from block, conv"):
        ResNet.from_state("resnet18.x", state, tune="head")
    with pytest.raises(UserError, match="32 pixels or more"):
        ResNet.from_state("resnet18.x", state, image_size=16)
    with pytest.raises(UserError, match="choose from resnet18, resnet50"):
        ResNet.from_state("resnet34.x", state)
    with pytest.raises(ValueError, match="takes 64 px"):
        ResNet.from_state("resnet18.x", state, image_size=64).trunk(pictures(1, 32))


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_176_512), ("resnet50", 23_508_032)])
def test_the_number_of_parameters_is_the_published_one(name, count):
    shapes = expected_shapes(CONFIGS[name])
    trained = [shape for key, shape in shapes.items() if "running" not in key]
    assert sum(torch.Size(shape).numel() for shape in trained) == count


def test_an_image_has_the_same_tokens_alone_and_among_others(states):
    """To the last bit: stored rows are copied from set to set."""
    resnet = ResNet.from_state("resnet18.x", states["resnet18"], image_size=128)
    images = pictures(16, 128)
    together = resnet.trunk(images)
    for n in (1, 2, 3):
        assert torch.equal(resnet.trunk(images[:n]), together[:n])
    assert resnet.trunk(images[:0]).shape == (0, *resnet.token_shape)
