"""The contract: what every entry of METHODS must do."""

import copy
import dataclasses
import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from typer.testing import CliRunner

from bacon_gcd.benchmark.settings import RunSettings
from bacon_gcd.cli import app
from bacon_gcd.cluster import kmeans, match
from bacon_gcd.config import UserError
from bacon_gcd.data import demo
from bacon_gcd.methods import METHODS, preset_of, recipe_for, settings_for
from bacon_gcd.methods.base import Method, Recipe
from bacon_gcd.model import describe_backbone, load_model, save_model
from bacon_gcd.training.loop import Position, TrainingData
from tests.method_runs import NewViews, batch_of, only, trainer_for
from tests.planted import planted
from tests.small_backbone import use_small_backbone
from tests.training.test_loop import assert_same, everything, stop_after

NAMES = list(METHODS)
TRAINED = [name for name in NAMES if METHODS[name].presets[preset_of(name)].recipe.epochs]
# Each method once, and once more in presets whose settings are others.
PRESETS = [
    (name, preset)
    for name, entry in METHODS.items()
    for preset, given in entry.presets.items()
    if preset == preset_of(name) or given.settings != entry.presets[preset_of(name)].settings
]


def predict(trainer, problem):
    """Class ids of the planted test images."""
    trainer.method.place_centroids(trainer.probe)
    return trainer.method.predictor().predict(problem.test.test(np.arange(len(problem.true_test))))


@pytest.mark.parametrize("tokens", ["stored", "fresh"])
@pytest.mark.parametrize("name", NAMES)
def test_two_epochs_train_every_parameter_and_sort_new_images(name, tokens):
    problem = planted(epochs=2)
    if tokens == "fresh":
        data = TrainingData(NewViews(problem.data.source), problem.data.labels)
        problem = replace(problem, data=data)
    trainer = trainer_for(name, problem)
    before = {k: p.clone() for k, p in trainer.method.named_parameters() if p.requires_grad}
    assert trainer.run()
    after = dict(trainer.method.named_parameters())
    assert bool(before) == (name in TRAINED)
    assert [k for k in before if torch.equal(before[k], after[k])] == []
    ids = predict(trainer, problem)
    assert ids.shape == problem.true_test.shape
    assert set(ids) <= set(range(problem.task.n_classes))
    sure = trainer.method.predictor().probabilities(problem.test.test([0, 1, 2]))
    assert np.allclose(sure.sum(axis=1), 1, atol=1e-5)
    assert sure.argmax(axis=1).tolist() == ids[:3].tolist()


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_run_resumed_in_mid_epoch_is_bit_equal(name, preset):
    whole = trainer_for(name, preset=preset)
    whole.run()
    first = trainer_for(name, preset=preset)
    stop_after(first, len(list(first.batches(0))) + 1)
    tensors, facts = everything(first)
    second = trainer_for(name, preset=preset)
    torch.manual_seed(999)  # nothing may depend on the global generator
    second.restore(tensors, facts)
    second.run()
    assert_same(everything(whole)[0], everything(second)[0])


