import numpy as np
import pytest
import torch

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.training import embed as module
from bacon_gcd.training.embed import embed, embed_views

META = torch.device("meta")


def source(n_images=7):
    tokens = np.arange(n_images * 3 * 2, dtype=np.float32).reshape(n_images, 3, 2)
    return ReadyTokens(tokens, n_views=2)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_every_image_is_embedded_in_order_whatever_the_chunk(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", chunk)
    tokens = source()._tokens
    assert torch.equal(embed(lambda t: 2 * t, source()), 2 * tokens[:, 0])
    assert torch.equal(embed(lambda t: 2 * t, source(), view=2), 2 * tokens[:, 2])


def test_no_gradient_is_kept():
    weight = torch.ones(2, requires_grad=True)
    assert not embed(lambda tokens: tokens * weight, source()).requires_grad


def test_tokens_are_moved_to_the_device_that_is_given():
    seen = []
    features = embed(lambda tokens: seen.append(tokens.device) or tokens, source(), device=META)
    assert seen == [META]
    assert features.device == META


@pytest.mark.parametrize("n_views", [0, 1, 2])
def test_features_of_the_views_of_an_image_are_averaged_at_unit_length(n_views):
    tokens = source()._tokens + 1.0
    found = embed_views(lambda t: t + 1.0, source(), n_views=n_views)
    every = tokens / tokens.norm(dim=2, keepdim=True)
    mean = every[:, : n_views + 1].mean(dim=1)
    torch.testing.assert_close(found, mean / mean.norm(dim=1, keepdim=True))
