"""Seconds differ from machine to machine; how they add up does not."""

import pytest

from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import forecast as forecasting
from bacon_gcd.discovery.forecast import Forecast, forecast, sortings
from bacon_gcd.discovery.settings import Effort
from bacon_gcd.system import progress
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


@pytest.fixture
def clock(monkeypatch):
    """Whatever is measured takes a second."""
    times = iter(range(10_000))
    monkeypatch.setattr(forecasting.time, "perf_counter", lambda: float(next(times)))


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    backbone = load_backbone(use_small_backbone(monkeypatch))
    return read_images(plant(tmp_path / "photos")), backbone


def test_every_part_is_measured_on_images_of_the_set(photos, clock):
    found = forecast(*photos, Effort(fitted=True, views=2, epochs=4), n_missing=32, workers=1)
    assert found.embedding == pytest.approx((3 + 1) / 8 * 32)  # three views, one rendering
    passes = 2 + 4 / 1  # before, after, and with every estimate of the class counts
    assert found.training == pytest.approx(2 * (4 + passes) * 32 / 128)  # once on trial
    assert found.sorting == pytest.approx(sortings(32, photos[1].feature_dim))
    assert found.total == found.embedding + found.training + found.sorting


def test_what_is_stored_or_not_trained_takes_no_time(photos, clock):
    found = forecast(*photos, Effort(fitted=True), n_missing=0, workers=1)
    assert (found.embedding, found.training) == (0, 0)
    ready = forecast(photos[0], Vectors(8), Effort(fitted=True), n_missing=0, workers=1)
    assert ready.embedding == 0 < ready.sorting


def test_nothing_goes_through_the_trunk_where_all_is_stored(photos, monkeypatch):
    def refuse(backbone, pixels):
        raise AssertionError("measured what nobody asks for")

    monkeypatch.setattr(forecasting, "trunk_tokens", refuse)
    forecast(*photos, Effort(fitted=True), n_missing=0, workers=1)
    with pytest.raises(AssertionError):
        forecast(*photos, Effort(fitted=True), n_missing=1, workers=1)


def test_images_that_are_computed_alone_are_measured_alone(photos, clock, monkeypatch):
    table, backbone = photos
    sizes, through = [], forecasting.trunk_tokens
    monkeypatch.setattr(
        forecasting,
        "trunk_tokens",
        lambda trunk, pixels: sizes.append(len(pixels)) or through(trunk, pixels),
    )
    backbone.at_a_time = 1
    found = forecast(table, backbone, Effort(fitted=True), n_missing=32, workers=1)
    assert set(sizes) == {1}
    assert found.embedding == pytest.approx((1 + 1 / 8) * 32)  # one image, a rendering of eight


def test_what_is_silent_for_seconds_says_what_it_does(photos, monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    forecast(*photos, Effort(fitted=True), n_missing=32, workers=1)
    assert capsys.readouterr().err == "measuring how fast this machine is ...\n"


def test_wide_features_cost_what_their_values_do_and_no_wider_kmeans(photos, clock, monkeypatch):
    shapes, cluster = [], forecasting.cluster
    monkeypatch.setattr(
        forecasting, "cluster", lambda rows: shapes.append(rows.shape) or cluster(rows)
    )
    narrow, wide = (
        forecast(photos[0], Vectors(dim), Effort(fitted=True), n_missing=0, workers=1).sorting
        for dim in (512, 1280)
    )
    assert len(set(shapes)) == 1
    assert wide - narrow == pytest.approx(768 * forecasting.OF_VALUE * len(photos[0]))


def test_the_line_says_what_is_done_and_how_long_it_takes():
    assert Forecast(50, 0, 20, 0).line() == "no training: about 70 s from here"
    trained = "5 epochs of training, twice: about 3 minutes from here"
    assert Forecast(50, 100, 30, 5).line() == trained
    assert Forecast(0, 0, 0.1, 0).line() == "no training: about 1 s from here"
