"""A finished run cut coarser and finer: cuts nest, names stay, nothing is trained."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

import bacon_gcd
from bacon_gcd.classes.tree import ClassTree, Join
from bacon_gcd.config import UserError
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.edits import edits_path
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.recut import recut, with_moved
from bacon_gcd.model import load_model
from tests.planted_photos import bacon, plant, vectors_of
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    monkeypatch.setattr(summary, "write_report", lambda data, path: path)  # it takes most time
    return tmp_path


def sort(small, *, blur=0.0, labeled=5, **options):
    """A run on ready vectors of planted colors; blur lets them overlap."""
    novel = ("green", "blue", "gray")
    photos = plant(small / "photos", known=("red",), novel=novel, labeled=labeled)
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    noise = np.random.default_rng(1).normal(size=(len(ids), 8))
    np.save(small / "f.npy", vectors_of(ids) + blur * noise)
    asked = {"effort": "quick", "classes": 4} | options
    return bacon_gcd.discover(photos, small / "run", features=small / "f.npy", **asked)


@pytest.fixture
def sorted_run(small):
    return sort(small)


def names_of(found):
    return {row.file_name: row.class_name for row in found.run.rows}


def test_a_finer_cut_keeps_the_old_names_and_adds_unused_ones(small, sorted_run):
    finer = recut(sorted_run.folder, small / "finer", classes=6)
    classes = {c.name: c for c in finer.run.classes}
    assert set(classes) == {"red", *(f"novel_{n:03d}" for n in range(5))}
    assert finer.run.next_id == 6
    old_ids = {c.name: c.id for c in sorted_run.run.classes}
    assert all(classes[name].id == number for name, number in old_ids.items())
    assert len({c.id for c in classes.values()}) == 6
    before, after = names_of(sorted_run), names_of(finer)
    assert len(set(zip(before.values(), after.values(), strict=True))) == 6
    for name in old_ids:
        assert {before[f] for f in after if after[f] == name} == {name}


def test_a_coarser_cut_never_frees_a_number(small, sorted_run):
    coarser = recut(sorted_run.folder, small / "coarser", classes=3)
    assert len(coarser.run.classes) == 3
    assert {c.name for c in coarser.run.classes} < {c.name for c in sorted_run.run.classes}
    assert coarser.run.next_id == 4
    again = recut(coarser.folder, small / "again", classes=4)
    assert max(c.name for c in again.run.classes if not c.known) == "novel_003"
    assert len({c.id for c in again.run.classes}) == 4
    assert max(c.id for c in again.run.classes) > max(c.id for c in sorted_run.run.classes)


@pytest.mark.parametrize("blur", [0.0, 0.4])
def test_cuts_of_a_run_lie_inside_each_other(small, blur):
    done = sort(small, blur=blur)
    cuts = [names_of(recut(done.folder, small / f"cut-{n}", classes=n)) for n in (2, 3, 4, 6)]
    for coarse, fine in pairwise(cuts):
        home = {}
        assert all(home.setdefault(fine[file], coarse[file]) == coarse[file] for file in fine)
        assert set(coarse.values()) < set(fine.values())


def test_back_and_forth_gives_the_same_classes(small):
    done = sort(small, blur=0.4)
    recut(done.folder, small / "coarse", classes=2)
    back = recut(small / "coarse", small / "back", classes=4)
    pairs = set(zip(names_of(done).values(), names_of(back).values(), strict=True))
    assert len(pairs) == 4


def test_labeled_images_stay_and_known_classes_keep_their_order(small):
    done = sort(small, blur=0.4)
    for n in (2, 6):
        cut = recut(done.folder, small / f"cut-{n}", classes=n).run
        assert (cut.classes[0].name, cut.classes[0].known, cut.classes[0].id) == ("red", True, 0)
        assert all(row.class_name == row.label == "red" for row in cut.rows if row.labeled)
        known = {c.name: c.known for c in cut.classes}
        assert all(row.known == known[row.class_name] for row in cut.rows)


def test_the_same_number_gives_the_same_answer(small, sorted_run):
    same = recut(sorted_run.folder, small / "same", classes=4)
    for file in ("predictions.csv", "classes.json", "tree.json"):
        assert (same.folder / file).read_bytes() == (sorted_run.folder / file).read_bytes()


def test_a_trained_run_is_cut_without_its_classifier(small, training_pays):
    photos = plant(small / "photos", n=5, labeled=3)
    done = bacon_gcd.discover(photos, small / "run", effort="thorough", classes=4)
    said = bacon("discover", "--recut", done.folder, "-o", small / "new", "--classes", 5, "--json")
    assert said.exit_code == 0, (said.output, said.exception)
    assert len(json.loads(said.stdout)["classes"]) == 5
    assert (small / "new/features.npy").read_bytes() == (small / "run/features.npy").read_bytes()
    assert agreement(small / "new", photos) >= 0.8  # 14 images; a class was cut in two


def agreement(run, photos):
    """Share of unlabeled images that the model of the run sorts as the run did."""
    rows = DiscoverRun.load(run).rows
    stored = {row.file_name: row.class_name for row in rows if not row.labeled}
    told = json.loads(bacon("predict", run, photos, "--json").stdout)["predictions"]
    told = {row["file_name"]: row["class"] for row in told}
    return np.mean([stored[file] == told[file] for file in stored])


# The threshold


def blurred(small):
    """A run whose images are unsure; one label cannot be held out to calibrate it."""
    return sort(small, blur=0.4, labeled=1)


def sides(found):
    return [row.known for row in found.run.rows if not row.labeled]


def test_a_threshold_parts_the_images_by_their_known_probability(small):
    done = blurred(small)
    for number in (0.0, 0.31, 1.0):
        moved = recut(done.folder, small / f"moved-{number}", threshold=number)
        share = [row.known_probability for row in done.run.rows if not row.labeled]
        assert sides(moved) == [p >= number for p in share]
        assert moved.run.config["threshold"] == number
        assert [c.name for c in moved.run.classes] == [c.name for c in done.run.classes]
        assert all(row.known_probability == 1 for row in moved.run.rows if row.labeled)


def test_images_that_do_not_change_sides_stay_in_their_class(small):
    done = recut(blurred(small).folder, small / "cut", classes=2)  # its borders are not centroids'
    line = np.median([row.known_probability for row in done.run.rows if row.known])
    moved = recut(done.folder, small / "moved", threshold=line)
    parts = [json.loads((run.folder / "tree.json").read_text())["members"] for run in (done, moved)]
    changed = 0
    for before, after, *part in zip(done.run.rows, moved.run.rows, *parts, strict=True):
        changed += before.known != after.known
        assert before.known != after.known or part[0] == part[1]
        assert before.known != after.known or before.class_name == after.class_name
    assert changed


def test_only_those_who_change_sides_move_and_to_the_nearest_part_of_their_class():
    features = torch.eye(4)[[0, 1, 2, 3, 2, 3]]
    tree = ClassTree(np.array([0, 0, 1, 2, 2, 0]), 3, (Join(1, 2, 0.5),))
    classes = (FoundClass(0, "red", True), FoundClass(1, "novel_000", False))
    sides = np.array([-1, 0, 1, 1, 1, 1])  # row 4 is nearer to the other part, but stays
    moved = with_moved(tree, features, sides, before=classes)
    assert moved.members.tolist() == [0, 0, 1, 2, 2, 2]


def test_the_model_follows_the_threshold(small):
    photos = plant(small / "photos", n=5, labeled=3)
    done = bacon_gcd.discover(photos, small / "run", effort="quick", classes=4)
    known = [row.known for row in done.run.rows if not row.labeled]
    assert any(known)
    assert not all(known)
    recut(done.folder, small / "new", threshold=0.999)  # nothing is that surely known
    told = json.loads(bacon("predict", small / "new", photos, "--json").stdout)["predictions"]
    labeled = {row.file_name for row in done.run.rows if row.labeled}
    assert {row["known"] for row in told if row["file_name"] not in labeled} == {False}


def test_a_new_run_takes_a_threshold_too(small):
    plain = blurred(small)
    asked = bacon_gcd.discover(
        *(small / "photos", small / "direct"),
        features=small / "f.npy",
        effort="quick",
        classes=4,
        threshold=0.8,
    )
    moved = recut(plain.folder, small / "moved", threshold=0.8)
    assert names_of(asked) == names_of(moved)
    assert asked.run.config["threshold"] == 0.8


def test_threshold_and_number_go_together_and_cuts_still_nest(small):
    done = blurred(small)
    words = ["discover", "--recut", done.folder, "--threshold", 0.8]
    said = bacon(*words, "--classes", 2, "-o", small / "both", "--json")
    assert said.exit_code == 0, (said.output, said.exception)
    assert json.loads(said.stdout)["novel"] == 1
    alone = recut(done.folder, small / "alone", threshold=0.8)
    both = names_of(bacon_gcd.discovery.pipeline.Discovery(small / "both"))
    pairs = set(zip(names_of(alone).values(), both.values(), strict=True))
    assert len(pairs) == len(alone.run.classes)
    later = recut(small / "alone", small / "later", classes=2)
    assert names_of(later) == both
    assert later.run.config["threshold"] == 0.8


def test_confirmed_images_stay_under_every_threshold(small):
    done = blurred(small)
    row = next(row for row in done.run.rows if row.known and not row.labeled)
    Constraints({row.file_name: row.class_name}).write(done.folder)
    moved = recut(done.folder, small / "moved", threshold=1.0)
    known = [r.file_name for r in moved.run.rows if r.known and not r.labeled]
    assert known == [row.file_name]
    assert Constraints.read(moved.folder).confirmed == {row.file_name: "red"}


# Mistakes


def test_a_cut_keeps_the_runs_temperature_and_claims_no_new_measurement(small):
    """Its classes were not measured: hidden classes measured those of the run."""
    known = ("red", "green", "blue")
    photos = plant(small / "photos", known=known, novel=("gray",), labeled=5)
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    noise = np.random.default_rng(1).normal(size=(len(ids), 8))
    np.save(small / "f.npy", vectors_of(ids) + 0.1 * noise)
    done = bacon_gcd.discover(photos, small / "run", features=small / "f.npy", classes=4)
    assert "Expected accuracy" in (done.folder / "model/README.md").read_text()
    assert done.expected is not None
    assert f"Expect about {done.expected.accuracy:.0%}" in done.text()
    cut = recut(done.folder, small / "cut", classes=6)
    card = (cut.folder / "model/README.md").read_text()
    assert "Expected accuracy" not in card
    assert cut.expected is None
    assert "not calibrated" not in card
    assert "the confidence is measured as there" in card
    before, after = (load_model(run.folder / "model") for run in (done, cut))
    assert after.temperature == before.temperature
    np.testing.assert_allclose(after.centroids.norm(dim=1), 1, atol=1e-5)


@pytest.mark.parametrize("option", ["labels", "features", "backbone", "effort", "seed", "workers"])
def test_an_option_without_effect_is_refused_by_name(small, sorted_run, option):
    value = "1" if option in ("seed", "workers") else "quick"
    words = ("--recut", sorted_run.folder, "-o", small / "cut", "--classes", "3")
    done = bacon("discover", *words, f"--{option}", value)
    assert isinstance(done.exception, UserError)
    assert f"--{option} has no effect" in str(done.exception)
    assert not (small / "cut").exists()


def test_a_run_with_corrections_is_refitted_first(small, sorted_run):
    line = {"n": 1, "time": "", "kind": "rename", "class": "novel_000", "to": "grass"}
    edits_path(sorted_run.folder).write_text(json.dumps(line) + "\n")
    with pytest.raises(UserError, match="--refit"):
        recut(sorted_run.folder, small / "new", classes=3)


def test_a_run_whose_images_changed_is_not_cut(small, sorted_run):
    next((small / "photos/_unlabeled").iterdir()).unlink()
    with pytest.raises(UserError, match="not those of"):
        recut(sorted_run.folder, small / "new", classes=5)
    assert not (small / "new").exists()


@pytest.mark.parametrize(
    ("classes", "line"),
    [("auto", "number"), ("3-5", "number"), ("many", "number"), ("0", "at least 1 class")],
)
def test_a_recut_needs_one_number(small, sorted_run, classes, line):
    with pytest.raises(UserError, match=line):
        recut(sorted_run.folder, small / "new", classes=classes)


@pytest.mark.parametrize("classes", [1, 99])
def test_an_impossible_number_names_the_range(small, sorted_run, classes):
    with pytest.raises(UserError, match=rf"{classes} classes: .* cut into 2 to \d+"):
        recut(sorted_run.folder, small / "new", classes=classes)


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_is_a_share(small, sorted_run, threshold):
    with pytest.raises(UserError, match="--threshold"):
        recut(sorted_run.folder, small / "new", threshold=threshold)


def test_a_recut_needs_something_to_change(small, sorted_run):
    with pytest.raises(UserError, match="--classes N or --threshold T"):
        recut(sorted_run.folder, small / "new")


def test_images_or_a_run_but_not_both(small):
    for words in ([], [small / "photos", "--recut", small / "run"]):
        done = bacon("discover", *words, "-o", small / "x")
        assert isinstance(done.exception, UserError)
