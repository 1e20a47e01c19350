"""Everything runs where it is asked to run.

No GPU is needed to find a tensor that was made without saying where: torch's default device is
`meta` here, whose tensors hold no values, while everything is asked to run on `cpu`.
`pytest -m gpu` runs the same on a GPU and compares with the CPU.
"""

import json

import numpy as np
import pytest
import torch

from bacon_gcd.backbone.bank import FreshTokens, ReadyTokens, build_bank
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.benchmark.cell_run import kept_method
from bacon_gcd.benchmark.run import train_run
from bacon_gcd.benchmark.runner import run_grid
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import prepare
from bacon_gcd.classes.neighbors import nearest, neighbors_by_cells
from bacon_gcd.cluster import assign, estimate_n_classes, kmeans
from bacon_gcd.data.images import from_arrays
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.pipeline import discover
from bacon_gcd.discovery.predict import predict
from bacon_gcd.discovery.refit import refit
from bacon_gcd.discovery.update import update
from bacon_gcd.estimator import CategoryDiscovery
from bacon_gcd.methods import METHODS, recipe_for
from bacon_gcd.training.start import new_trainer
from tests.benchmark.grids import grid_in, quick_request
from tests.method_runs import small_settings
from tests.planted import planted
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone

CPU = torch.device("cpu")
GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    ],
)


@pytest.fixture
def elsewhere():
    """A tensor that does not say where it is lands on `meta`."""
    with torch.device("meta"):
        yield


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    with torch.device("cpu"):  # the weights' file is not what is tested
        return use_small_backbone(monkeypatch)


def trained(name, device, *, preset=None, **changes):
    with torch.device("cpu"):
        problem = planted(epochs=3)
        settings = small_settings(name, preset, **changes)
    asked = {"epochs": 3, "batch_size": 32, "learning_rate": 0.05}
    trainer = new_trainer(
        name,
        settings,
        recipe_for(name, preset=preset, changes=asked),
        problem.data.source,
        problem.data.labels,
        problem.backbone.to(device),
        n_classes=problem.task.n_classes,
        n_known=problem.task.n_known,
        seed=0,
        oracle_counts=torch.from_numpy(problem.counts).float(),
        device=torch.device(device),
    )
    assert trainer.run()
    trainer.method.place_centroids(trainer.probe)
    return trainer, problem


def places(method):
    return {x.device.type for x in [*method.parameters(), *method.buffers()]}


VARIANTS = [
    *((name, None, {}) for name in METHODS),
    ("bacon-s", "paper", {}),
    ("bacon-s", "recommended", {}),
    *(("bacon-s", None, {"prior": prior}) for prior in ("classifier", "labeled", "balanced")),
    ("bacon-s", None, {"prior": "oracle"}),
    ("darp", None, {"prior": "clusters", "warmup": 0.1}),
    ("darp", None, {"prior": "confusion"}),
    ("trssl", None, {"prior": "long-tail"}),
]


@pytest.mark.parametrize(("name", "preset", "changes"), VARIANTS)
def test_a_method_trains_and_answers_where_it_is_asked_to(elsewhere, name, preset, changes):
    trainer, problem = trained(name, "cpu", preset=preset, **changes)
    assert places(trainer.method) == {"cpu"}
    answers = trainer.method.predictor().predict(problem.test.test(np.arange(20)))
    tensors, facts = trainer.state()
    trainer.restore(tensors, facts)
    assert answers.shape == (20,)


def test_kmeans_and_neighbors_are_where_the_features_are(elsewhere):
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(300, 6)).astype(np.float32))
    labels = np.where(np.arange(300) < 20, np.arange(300) % 2, -1)
    same = torch.from_numpy(np.ones((9, 3), np.float32))  # clusters that become empty
    assert kmeans(rows, 5, n_init=2, seed=0).centroids.device == CPU
    assert kmeans(rows, 5, labels=labels, n_init=2, seed=0).centroids.device == CPU
    assert len(np.unique(kmeans(same, 4, n_init=1, seed=0).labels)) == 4
    assert estimate_n_classes(rows, labels, low=2, high=5, seed=0).n_classes >= 2
    assert assign(rows, rows[:4]).shape == (300,)
    assert nearest(rows).shape == (300, 6)
    assert neighbors_by_cells(rows, n_neighbors=4, seed=0).shape == (300, 4)


def test_tokens_of_every_source_are_where_they_were_asked_to_be(elsewhere, small, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 9, 3), dtype=np.uint8)
    backbone, table, rows = load_backbone(small, device="cpu"), from_arrays(pixels), np.arange(12)
    weak = ViewSettings("weak", backbone.image_size)
    bank = build_bank(table, rows, backbone, n_views=2, folder=tmp_path)
    fresh = FreshTokens(table, rows, backbone, weak)
    ready = ReadyTokens(pixels.reshape(12, -1) / 255, noise=0.1, dropout=0.1)
    for source in (bank, fresh, ready):
        assert source.batch(rows, ("weak", "weak"), seed=0, step=0).device == CPU
        assert source.test(rows).device == CPU


