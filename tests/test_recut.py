"""A finished run cut coarser and finer: names stay, nothing is trained, the model follows."""

import json

import numpy as np
import pytest

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discover_run import DiscoverRun
from bacon_gcd.recut import recut
from tests.planted_photos import bacon, plant, vectors_of
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    return tmp_path


@pytest.fixture
def sorted_run(small):
    photos = plant(small / "photos", known=("red",), novel=("green", "blue", "gray"))
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    np.save(small / "f.npy", vectors_of(ids))
    return bacon_gcd.discover(
        photos, small / "run", features=small / "f.npy", effort="quick", classes=4
    )


def names_of(found):
    return {row.file_name: row.class_name for row in found.run.rows}


def test_a_finer_cut_keeps_the_old_names_and_adds_unused_ones(small, sorted_run):
    finer = recut(sorted_run.folder, small / "finer", classes=6)
    classes = {c.name: c for c in finer.run.classes}
    assert set(classes) == {"red", *(f"novel_{n:03d}" for n in range(5))}
    assert finer.run.next_novel == 5
    old_ids = {c.name: c.id for c in sorted_run.run.classes}
    assert all(classes[name].id == number for name, number in old_ids.items())
    before, after = names_of(sorted_run), names_of(finer)
    for name in ("novel_000", "novel_001", "novel_002"):
        assert {before[f] for f in after if after[f] == name} == {name}


def test_a_coarser_cut_never_frees_a_number(small, sorted_run):
    coarser = recut(sorted_run.folder, small / "coarser", classes=3)
    assert len(coarser.run.classes) == 3
    assert {c.name for c in coarser.run.classes} < {c.name for c in sorted_run.run.classes}
    assert coarser.run.next_novel == 3
    again = recut(coarser.folder, small / "again", classes=4)
    assert max(c.name for c in again.run.classes if not c.known) == "novel_003"
    assert len({c.id for c in again.run.classes}) == 4


def test_the_same_number_gives_the_same_answer(small, sorted_run):
    same = recut(sorted_run.folder, small / "same", classes=4)
    for file in ("predictions.csv", "classes.json"):
        assert (same.folder / file).read_bytes() == (sorted_run.folder / file).read_bytes()


def test_a_trained_run_is_cut_without_its_classifier(small):
    photos = plant(small / "photos", n=5, labeled=3)
    done = bacon_gcd.discover(photos, small / "run", effort="normal", classes=4)
    said = bacon("discover", "--recut", done.folder, "-o", small / "new", "--classes", 5, "--json")
    assert said.exit_code == 0, (said.output, said.exception)
    assert len(json.loads(said.stdout)["classes"]) == 5
    assert (small / "new/features.npy").read_bytes() == (small / "run/features.npy").read_bytes()
    rows = DiscoverRun.load(small / "new").rows
    stored = {row.file_name: row for row in rows if not row.labeled}
    told = json.loads(bacon("predict", small / "new", photos, "--json").stdout)["predictions"]
    assert all(
        stored[row["file_name"]].class_name == row["class"]
        for row in told
        if row["file_name"] in stored
    )


def test_a_run_whose_images_changed_is_not_cut(small, sorted_run):
    next((small / "photos/_unlabeled").iterdir()).unlink()
    with pytest.raises(UserError, match="not those of"):
        recut(sorted_run.folder, small / "new", classes=5)
    assert not (small / "new").exists()


@pytest.mark.parametrize("classes", ["auto", "3-5", "0"])
def test_a_recut_needs_one_number(small, sorted_run, classes):
    with pytest.raises(UserError, match="number"):
        recut(sorted_run.folder, small / "new", classes=classes)


def test_images_or_a_run_but_not_both(small):
    for words in ([], [small / "photos", "--recut", small / "run"]):
        done = bacon("discover", *words, "-o", small / "x")
        assert isinstance(done.exception, UserError)
