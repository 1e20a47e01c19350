"""A real but tiny ViT with fixed random weights, in place of a catalogue entry's file."""

import os

import torch
from safetensors.torch import save_file

from bacon_gcd.backbone import catalogue
from bacon_gcd.backbone.vit import ViTConfig
from tests.reference.vit import random_state

SIZE = {"patch": 16, "dim": 24, "depth": 2}


def use_small_backbone(monkeypatch, name="resnet18.pypi_in1k"):
    """The catalogue's `name` becomes a tiny ViT whose weights lie in the cache.

    The cache must be one of the test's own: real weights of that name would be overwritten.
    """
    if "BACON_CACHE" not in os.environ:
        raise RuntimeError("set BACON_CACHE to a folder of the test before use_small_backbone")
    config = ViTConfig(name, pretrained_grid=4, image_size=64, heads=2, **SIZE)
    entry = catalogue.Weights(name, "nothing", False, "none", "none", 64, vit=config)
    monkeypatch.setitem(catalogue.CATALOGUE, name, entry)
    entry.path.parent.mkdir(parents=True, exist_ok=True)
    save_file(random_state(grid=4, seed=0, dtype=torch.float32, **SIZE), entry.path)
    return name
