import numpy as np
import pytest

from bacon_gcd import discover, model
from bacon_gcd.backbone.pooled import PooledBackbone
from bacon_gcd.backbone.sources import FreshTokens
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.predict import predict
from bacon_gcd.discovery.update import update
from bacon_gcd.model import load_model, tokens_for
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    return use_small_backbone(monkeypatch)


@pytest.fixture
def computed(monkeypatch):
    """Sizes of the batches that go through a frozen network, but for its blank image."""
    sizes, trunk = [], PooledBackbone.trunk

    def counted(self, images):
        if images.any():
            sizes.append(len(images))
        return trunk(self, images)

    monkeypatch.setattr(PooledBackbone, "trunk", counted)
    return sizes


def test_images_that_were_predicted_are_not_embedded_again_when_they_are_added(
    name, computed, tmp_path
):
    run, more = tmp_path / "run", plant(tmp_path / "more", n=10, labeled=2)
    discover(plant(tmp_path / "photos"), run, workers=0)
    computed.clear()
    predict(run, more)
    assert sum(computed) == 40 - 32  # the first eight of a color are images of the run
    computed.clear()
    update(run, more, tmp_path / "grown")
    assert not computed


def test_stored_features_sort_images_as_fresh_ones_do(name, tmp_path):
    run, more = tmp_path / "run", read_images(plant(tmp_path / "more", n=10))
    discover(plant(tmp_path / "photos"), run, workers=0)
    found = load_model(run / "model")
    fresh = found.answer(more.ids, tokens_for(found.backbone, more, workers=0, stored=False))
    kept = found.answer(more.ids, tokens_for(found.backbone, more, workers=0))
    assert kept.names == fresh.names
    np.testing.assert_allclose(kept.confidence, fresh.confidence, atol=5e-3)


@pytest.mark.parametrize("what", ["tokens of a trained part", "few images", "no cache"])
def test_what_is_large_or_cannot_be_kept_is_computed_when_asked_for(
    name, tmp_path, monkeypatch, what
):
    tuned = "block" if what == "tokens of a trained part" else "vectors"
    more = plant(tmp_path / "more", n=1 if what == "few images" else 10, labeled=0)
    if what == "no cache":
        monkeypatch.setattr(model, "writable", lambda folder: False)
    source = tokens_for(load_backbone(name, tuned=tuned), read_images(more), workers=0)
    assert isinstance(source, FreshTokens)
    assert not (tmp_path / "cache/banks").exists()