@pytest.mark.parametrize("name", TRAINED)
def test_named_terms_sum_to_the_loss_that_is_minimized(name):
    trainer = trainer_for(name)
    trainer.method.refresh(0, trainer.probe)
    trainer.method.refresh(1, trainer.probe)
    trainer.position = Position(epoch=1)  # after every warm-up
    positions = np.arange(0, len(trainer.data.labels), 5)
    by_hand = copy.deepcopy(trainer)
    batch = by_hand.batch(positions)
    terms = by_hand.method.terms(batch)
    assert all(re.fullmatch(r"[a-z]+/[a-z]+", term) for term in terms)
    sum(terms.values()).backward()
    for optimizer in by_hand.optimizers.values():
        optimizer.step()
    by_hand.method.after_step(batch)
    logged = trainer.step(positions)
    assert logged == pytest.approx({k: v.item() for k, v in terms.items()})
    for a, b in zip(trainer.method.parameters(), by_hand.method.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "rows", ["no labels", "all labeled", "no novel", "one labeled", "one free"]
)
@pytest.mark.parametrize("name", TRAINED)
def test_any_mix_of_labels_gives_finite_terms_and_gradients(name, rows):
    problem = planted(epochs=2)
    known = np.flatnonzero(problem.true < problem.task.n_known)
    positions, labels = {
        "no labels": (None, np.full(len(range(0, len(problem.true), 3)), -1)),
        "all labeled": (known[::3], problem.true[known[::3]]),
        "no novel": (known[::3], None),
        "one labeled": ([int(known[0])], [0]),
        "one free": ([int(known[0])], [-1]),
    }[rows]
    trainer = trainer_for(name, problem)
    for epoch in (0, 1):
        trainer.method.refresh(epoch, trainer.probe)
    usual = trainer.method.terms(batch_of(name, problem, epoch=1))
    terms = trainer.method.terms(batch_of(name, problem, positions, labels, epoch=1))
    assert terms.keys() == usual.keys()
    assert all(torch.isfinite(term) for term in terms.values())
    sum(terms.values()).backward()
    given = [p.grad for p in trainer.method.parameters() if p.grad is not None]
    assert given
    assert all(torch.isfinite(g).all() for g in given)


@pytest.mark.parametrize("case", ["all known", "one image", "nothing known", "no unlabeled"])
@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_what_a_task_can_be(name, case):
    problem = planted(n_classes=4, n_known=0 if case == "nothing known" else 4, n_max=24, epochs=2)
    rows, labels = np.arange(len(problem.true)), problem.data.labels
    if case == "one image":  # a class that has no other
        alone = np.flatnonzero(problem.true == 0)
        rows = np.setdiff1d(rows, alone[1:])
    if case == "no unlabeled":
        labels = problem.true
    problem = only(problem, rows, labels)
    trainer = trainer_for(name, problem, batch_size=16)
    assert trainer.run()
    ids = predict(trainer, problem)
    assert set(ids) <= set(range(4))
    assert all(torch.isfinite(v).all() for v in everything(trainer)[0].values())


@pytest.mark.parametrize("name", NAMES)
def test_a_method_declares_what_others_rely_on(name):
    problem = planted(epochs=2)
    trainer = trainer_for(name, problem)
    trainer.run()
    method, tokens = trainer.method, problem.test.test([0, 1, 2])
    method.place_centroids(trainer.probe)
    if method.has_classifier:
        assert method.classify(tokens).shape == (3, 6)
    else:
        assert method.answers_by == "centroids"
        with pytest.raises(NotImplementedError, match="has no classifier"):
            method.classify(tokens)
    assert (method.class_counts is not None) == name.startswith("bacon")
    if method.class_counts is not None:
        assert method.class_counts.sum() == pytest.approx(len(problem.true))
    assert method.settings == trainer_for(name, problem).method.settings
    names = {key.split(".")[0] for key in [*dict(method.named_modules()), *method.state_dict()]}
    assert set(METHODS[name].method.training_only) - {"projector"} <= names


@pytest.mark.parametrize("name", [n for n in NAMES if METHODS[n].method.answers_by == "centroids"])
def test_a_class_without_images_gets_none(name):
    """Its centroid is at the origin: cosine 0 would beat the negative ones of all others."""
    problem = planted(n_classes=2, n_known=2)
    method = trainer_for(name, problem).method
    method.set_centroids(F.pad(torch.eye(1, problem.backbone.feature_dim), (0, 0, 0, 1)))
    method.features = lambda tokens: -torch.eye(1, problem.backbone.feature_dim)
    opposite = torch.zeros(1, 1)
    assert method.predictor().predict(opposite).tolist() == [0]
    assert method.predictor().probabilities(opposite).tolist() == [[1.0, 0.0]]
    assert method.nearest_class(method.features(opposite)).tolist() == [0]


