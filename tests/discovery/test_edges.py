"""Edges beside a network, on folders of handwritten digits and of colors."""

import csv
import tomllib

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from bacon_gcd import CategoryDiscovery
from bacon_gcd.backbone.edges import N_VALUES
from bacon_gcd.classes.beside import Second
from bacon_gcd.discovery import edges
from bacon_gcd.discovery.edges import network_part
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.model import load_model
from tests.planted_photos import bacon, plant
from tests.small_backbone import SIZE, use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    return tmp_path


@pytest.fixture
def counting(small, monkeypatch):
    """As if edges agreed with the network: one of random weights sees nothing they could know."""
    monkeypatch.setattr(edges, "weigh_second", lambda question, describe, name: Second(1.5, 1.2))
    return small


def digits(root, *, known=(0, 1, 2), novel=(4, 6), each=16, labeled=5):
    """Folders as a person has them; the digit is the first letter of a file's name."""
    found = load_digits()
    for digit in (*known, *novel):
        for number, row in enumerate(np.flatnonzero(found.target == digit)[:each]):
            named = digit in known and number < labeled
            folder = root / (f"d{digit}" if named else "_unlabeled")
            folder.mkdir(parents=True, exist_ok=True)
            pixels = (255 - 15.9 * found.images[row]).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{digit}-{row:04d}.png")
    return root


def discovered(photos, run, *words):
    done = bacon("discover", photos, "-o", run, *words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def classes_in(path):
    with path.open() as file:
        return {row["file_name"].rsplit("/")[-1]: row["class"] for row in csv.DictReader(file)}


def settings_in(run):
    return tomllib.loads((run / "config.toml").read_text())


def test_edges_of_digits_count_and_everything_after_a_run_knows_it(counting):
    photos = digits(counting / "digits")
    said = discovered(photos, counting / "run").output
    assert settings_in(counting / "run")["edges"] == 1.5
    assert "edges of the images count, too: 1.5 times as much as the backbone" in said
    run = DiscoverRun.load(counting / "run")
    assert run.features.shape[1] == SIZE["dim"] + N_VALUES
    assert "edges of the images" in (counting / "run/report.html").read_text()
    found = classes_in(counting / "run/predictions.csv")
    known = [name for name in found if name[0] in "012"]
    assert np.mean([found[name] == f"d{name[0]}" for name in known]) > 0.8

    done = bacon("predict", counting / "run", photos / "_unlabeled", "-o", counting / "again.csv")
    assert done.exit_code == 0, done.output
    again = classes_in(counting / "again.csv")
    assert np.mean([found[name] == again[name] for name in again]) > 0.9
    discovered_again = bacon("discover", "--refit", counting / "run", "-o", counting / "refit")
    assert discovered_again.exit_code == 0, discovered_again.output
    assert settings_in(counting / "refit")["edges"] == 1.5
    more = digits(counting / "more", known=(), novel=(7,), each=6)
    done = bacon("update", counting / "run", more, "-o", counting / "updated")
    assert done.exit_code == 0, done.output
    assert DiscoverRun.load(counting / "updated").features.shape == (86, run.features.shape[1])


def test_a_model_opens_with_the_edges_it_was_made_with(counting):
    discovered(digits(counting / "digits"), counting / "run")
    model = load_model(counting / "run/model")
    assert model.backbone.edges == model.facts["backbone"]["edges"] > 0
    assert model.backbone.feature_dim == SIZE["dim"] + N_VALUES


def test_thorough_leaves_training_out_where_edges_count(counting):
    photos = digits(counting / "digits")
    discovered(photos, counting / "run", "--effort", "thorough")
    discovered(photos, counting / "normal")
    settings = settings_in(counting / "run")
    assert (settings["epochs"], settings["views"]) == (0, 0)
    assert settings["edges"] == 1.5
    assert classes_in(counting / "run/predictions.csv") == classes_in(
        counting / "normal/predictions.csv"
    )


def test_edges_of_colors_do_not_count(small):
    discovered(plant(small / "photos", n=20), small / "run")
    assert settings_in(small / "run")["edges"] == 0
    assert DiscoverRun.load(small / "run").features.shape[1] == SIZE["dim"]


def test_the_estimator_sees_them_too(counting):
    photos = digits(counting / "digits")
    found = CategoryDiscovery(backbone="resnet18.pypi_in1k").fit(photos)
    assert found.model_.backbone.edges > 0
    found.save(counting / "model")
    loaded = CategoryDiscovery.load(counting / "model")
    assert (loaded.predict(photos) == found.predict(photos)).all()


def test_what_reads_text_is_given_the_network_alone():
    class Joined:
        edges = 1.5

    network = torch.nn.functional.normalize(torch.randn(4, 6), dim=1)
    rows = torch.cat([network, torch.ones(4, N_VALUES)], dim=1)
    torch.testing.assert_close(network_part(rows, Joined), network)
    Joined.edges = 0.0
    assert network_part(network, Joined) is network
