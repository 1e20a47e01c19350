import io
import warnings

import pytest
import torch
from torch import nn

from bacon_gcd.backbone.catalogue import CATALOGUE, OFFLINE, cached
from bacon_gcd.backbone.onnx_state import read_dinov2_onnx, read_onnx
from bacon_gcd.backbone.state import read_state
from bacon_gcd.backbone.vit import ViT, ViTConfig
from bacon_gcd.backbone.weights import build
from bacon_gcd.config import UserError

TINY = ViTConfig("tiny", patch=14, dim=8, depth=2, heads=2, pretrained_grid=3, layer_scale=True)


def tiny_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        names = ViT(TINY, image_size=42, tuned_blocks=1).state_dict()
    shapes = {name: tuple(like.shape) for name, like in names.items()}
    return {name: torch.randn(shape, generator=generator) / 3 for name, shape in shapes.items()}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(n, t, d))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn, self.mlp = Attention(dim, heads), Mlp(dim)
        self.ls1, self.ls2 = Scale(dim), Scale(dim)

    def forward(self, x):
        x = x + self.ls1.gamma * self.attn(self.norm1(x))
        return x + self.ls2.gamma * self.mlp(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, 14, 14)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Dino(nn.Module):
    """DINOv2 as its authors write it, for images of 56 px, and as small as can be."""

    def __init__(self):
        super().__init__()
        dim = TINY.dim
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 10, dim))
        self.patch_embed = Patches(dim)
        self.blocks = nn.ModuleList(Block(dim, TINY.heads) for _ in range(TINY.depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patch_embed(x)], dim=1)
        square = self.pos_embed[:, 1:].reshape(1, 3, 3, x.shape[-1]).permute(0, 3, 1, 2)
        square = nn.functional.interpolate(square, scale_factor=(4.1 / 3,) * 2, mode="bicubic")
        x = x + torch.cat([self.pos_embed[:, :1], square.flatten(2).transpose(1, 2)], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]


class Wrapped(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def exported(model, example):
    """The bytes of the file that torch's exporter writes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
        torch.onnx.export(Wrapped(model), (example,), file, dynamo=False, **free)
    return file.getvalue()


@pytest.fixture(scope="module")
def dino():
    model = Dino()
    model.load_state_dict(tiny_state())
    return model.eval()


def test_an_exported_linear_layer_has_its_own_name_and_shape_again():
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("first", nn.Linear(3, 5))
    model.add_module("second", nn.Linear(5, 2, bias=False))
    found = read_onnx(exported(model, torch.randn(2, 7, 3)), where="x")
    expected = model.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)


def test_an_exported_dinov2_has_its_state_dict_again(dino):
    images = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(1))
    found = read_dinov2_onnx(exported(dino, images), where="x")
    expected = tiny_state()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    vit = ViT.from_state(TINY, found, image_size=56)
    features = vit.new_tail()(vit.trunk(images))
    torch.testing.assert_close(features, dino(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("data", [b"", b"no file of this kind", b"\x3a\x05\x2a", b"\x38\x01"])
def test_what_is_no_onnx_file_is_one_line(data):
    with pytest.raises(UserError, match=r"^weights\.onnx: not an ONNX file"):
        read_onnx(data, where="weights.onnx")


def test_a_file_that_is_cut_off_is_one_line_wherever_it_ends():
    whole = exported(nn.Linear(3, 2), torch.randn(2, 3))
    assert read_onnx(whole, where="x")
    graph = whole.index(b"pytorch")  # the graph comes after the name of the exporter
    for end in range(graph, len(whole) - 20, 5):
        with pytest.raises(UserError, match="not an ONNX file"):
            read_onnx(whole[:end], where="x")


def test_another_network_is_not_dinov2():
    with pytest.raises(UserError, match="not the weights of DINOv2"):
        read_dinov2_onnx(exported(nn.Linear(3, 2), torch.randn(2, 3)), where="x")


def test_the_weights_of_the_package_index_are_those_of_the_catalogue():
    path = cached(OFFLINE)
    if path is None:
        pytest.skip(f"the weights of {OFFLINE} are not here")
    state = read_state(path)
    assert sum(each.numel() for each in state.values()) == 22_056_192  # without the mask token
    torch.testing.assert_close(state["pos_embed"][:, :1], state["cls_token"])
    assert build(CATALOGUE[OFFLINE], state, image_size=224).feature_dim == 384
