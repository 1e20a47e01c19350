"""A run folder end to end, through the command line: train, kill, resume, evaluate, predict."""

import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.data import demo
from tests.small_backbone import use_small_backbone

runner = CliRunner()
QUICK = ["--dataset", "demo", "--image-size", "64", "--views", "2", "--epochs", "3"]
QUICK += ["--batch-size", "256", "--learning-rate", "0.02", "--set", "projector_width=32"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One for all tests: the demo images are embedded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def small(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("BACON_CACHE", str(cache))
    use_small_backbone(monkeypatch)
    return tmp_path


def bacon(*words):
    return runner.invoke(app, [str(w) for w in words], catch_exceptions=True)


def test_train_evaluate_predict(small):
    done = bacon("train", *QUICK, "-o", small / "run", "--evaluate-every", "1", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    blocks = ("test_kmeans", "inductive", "transductive", "classifier", "placed", "placed_train")
    for name in blocks:
        block = result[name]
        assert 0 <= block["all"] <= 100
        assert {"old", "new", "known_many", "novel_std", "nmi", "ari"} <= block.keys()
        assert block["anchored"].keys() == {"all", "old", "new"}
    assert result["epoch"] == 3
    assert sum(result["class_counts"]["true"]) == 1426
    assert result["identity"].keys() == {"protocol", "table", "split", "backbone"}

    lines = [json.loads(line) for line in (small / "run/log.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [e["epoch"] for e in epochs] == [1, 2, 3]
    assert "contrast/advice" in epochs[1]["terms"]
    assert "contrast/advice" not in epochs[0]["terms"]
    assert [e["test"]["all"] for e in epochs] == [pytest.approx(e["test"]["all"]) for e in epochs]
    assert {line["kind"] for line in lines} == {"epoch", "counts"}

    for name in ("all", "old", "new"):
        assert 0 <= result["frozen_kmeans"][name] <= 100

    shown = bacon("evaluate", small / "run")
    for name in blocks:
        assert name in shown.stdout
    assert json.loads(bacon("evaluate", small / "run", "--json").stdout) == result

    photos = small / "photos"
    photos.mkdir()
    table = demo.load()
    for row in table.rows("test")[:3]:
        table.image(row).save(photos / f"{row}.png")
    Image.new("L", (5, 9)).save(photos / "=evil.png")
    said = bacon("predict", small / "run", photos, "--json")
    rows = json.loads(said.stdout)["predictions"]
    assert len(rows) == 4
    assert all(0 < r["confidence"] <= 1 for r in rows)
    assert bacon("predict", small / "run", photos, "-o", small / "out.csv").exit_code == 0
    assert "'=evil.png" in (small / "out.csv").read_text()


@pytest.mark.parametrize("method", ["bacon-s", "gcd", "kmeans"])
def test_a_run_leaves_predictions_and_a_report(small, method):
    """With and without estimated class counts, with and without training."""
    quick = [word for word in QUICK if method != "kmeans" or word not in ("--set", QUICK[-1])]
    done = bacon("train", *quick, "--epochs", "1", "--method", method, "-o", small / "run")
    assert done.exit_code == 0, done.output
    rows = pq.read_table(small / "run/predictions.parquet").to_pylist()
    table = demo.load()
    assert len(rows) == 1426 + 1000 == len(table)
    assert {row["file_name"] for row in rows} == set(table.ids)
    train = [row for row in rows if row["split"] == "train"]
    assert len(train) == 1426
    assert all(row["class"] == row["true_class"] for row in train if row["labeled"])
    assert not any(row["labeled"] for row in rows if row["split"] == "test")
    assert all(0 < row["confidence"] <= 1 for row in rows)
    assert {row["class"] for row in rows if not row["known"]} <= {f"novel_00{i}" for i in range(5)}
    with (small / "run/predictions.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["class"] for row in written] == [row["class"] for row in rows]
    # What predict says of the same images is what the table says.
    photos = small / "photos"
    photos.mkdir()
    images = table.rows("test")[:5]
    for row in images:
        table.image(row).save(photos / f"{row}.png")
    said = json.loads(bacon("predict", small / "run", photos, "--json").stdout)["predictions"]
    by_name = {row["file_name"]: row["class"] for row in rows}
    found = {row["file_name"]: row["class"] for row in said}
    assert {f"{row}.png": by_name[table.ids[row]] for row in images} == found
    page = (small / "run/report.html").read_text()
    assert "frozen k-means" in page


@pytest.mark.slow
def test_fresh_views_go_through_the_same_command(small):
    quick = [*QUICK, "--epochs", "1", "--views", "fresh"]
    done = bacon("train", *quick, "-o", small / "run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["test_kmeans"]["all"] > 10


def test_a_finished_folder_is_not_overwritten_and_other_settings_do_not_resume(small):
    quick = [*QUICK, "--epochs", "1"]
    assert bacon("train", *quick, "-o", small / "run").exit_code == 0
    again = bacon("train", *quick, "-o", small / "run")
    assert isinstance(again.exception, UserError)
    assert "already holds a run" in str(again.exception)
    other = bacon("train", "--resume", small / "run", "--seed", "3", "--set", "alpha=0.8")
    assert "seed: 0 -> 3; settings.alpha: 0.0 -> 0.8" in str(other.exception)
    fewer = bacon("train", "--resume", small / "run", "--known", "3")
    assert "split.known: None -> 3" in str(fewer.exception)
    same = bacon("train", "--resume", small / "run", "--epochs", "1", "--set", "alpha=0", "--json")
    assert same.exit_code == 0, same.output


def test_a_run_is_refused_when_its_data_changed(small):
    assert bacon("train", *QUICK, "--epochs", "1", "-o", small / "run").exit_code == 0
    manifest = next((small / "run/checkpoints").glob("*/manifest.json"))
    facts = json.loads(manifest.read_text())
    facts["facts"]["identity"]["split"] = "other"
    manifest.write_text(json.dumps(facts))
    resumed = bacon("train", "--resume", small / "run")
    assert "cannot resume, the data changed: split: other ->" in str(resumed.exception)


def curve(run):
    """Losses and test scores of every epoch."""
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [(line["terms"], line["test"]) for line in lines if line["kind"] == "epoch"]


CHILD = """
import sys
from pathlib import Path
import pytest
from tests.small_backbone import use_small_backbone
use_small_backbone(pytest.MonkeyPatch())
from bacon_gcd.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_continues_to_the_same_end(small, how):
    """kill -9 at some step, resume: the model and the scores are those of a run left alone."""
    quick = [*QUICK, "--evaluate-every", "1"]
    whole = bacon("train", *quick, "-o", small / "whole", "--json")
    assert whole.exit_code == 0, whole.output
    words = ["train", *quick, "-o", str(small / "cut"), "--save-seconds", "0"]
    child = subprocess.Popen([sys.executable, "-c", CHILD, *words])
    wait_for(lambda: len(list((small / "cut/checkpoints").glob("step-*"))) > 0)
    child.send_signal(how)
    code = child.wait(timeout=120)
    assert code == (130 if how == signal.SIGINT else -9)
    done = bacon("train", "--resume", small / "cut", "--json")
    assert done.exit_code == 0, done.output
    for block in ("test_kmeans", "inductive", "transductive", "classifier", "class_counts"):
        assert json.loads(done.stdout)[block] == json.loads(whole.stdout)[block]
    first, second = (load_file(small / f / "model/model.safetensors") for f in ("whole", "cut"))
    assert all(np.array_equal(first[k].numpy(), second[k].numpy()) for k in first)
    left_alone, resumed = (curve(small / folder) for folder in ("whole", "cut"))
    assert left_alone == resumed
    assert len(resumed) == 3


def wait_for(ready, seconds=120):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "the run did not get that far"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "cifar11"], "dataset 'cifar11' is not known; choose from cifar10-lt"),
        (["--method", "magic"], "method 'magic' is not known; choose from bacon-s"),
        (["--set", "alpha"], "--set 'alpha' is not of the form name=value"),
        (["--views", "none"], "views 'none' is neither 'fresh' nor a number from 2"),
        (["--views", "99999999999"], "bacon-s compares of an image, to 1000"),
        (["--set", "alpha=nan"], "alpha: 'nan' is not a finite number"),
        (
            ["--views", "1"],
            "views '1' is neither 'fresh' nor a number from 2, which bacon-s",
        ),
        (["--known", "a,b"], "--known 'a,b': give a number, a share, or class ids"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing_behind(small, words, message):
    done = bacon("train", *QUICK, *words, "-o", small / "run")
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert not (small / "run").exists()


def test_an_unfinished_run_has_no_scores_to_show(small):
    assert "not a run" in str(bacon("evaluate", small).exception)
    assert "no model in it" in str(bacon("predict", small, small).exception)
