import inspect
from dataclasses import fields

import pytest

from bacon_gcd.benchmark.settings import RunSettings, dotted_name, resolve
from bacon_gcd.cli.train import train
from bacon_gcd.config import UserError
from bacon_gcd.data.longtail import SplitSettings
from bacon_gcd.methods.base import Recipe

OPTIONS = {"dataset": "demo", "views": "3", "epochs": 7, "ratio": 50.0, "seed": 5, "workers": 2}


def test_options_go_to_the_settings_that_have_their_names():
    found = RunSettings.from_options(OPTIONS, {"alpha": "0.8"})
    assert (found.dataset, found.views, found.seed) == ("demo", "3", 5)
    assert (found.recipe.epochs, found.recipe.batch_size) == (7, 256)
    assert (found.split.ratio, found.split.seed, found.split.dataset) == (50.0, 5, "demo")
    assert found.settings["alpha"] == 0.8
    assert found.preset == "released"


def test_every_option_of_train_decides_a_number_or_is_named_here():
    options = set(inspect.signature(train).parameters)
    others = {"context", "out", "resume", "change", "save_seconds", "workers", "data", "json"} | {
        "device"
    }
    assert {name for name in options if dotted_name(name) is None} == others
    kept = {f.name for kind in (RunSettings, SplitSettings, Recipe) for f in fields(kind)}
    assert options - others <= kept


@pytest.mark.parametrize(
    ("option", "name"),
    [("seed", "seed"), ("epochs", "recipe.epochs"), ("ratio", "split.ratio"), ("workers", None)],
)
def test_an_option_is_kept_under_one_name(option, name):
    assert dotted_name(option) == name


def test_options_that_say_otherwise_than_the_run_are_refused_by_name(tmp_path):
    stored = RunSettings.from_options(OPTIONS, {})
    stored.refuse_others(tmp_path, {"epochs": 7, "seed": 5, "workers": 9, "known": None}, {})
    message = "cannot resume, settings changed: recipe.epochs: 7 -> 8; settings.alpha: 0.0 -> 0.5$"
    with pytest.raises(UserError, match=message):
        stored.refuse_others(tmp_path, {"epochs": 8, "seed": 5}, {"alpha": "0.5"})


def test_settings_come_back_from_their_file(tmp_path):
    stored = RunSettings.from_options(OPTIONS, {})
    (tmp_path / "config.toml").write_text(stored.to_toml())
    assert RunSettings.from_toml(tmp_path / "config.toml").differences(stored) == []


def test_the_released_preset_has_the_learning_rate_of_the_dataset():
    known = resolve(RunSettings(dataset="cifar10-lt"), changes={}, recipe={})
    given = resolve(RunSettings(dataset="cifar10-lt"), changes={}, recipe={"learning_rate": 0.5})
    other = resolve(RunSettings(dataset="cifar10-lt", preset="paper"), changes={}, recipe={})
    assert given.recipe.learning_rate == 0.5
    assert known.recipe.learning_rate != other.recipe.learning_rate == Recipe().learning_rate