def test_the_temperature_is_kept_with_the_centroids(tmp_path):
    problem = planted(epochs=2)
    method = trainer_for("anchored-kmeans", problem).method
    unit = F.normalize(torch.randn(6, problem.backbone.feature_dim), dim=1)
    method.set_centroids(unit, temperature=0.02)
    tokens = problem.test.test([0, 1, 2])
    with torch.no_grad():
        cosines = F.normalize(method.features(tokens), dim=1) @ unit.T
    expected = (cosines / 0.02).softmax(dim=1).numpy()
    np.testing.assert_allclose(method.predictor().probabilities(tokens), expected, rtol=1e-5)
    save_model(
        tmp_path,
        method,
        name="anchored-kmeans",
        settings=dataclasses.asdict(method.settings),
        backbone=describe_backbone(problem.backbone, tuned="block"),
        class_names=list("abcdef"),
        card="",
    )
    again = load_model(tmp_path)
    assert float(again.method.temperature) == pytest.approx(0.02)
    assert torch.equal(again.method.centroids, unit)
    np.testing.assert_allclose(again.predictor.probabilities(tokens), expected, rtol=1e-5)


# (epochs, learning rate) that suffice on planted clusters.
ENOUGH = {
    **dict.fromkeys(NAMES, (60, 0.05)),
    **dict.fromkeys(("bacon-s", "bacon-o", "gcd"), (5, 0.02)),
    **{"simgcd": (30, 0.05), "abc": (30, 0.05), "darp": (100, 0.1)},
}


@pytest.mark.parametrize("name", NAMES)
def test_on_planted_clusters_a_method_is_as_good_as_frozen_kmeans(name):
    epochs, rate = ENOUGH[name]
    problem = planted(spread=0.3, epochs=epochs)
    frozen = accuracy(clusters(problem.backbone.new_tail(), problem), problem)
    assert frozen > 0.95
    trainer = trainer_for(name, problem, epochs=epochs, learning_rate=rate, batch_size=64)
    trainer.run()
    ids = predict(trainer, problem)
    known = problem.true_test < problem.task.n_known
    assert (ids == problem.true_test)[known].mean() >= frozen  # known classes by name
    assert accuracy(clusters(trainer.method.features, problem), problem) >= frozen
    if name == "abc":  # no term of it favors a novel class: these images stay in known ones
        assert accuracy(ids, problem) > 0.6 > 3 / problem.task.n_classes
    else:
        assert accuracy(ids, problem) >= frozen


def clusters(features, problem):
    """k-means on the test images, as in BaCon's Algorithm 2."""
    with torch.no_grad():
        found = features(problem.test.test(np.arange(len(problem.true_test))))
    return kmeans(F.normalize(found, dim=1), problem.task.n_classes, n_init=10, seed=0).labels


def accuracy(ids, problem):
    mapping = match(ids, problem.true_test, problem.task.n_classes)
    return (mapping[np.asarray(ids)] == problem.true_test).mean()


