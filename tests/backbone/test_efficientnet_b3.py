import pytest
import torch
import torch.nn.functional as F

from bacon_gcd.backbone import efficientnet_b3 as b3
from bacon_gcd.backbone.catalogue import CATALOGUE, OFFLINE
from bacon_gcd.backbone.efficientnet import BATCH_NORM
from bacon_gcd.backbone.efficientnet_b3 import EfficientNetB3
from bacon_gcd.backbone.state import StateError
from bacon_gcd.backbone.weights import build
from bacon_gcd.config import UserError


def shapes():
    found = {key: shape for conv in EfficientNetB3.convs for key, shape in conv.shapes.items()}
    for block in EfficientNetB3.blocks:
        found |= block.excitation
    return found


def random_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes().items():
        state[name] = torch.randn(shape, generator=generator)
        if name.endswith("running_var"):
            state[name] = state[name].abs() + 0.5
        if len(shape) == 4:  # keeps the maps of the deepest blocks neither zero nor huge
            state[name] *= (2 / state[name][0].numel()) ** 0.5
    return state


@pytest.fixture(scope="module")
def state():
    return random_state()


def images(n, size=64, seed=1):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def by_hand(x, state, name, *, stride=1, groups=1):
    """Convolution with equal padding on all sides, then BatchNorm, as torchvision names them."""
    kernel = state[f"{name}.0.weight"]
    x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[2] // 2, groups=groups)
    weight, bias, mean, variance = (state[f"{name}.1.{each}"] for each in BATCH_NORM)
    return F.batch_norm(x, mean, variance, weight, bias, eps=1e-5)


def squeezed(x, state, name):
    means = x.mean(dim=(2, 3))
    few = F.silu(
        F.linear(means, state[f"{name}.fc1.weight"][:, :, 0, 0], state[f"{name}.fc1.bias"])
    )
    wide = F.linear(few, state[f"{name}.fc2.weight"][:, :, 0, 0], state[f"{name}.fc2.bias"])
    return x * wide.sigmoid()[:, :, None, None]


# Depth, stride and whether channels are widened: EfficientNet-B3 as the paper scales B0.
LITERAL = (
    (2, 1, False),
    (3, 2, True),
    (3, 2, True),
    (5, 2, True),
    (5, 1, True),
    (6, 2, True),
    (2, 1, True),
)


def literal(x, state):
    """The whole network, layer by layer, by the names of its tensors alone."""
    x = F.silu(by_hand(x, state, "features.0", stride=2))
    for stage, (depth, first_stride, widened) in enumerate(LITERAL, start=1):
        for place in range(depth):
            name, before = f"features.{stage}.{place}.block", x
            stride = first_stride if place == 0 else 1
            at = 0
            if widened:
                x, at = F.silu(by_hand(x, state, f"{name}.0")), 1
            x = F.silu(by_hand(x, state, f"{name}.{at}", stride=stride, groups=x.shape[1]))
            x = by_hand(squeezed(x, state, f"{name}.{at + 1}"), state, f"{name}.{at + 2}")
            if place > 0:
                x = x + before
    return F.silu(by_hand(x, state, "features.8")).mean(dim=(2, 3))


def test_the_network_is_its_layers_one_after_the_other(state):
    exact = {key: value.double() for key, value in state.items()}
    expected = literal(images(4).double(), exact)
    found = EfficientNetB3(state)(images(4))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    assert expected.std() > 0.1


def test_its_layers_have_the_sizes_of_the_paper():
    """12.2 million parameters with the classifier (Tan and Le 2019, Table 2), 1.5 of them in it."""
    n_values = sum(
        torch.Size(shape).numel() for name, shape in shapes().items() if "running" not in name
    )
    assert n_values + 1000 * (b3.HEAD + 1) == 12_233_232
    assert len(EfficientNetB3.blocks) == 26


@pytest.mark.parametrize("n_images", [1, 3, 5])
def test_an_image_has_the_same_features_beside_any_others(state, n_images):
    network = EfficientNetB3(state)
    everyone = network(images(9))
    assert torch.equal(network(images(9)[:n_images]), everyone[:n_images])


def test_it_is_a_backbone_of_the_catalogue(state):
    backbone = build(CATALOGUE[OFFLINE], state, image_size=64)
    assert backbone.feature_dim == 1536
    assert backbone.trunk(images(2)).shape == (2, 1536)


def test_other_weights_make_another_hash_and_the_classifier_does_not(state):
    def hash_of(tensors):
        return build(CATALOGUE[OFFLINE], tensors, image_size=64).hash

    assert hash_of(state | {"classifier.1.weight": torch.ones(1000, 1536)}) == hash_of(state)
    assert hash_of(random_state(seed=3)) != hash_of(state)


@pytest.mark.parametrize("name", ["features.8.0.weight", "features.3.1.block.2.fc2.bias"])
def test_a_missing_tensor_is_named(state, name):
    lacking = {key: value for key, value in state.items() if key != name}
    with pytest.raises(StateError, match=name.replace(".", r"\.")):
        build(CATALOGUE[OFFLINE], lacking, image_size=64)


def test_no_part_of_it_is_trained(state):
    with pytest.raises(UserError, match="tuned 'conv'"):
        build(CATALOGUE[OFFLINE], state, image_size=64, tuned="conv")
