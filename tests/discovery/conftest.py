"""What several tests of discoveries share."""

import shutil

import pytest

import bacon_gcd
from bacon_gcd.discovery import learn
from bacon_gcd.discovery.result import Discovery
from bacon_gcd.discovery.trial import Trial
from tests.new_photos import vectors
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


@pytest.fixture
def training_pays(monkeypatch):
    """Hidden classes always speak for training: the planted ones are too few to say anything."""
    monkeypatch.setattr(learn, "try_training", lambda *args, **facts: Trial(50, 2, 0.5, 0.9))


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    return tmp_path


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """4 colors with ready vectors: green and red known, blue and gray novel."""
    root = tmp_path_factory.mktemp("first")
    plant(root / "photos")
    ready = vectors(root / "photos", root / "f.npy")
    return bacon_gcd.discover(
        root / "photos", root / "run", features=ready, effort="quick", classes=4
    )


@pytest.fixture
def planted(first_run, small):
    """A copy of the run, to be corrected or broken."""
    shutil.copytree(first_run.folder, small / "run")
    return Discovery(small / "run")