@pytest.mark.parametrize(("method", "preset"), [("bacon-s", "recommended"), ("trssl", None)])
def test_a_run_is_trained_and_scored_where_it_is_asked_to(
    elsewhere, small, tmp_path, method, preset
):
    photos = plant(tmp_path / "photos", known=("red", "green", "blue", "gray"), novel=(), labeled=8)
    own = {"projector_width": 32} if method == "bacon-s" else {}
    asked = RunSettings(
        dataset=f"folder:{photos}", method=method, preset=preset, views="2", evaluate_every=1
    )
    recipe = {"epochs": 1, "batch_size": 8}
    settings = resolve(asked, changes=own, recipe=recipe, device="cpu")
    bench = prepare(settings, data=None, device=CPU)
    assert train_run(bench, tmp_path / "run")["test_kmeans"]["all"] > 0
    assert len(predict(tmp_path / "run", photos, device="cpu")) == 32


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_discover_and_predict_run_where_they_are_asked_to(elsewhere, small, tmp_path, effort):
    photos = plant(tmp_path / "photos")
    done = discover(photos, tmp_path / "run", effort=effort, device="cpu")
    facts = json.loads((done.folder / "model/model.json").read_text())
    assert facts["task"]["n_known"] == 2
    assert len(predict(done.folder, photos, device="cpu")) == 32


def test_update_and_refit_run_where_they_are_asked_to(elsewhere, small, tmp_path):
    photos = plant(tmp_path / "photos")
    done = discover(photos, tmp_path / "run", effort="quick", device="cpu")
    new = plant(tmp_path / "new", n=3, labeled=0)
    grown = update(done.folder, new, tmp_path / "grown", device="cpu")
    assert len(DiscoverRun.load(grown.folder).rows) == 32 + 12
    again = refit(done.folder, tmp_path / "again", device="cpu")
    assert len(DiscoverRun.load(again.folder).rows) == 32


def test_a_cell_of_a_table_is_run_where_it_is_asked_to(elsewhere, tmp_path):
    request, grid = quick_request("orca", "kmeans"), grid_in(tmp_path)
    cells = request.cells()
    outcome = run_grid(request, cells, grid, data=None, tell=lambda _: None, device=CPU)
    assert not outcome.failed
    for cell in cells:
        kept = kept_method(grid.result(cell), grid.run_folder(cell), data=None, device=CPU)
        assert kept is not None
        assert places(kept[0]) == {"cpu"}


def test_the_estimator_runs_where_it_is_asked_to(elsewhere):
    problem_rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    problem_rows[:30] += 4
    labels = np.where(np.arange(60) < 10, 0, -1)
    model = CategoryDiscovery(n_classes=2, epochs=2, device="cpu").fit(problem_rows, labels)
    assert (model.predict(problem_rows) == model.labels_).mean() > 0.9


# The real thing. Tolerances: bfloat16 keeps 8 bits, so terms of a step agree to 2 %.


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_finds_what_the_cpu_finds(name, device):
    answers, losses = [], []
    for where in ("cpu", device):
        trainer, problem = trained(name, where)
        tokens = problem.test.test(np.arange(len(problem.true_test))).to(where)
        answers.append(trainer.method.predictor().predict(tokens))
        batch = trainer.batch(np.arange(32))
        losses.append(sum(float(term) for term in trainer.method.terms(batch).values()))
    assert (answers[0] == answers[1]).mean() > 0.95
    assert losses[1] == pytest.approx(losses[0], rel=0.02, abs=0.02)


@pytest.mark.parametrize("device", [GPU])
def test_kmeans_on_a_gpu_is_kmeans_on_the_cpu(device):
    rows = torch.from_numpy(planted().data.source._tokens[:, 0].numpy().copy())
    ours, theirs = (kmeans(rows.to(d), 6, n_init=4, seed=0) for d in ("cpu", device))
    assert ours.inertia == pytest.approx(theirs.inertia, rel=1e-4)
    assert np.array_equal(nearest(rows)[:, 0], nearest(rows.to(device))[:, 0])


@pytest.mark.parametrize("device", [GPU])
def test_discover_on_a_gpu_sorts_as_on_the_cpu(device, small, tmp_path):
    photos, names = plant(tmp_path / "photos"), []
    for where in ("cpu", device):
        done = discover(photos, tmp_path / f"run-{where}", device=where)
        names.append([row.class_name for row in DiscoverRun.load(done.folder).rows])
    assert np.mean([a == b for a, b in zip(*names, strict=True)]) > 0.9
