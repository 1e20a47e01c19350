from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bacon_gcd.backbone import filling
from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.edges import (
    N_VALUES,
    SIDE,
    Edges,
    edge_histograms,
    edges_of,
    gradients,
    with_edges,
)
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.images import from_arrays
from tests.reference import edges as reference
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    return load_backbone(use_small_backbone(monkeypatch), tuned="vectors")


def images(n=3, side=64):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))


def gray(n=4):
    return torch.from_numpy(np.random.default_rng(0).random((n, SIDE, SIDE))).float()


def test_histograms_are_those_counted_pixel_by_pixel():
    expected = np.stack([reference.edge_histograms(each) for each in gray().double().numpy()])
    assert expected.shape == (4, N_VALUES)
    np.testing.assert_allclose(edge_histograms(gray()).numpy(), expected, atol=1e-5)


def test_an_upright_edge_has_one_direction_and_a_level_one_another():
    upright = torch.zeros(1, SIDE, SIDE)
    upright[:, :, SIDE // 2 :] = 1
    strength, direction = gradients(upright)
    assert set(direction[strength > 0].tolist()) == {0.0}
    strength, direction = gradients(upright.mT)
    assert direction[strength > 0].tolist() == pytest.approx([4.5] * 2 * SIDE)
    assert not torch.equal(edge_histograms(upright), edge_histograms(upright.mT))


def test_light_on_dark_is_like_dark_on_light_and_contrast_does_not_count():
    pixels = gray()
    torch.testing.assert_close(edge_histograms(1 - pixels), edge_histograms(pixels))
    torch.testing.assert_close(
        edge_histograms(0.5 * pixels), edge_histograms(pixels), atol=1e-3, rtol=0
    )


def test_an_image_without_edges_has_none():
    assert edge_histograms(torch.full((2, SIDE, SIDE), 0.7)).abs().max() == 0


def test_an_image_that_moves_a_pixel_changes_little():
    shape = torch.zeros(1, SIDE, SIDE)
    shape[:, 10:20, 8:24] = 1
    same, moved, other = (
        F.normalize(edge_histograms(each), dim=1)
        for each in (shape, shape.roll(1, dims=2), shape.mT)
    )
    assert float((same * moved).sum()) > 0.8 > float((same * other).sum())


def test_edges_are_seen_in_gray_at_any_size():
    edges = Edges(128)
    pixels = torch.rand(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(color)[:, None, None] for color in (edges.mean, edges.std))
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    small = F.avg_pool2d((pixels * weights).sum(dim=1), 4)
    found = edges.trunk((pixels - mean) / std)
    torch.testing.assert_close(found, edge_histograms(small), atol=1e-4, rtol=0)
    assert torch.equal(edges.new_tail()(found), found)


def test_edges_stand_beside_the_features_with_the_length_that_is_asked(small):
    joined = with_edges(small, 1.5)
    found = F.normalize(joined.new_tail()(joined.trunk(images())))
    network = F.normalize(small.new_tail()(small.trunk(images())))
    edges = F.normalize(Edges(64).trunk(images()))
    expected = torch.cat([network, 1.5 * edges], dim=1) / (1 + 1.5**2) ** 0.5
    torch.testing.assert_close(found, expected)
    assert (joined.name, joined.weights, joined.edges) == (small.name, small.weights, 1.5)
    assert joined.hash != with_edges(small, 1.0).hash != small.hash


def test_a_backbone_is_opened_with_its_edges(small):
    opened = load_backbone(small.name, tuned="vectors", uncropped=True, edges=1.5)
    assert opened.uncropped
    assert opened.hash == with_edges(small, 1.5).hash
    assert torch.equal(opened.trunk(images()), with_edges(small, 1.5).trunk(images()))


def test_what_is_shown_while_edges_are_looked_for_names_them(small, tmp_path, monkeypatch):
    shown = []

    @contextmanager
    def progress(what, total):
        shown.append(what)
        yield lambda done, note="": None

    monkeypatch.setattr(filling, "progress", progress)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    for each in (small, edges_of(small)):
        build_bank(from_arrays(pixels), np.arange(3), each, n_views=0, folder=tmp_path / "banks")
    assert shown == ["embedding", "edges of the images"]