# Another value of every setting; each must change a run, or it is a switch that does nothing.
OTHERS = {
    "gcd": {
        "supervised_share": 0.5,
        "unsupervised_temperature": 0.5,
        "supervised_temperature": 0.1,
        "unlabeled_only": True,
        "projector_width": 0,
    },
    "simgcd": {
        "supervised_share": 0.5,
        "entropy_weight": 4.0,
        "temperature": 0.2,
        "teacher_start": 0.05,
        "teacher_end": 0.03,
        "teacher_ramp": 2,
        "unsupervised_temperature": 0.5,
        "supervised_temperature": 0.1,
    },
    "orca": {
        "temperature": 0.2,
        "margin_cap": 0.1,
        "supervised_weight": 2.0,
        "pairs_weight": 2.0,
        "entropy_weight": 2.0,
    },
    "opencon": {
        "unlabeled_weight": 2.0,
        "unlabeled_temperature": 0.6,
        "labeled_weight": 1.0,
        "labeled_temperature": 0.2,
        "novel_weight": 1.0,
        "novel_temperature": 0.2,
        "novel_ramp": 200,
        "novel_quantile": 0.9,
        "prior_weight": 1.0,
        "labeled_share": 0.9,
        "temperature": 0.2,
        "momentum": 0.5,
        "projection": 64,
    },
    "trssl": {
        "prior": "long-tail",
        "ratio": 4.0,
        "rounds": 1,
        "epsilon": 0.1,
        "hard": 0.2,
        "uncertainty_views": 2,
        "temperature": 0.2,
        "mixup": 0.0,
        "decay": 0.1,
        "shrink": 0.01,
    },
    "abc": {
        "prior": "oracle",
        "threshold": 0.3,
        "classifier": "linear",
        "temperature": 0.05,
        "decay": 0.1,
        "shrink": 0.01,
    },
    "darp": {
        "prior": "clusters",
        "warmup": 200,
        "interval": 1,
        "alpha": 1.0,
        "held_out": 1,
        "threshold": 0.3,
        "classifier": "linear",
        "temperature": 0.05,
        "decay": 0.1,
        "shrink": 0.01,
    },
}
# Settings that change the score or need pixels: tested in test_gcd and test_trssl.
ELSEWHERE = {"gcd": {"clustering"}, "trssl": {"mix"}}
# What another setting needs in order to matter: pseudo-labels must be sure, priors be asked.
GIVEN = {
    "abc": {"threshold": 0.4},
    "darp": {"threshold": 0.4},
    "trssl/ratio": {"prior": "long-tail"},
    "darp/held_out": {"prior": "confusion"},
}


@functools.cache
def trained(name, changes):
    """All parameters after a short run with these (setting, value) pairs."""
    counts = torch.tensor([20.0, 1, 20, 1, 20, 1]) if ("prior", "oracle") in changes else None
    trainer = trainer_for(name, epochs=3, batch_size=64, oracle_counts=counts, **dict(changes))
    trainer.run()
    return [p.detach() for p in trainer.method.parameters()]


@pytest.mark.parametrize(("name", "setting"), [(n, s) for n, new in OTHERS.items() for s in new])
def test_every_setting_changes_the_run(name, setting):
    given = GIVEN.get(name, {}) | GIVEN.get(f"{name}/{setting}", {})
    usual = trained(name, tuple(given.items()))
    other = trained(name, tuple((given | {setting: OTHERS[name][setting]}).items()))
    same = [a.shape == b.shape and torch.equal(a, b) for a, b in zip(usual, other, strict=False)]
    assert not all(same)


@pytest.mark.parametrize("name", OTHERS)
def test_no_setting_is_left_out_of_that(name):
    names = {field.name for field in dataclasses.fields(METHODS[name].presets["adapted"].settings)}
    assert names == OTHERS[name].keys() | ELSEWHERE.get(name, set())


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("bacon-o", "contrastive, classifier, labeled, balanced"),
        ("abc", "labeled"),
        ("darp", "labeled, clusters, confusion"),
    ],
)
def test_an_oracle_must_be_handed_over_by_name(name, others):
    message = f"{name}: prior 'oracle' needs the true class counts, .*; choose from {others}$"
    with pytest.raises(UserError, match=message):
        trainer_for(name, prior="oracle")


def test_a_method_gets_the_oracle_only_if_it_asks():
    counts = torch.tensor([1.0, 2, 3, 4, 5, 6])
    assert trainer_for("bacon-s", oracle_counts=counts).method.oracle_counts is None
    assert trainer_for("gcd", oracle_counts=counts).run()


