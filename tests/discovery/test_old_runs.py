"""Run folders that version 0.1 wrote can be reviewed, cut, refitted, grown and predicted with."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from bacon_gcd.config import UserError
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.predict import predict
from bacon_gcd.discovery.recut import recut
from bacon_gcd.discovery.refit import refit
from bacon_gcd.discovery.update import update
from bacon_gcd.model import load_model
from tests.planted_photos import bacon

STORED = Path(__file__).parents[1] / "fixtures/runs-0.1"
RUNS = ("found", "trained", "corrected", "grown")


def test_every_released_version_is_kept():
    changes = (STORED.parents[2] / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\d+\.\d+)", changes, re.MULTILINE)
    assert "0.1" in released
    for version in released:
        assert (STORED.parent / f"runs-{version}").is_dir()
        assert (STORED.parent / f"v{version}").is_dir()  # models and states


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The stored runs, with paths that are right here."""
    monkeypatch.setattr(summary, "write_report", lambda data, path: path)
    root = shutil.copytree(STORED, tmp_path / "old")
    for config in root.glob("*/config.toml"):
        config.write_text(config.read_text().replace("@ROOT@", str(root)))
    return root


@pytest.mark.parametrize(("name", "next_id"), [("found", 4), ("corrected", 5), ("grown", 5)])
def test_ids_of_an_old_run_are_not_used_again(old, name, next_id):
    run = DiscoverRun.load(old / name)
    assert run.next_id >= next_id
    assert run.next_id > max(each.id for each in run.classes)


def test_an_old_run_remembers_which_names_a_person_chose(old):
    run = DiscoverRun.load(old / "corrected")
    assert {each.name for each in run.classes if each.named} == {"heron", "owl"}


@pytest.mark.parametrize("name", RUNS)
def test_an_old_model_is_as_sure_as_it_was(old, name):
    run, model = DiscoverRun.load(old / name), load_model(old / name / "model")
    np.testing.assert_allclose(model.centroids.norm(dim=1), 1, atol=1e-5)
    rows = [r for r in run.rows if not r.labeled and not r.file_name.startswith("added")]
    told = predict(old / name, old / "photos", features=old / "photos.npy")
    now = {row["file_name"]: row["confidence"] for row in told}
    certain = json.loads((old / "corrected/constraints.json").read_text())["confirmed"]
    for row in rows:
        if row.file_name not in certain:
            assert now[row.file_name] == pytest.approx(row.confidence, abs=2e-4)


def test_an_old_run_is_predicted_with_under_its_corrected_names(old):
    told = predict(old / "found", old / "more", features=old / "more.npy")
    assert {row["class"] for row in told if "gray" in row["file_name"]} == {"heron"}
    assert all(0 <= row["known_probability"] <= 1 for row in told)


@pytest.mark.parametrize("name", ["trained", "corrected", "grown"])
def test_an_old_run_is_cut_again(old, name):
    before = DiscoverRun.load(old / name)
    n_classes = len(before.classes) + 1
    now = recut(old / name, old / "cut", classes=n_classes).run
    assert {(c.id, c.name) for c in before.classes} < {(c.id, c.name) for c in now.classes}
    new = {c.id for c in now.classes} - {c.id for c in before.classes}
    assert min(new) >= before.next_id


def test_an_old_run_is_refitted_and_grown(old):
    fitted = refit(old / "found", old / "new").run
    assert {"heron", "owl"} < {each.name for each in fitted.classes}
    assert next(each.id for each in fitted.classes if each.name == "owl") == 4
    grown = update(old / "corrected", old / "more", old / "more-1", features=old / "more.npy").run
    was = {each.id: each.name for each in DiscoverRun.load(old / "corrected").classes}
    assert was.items() <= {each.id: each.name for each in grown.classes}.items()


def test_an_old_run_is_exported(old):
    done = bacon("export", old / "corrected", "--to", old / "sorted")
    assert done.exit_code == 0, (done.output, done.exception)
    assert (old / "sorted/owl/gray-00.png").exists()


def test_an_old_run_without_its_tree_says_what_to_do(old):
    (old / "trained/tree.json").unlink()
    with pytest.raises(UserError, match="sort the images anew: bacon discover"):
        recut(old / "trained", old / "cut", classes=5)


def test_an_old_run_can_be_reviewed(old):
    pytest.importorskip(
        "fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'"
    )
    from bacon_gcd.review.session import Session

    state = Session(old / "found").state()
    assert {each["name"] for each in state["classes"]} >= {"heron", "owl"}
