import dataclasses
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


def test_a_method_that_learns_is_not_run_for_no_epochs():
    with pytest.raises(
        UserError, match=r"^--epochs 0: bacon-s is trained, give at least 1; .*kmea"
    ):
        RunSettings.from_options(OPTIONS | {"epochs": 0}, {})
    assert RunSettings.from_options(OPTIONS | {"epochs": 1}, {}).recipe.epochs == 1
    untrained = RunSettings.from_options(OPTIONS | {"epochs": 0, "method": "kmeans"}, {})
    assert untrained.recipe.epochs == 0


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


@pytest.mark.parametrize(
    ("dataset", "method", "values"),
    [
        ("cifar100-lt", "simgcd", {"settings.entropy_weight": 4.0}),
        ("cifar10-lt", "simgcd", {"settings.entropy_weight": 1.0}),
        (
            "imagenet100-lt",
            "orca",
            {"recipe.epochs": 90, "recipe.weight_decay": 1e-4, "recipe.milestones": [1 / 3, 2 / 3]},
        ),
        ("cifar100-lt", "orca", {"recipe.epochs": 200, "recipe.weight_decay": 5e-4}),
        (
            "imagenet100-lt",
            "opencon",
            {"recipe.learning_rate": 0.01, "settings.unlabeled_temperature": 0.6},
        ),
    ],
)
def test_native_presets_follow_their_papers_on_each_dataset(dataset, method, values):
    asked = RunSettings(dataset=dataset, method=method, preset="native")
    found = resolve(asked, changes={}, recipe={}).flat()
    assert {name: found[name] for name in values} == values
    adapted = resolve(dataclasses.replace(asked, preset="adapted"), changes={}, recipe={}).flat()
    assert adapted["recipe.epochs"] == 200


def test_a_value_that_is_given_beats_that_of_the_dataset():
    asked = RunSettings(dataset="cifar100-lt", method="simgcd", preset="native")
    found = resolve(asked, changes={"entropy_weight": 2.0}, recipe={}).flat()
    assert found["settings.entropy_weight"] == 2.0