def test_presets_have_their_own_recipes():
    assert preset_of("bacon-s") == "released"
    assert preset_of("orca") == "adapted"
    for name in OTHERS:  # one recipe for all, so that methods compare
        assert METHODS[name].presets["adapted"].recipe == Recipe()
    native = METHODS["opencon"].presets["native"].recipe
    assert (native.learning_rate, native.schedule, native.sampler) == (0.02, "step", "proportional")
    assert recipe_for("abc", preset="native", changes={"epochs": 9, "sampler": None}) == replace(
        METHODS["abc"].presets["native"].recipe, epochs=9
    )
    assert settings_for("darp", preset="native", changes={}).classifier == "linear"
    with pytest.raises(UserError, match="preset of orca 'released' is not known; choose from adap"):
        recipe_for("orca", preset="released", changes={})
    with pytest.raises(UserError, match="method 'orcas' is not known"):
        recipe_for("orcas", changes={})


@pytest.mark.parametrize("name", ["kmeans", "anchored-kmeans"])
def test_what_needs_no_training_is_never_trained(name):
    assert recipe_for(name, changes={"epochs": 30}).epochs == 0
    trainer = trainer_for(name, epochs=30)
    assert trainer.run()
    assert trainer.position.epoch == 0


def test_no_method_is_built_on_another():
    for entry in METHODS.values():
        assert entry.method.__bases__ == (Method,)


# The command line and the documents.

runner = CliRunner()
DOCS = Path(__file__).resolve().parents[2] / "docs" / "methods"


def test_the_list_of_methods_has_their_papers_and_recipes():
    facts = json.loads(runner.invoke(app, ["methods", "--json"]).stdout)
    assert facts.keys() == METHODS.keys()
    assert facts["orca"]["recipes"]["native"] == (
        "sgd 0.1 step x 0.1 at 70%, 90%, weight decay 0.0005, 200 epochs, batch 512 proportional"
    )
    text = runner.invoke(app, ["methods"]).stdout
    for fact in facts.values():
        assert fact["summary"] in text
        assert fact["paper"] in text


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_train_shows_the_settings_of_the_method(name):
    text = runner.invoke(app, ["train", "--method", name, "--help"]).stdout
    assert f"Settings of {name}" in text
    for field in dataclasses.fields(METHODS[name].presets[preset_of(name)].settings):
        assert re.search(rf"^  {field.name}\b", text, re.MULTILINE), field.name


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_page_that_names_its_settings_and_paper(name):
    entry = METHODS[name]
    page = (DOCS / f"{entry.method.__module__.rsplit('.', 1)[1]}.md").read_text()
    assert re.search(rf"`{name}`", page)
    for number in re.findall(r"arXiv [\d.]+\d", entry.paper):
        assert number in page
    for field in dataclasses.fields(entry.presets[preset_of(name)].settings):
        assert f"`{field.name}`" in page, field.name


@pytest.mark.parametrize("name", ["kmeans", "opencon", "darp"])
def test_a_run_is_trained_scored_and_kept_by_the_command(name, tmp_path, monkeypatch):
    """Untrained, with a projector that answers, with strong views and tables: the same command."""
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    words = ["train", "--dataset", "demo", "--image-size", "64", "--views", "2", "--epochs", "1"]
    words += ["--batch-size", "256", "--method", name, "-o", str(tmp_path / "run"), "--json"]
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["preset"] == preset_of(name)
    assert result["epoch"] == (1 if name in TRAINED else 0)
    assert result[result["headline"]]["all"] > 10  # of 10 classes
    config = RunSettings.from_toml(tmp_path / "run/config.toml")
    assert config.preset == preset_of(name)
    assert config.settings == dataclasses.asdict(settings_for(name, changes={}))
    model = load_model(tmp_path / "run/model")
    state = load_file(tmp_path / "run/model/model.safetensors")
    assert not {key.split(".")[0] for key in state} & {"live", "sizes", "predictions", "refined"}
    assert model.predict(demo.load().take([0, 1, 2])).names
