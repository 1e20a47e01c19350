import pytest
import torch
import torch.nn.functional as F

from bacon_gcd.backbone import efficientnet
from bacon_gcd.backbone.catalogue import CATALOGUE, LITE
from bacon_gcd.backbone.efficientnet import (
    BATCH_NORM,
    Conv,
    EfficientNetLite,
    root_mean_square,
    same_padded,
)
from bacon_gcd.backbone.state import StateError
from bacon_gcd.backbone.weights import build
from bacon_gcd.config import UserError


def random_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for conv in efficientnet.every_conv():
        for name, shape in conv.shapes.items():
            state[name] = torch.randn(shape, generator=generator)
            if name.endswith("running_var"):
                state[name] = state[name].abs() + 0.5
            if len(shape) == 4:  # keeps the maps of the deepest blocks neither zero nor cut off
                state[name] *= (2 / state[name][0].numel()) ** 0.5
    return state


@pytest.fixture(scope="module")
def state():
    return random_state()


def images(n, size=64, seed=1):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def by_hand(x, state, conv: Conv):
    """TensorFlow's SAME convolution and BatchNorm, one after the other."""
    out = -(-x.shape[-1] // conv.stride)
    pad = max((out - 1) * conv.stride + conv.shape[2] - x.shape[-1], 0)
    x = F.pad(x, (pad // 2, pad - pad // 2, pad // 2, pad - pad // 2))
    groups = x.shape[1] // conv.shape[1]
    x = F.conv2d(x, state[f"{conv.weight}.weight"], stride=conv.stride, groups=groups)
    weight, bias, mean, variance = (state[f"{conv.norm}.{each}"] for each in BATCH_NORM)
    return F.batch_norm(x, mean, variance, weight, bias, eps=1e-3)


def test_the_network_is_its_convolutions_and_norms_one_after_the_other(state):
    x = images(4).double()
    exact = {key: value.double() for key, value in state.items()}
    expected = by_hand(x, exact, efficientnet.FIRST).clamp(0, 6)
    for block in efficientnet.blocks():
        inner = expected
        for conv in block[:-1]:
            inner = by_hand(inner, exact, conv).clamp(0, 6)
        inner = by_hand(inner, exact, block[-1])
        expected = expected + inner if expected.shape == inner.shape else inner
    expected = (
        by_hand(expected, exact, efficientnet.LAST).clamp(0, 6).pow(2).mean(dim=(2, 3)) ** 0.5
    )
    found = EfficientNetLite(state)(images(4))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    assert expected.std() > 0.1


@pytest.mark.parametrize("n_images", [1, 3, 5])
def test_an_image_has_the_same_features_beside_any_others(state, n_images):
    network = EfficientNetLite(state)
    everyone = network(images(9))
    assert torch.equal(network(images(9)[:n_images]), everyone[:n_images])


def test_pooling_knows_what_is_seen_in_one_place_only():
    spread, spot = torch.full((1, 1, 2, 2), 1.0), torch.tensor([[[[4.0, 0.0], [0.0, 0.0]]]])
    assert root_mean_square(spread).item() == 1.0  # both have the mean 1
    assert root_mean_square(spot).item() == 2.0
    assert root_mean_square(torch.zeros(1, 3, 2, 2)).tolist() == [[0.0, 0.0, 0.0]]


def test_padding_is_larger_on_the_right_and_below():
    padded = same_padded(torch.ones(1, 1, 4, 4), 3, 2)
    assert padded.shape == (1, 1, 5, 5)
    assert padded[0, 0, :4, :4].all()
    assert not padded[0, 0, 4].any()
    assert not padded[0, 0, :, 4].any()


def test_it_is_a_backbone_of_the_catalogue(state):
    backbone = build(CATALOGUE[LITE], state, image_size=64)
    assert backbone.feature_dim == 1280
    assert backbone.trunk(images(2)).shape == (2, 1280)


def test_other_weights_make_another_hash_and_the_classifier_does_not(state):
    def hash_of(tensors):
        return build(CATALOGUE[LITE], tensors, image_size=64).hash

    assert hash_of(state | {"_fc.weight": torch.ones(1000, 1280)}) == hash_of(state)
    assert hash_of(random_state(seed=3)) != hash_of(state)


def test_a_missing_tensor_is_named(state):
    lacking = {key: value for key, value in state.items() if key != "_conv_head.weight"}
    with pytest.raises(StateError, match=r"_conv_head\.weight"):
        build(CATALOGUE[LITE], lacking, image_size=64)


def test_no_part_of_it_is_trained(state):
    with pytest.raises(UserError, match="tuned 'conv'"):
        build(CATALOGUE[LITE], state, image_size=64, tuned="conv")
