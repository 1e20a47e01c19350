"""Corrections are learned: what a person said holds, names stay, the rest gets better."""

import json

import numpy as np
import pytest

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.corrected import corrections_of, resized
from bacon_gcd.discovery.edits import append_edit, edits_path, read_edits
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.recut import recut
from bacon_gcd.discovery.refit import refit
from tests.planted_photos import bacon, picture, plant, vectors_of
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    return tmp_path


@pytest.fixture
def run(small):
    """Red is known; green, blue and gray are novel_000 to novel_002."""
    photos = plant(small / "photos", known=("red",), novel=("green", "blue", "gray"))
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    np.save(small / "f.npy", vectors_of(ids))
    done = bacon_gcd.discover(
        photos, small / "run", features=small / "f.npy", effort="quick", classes=4
    )
    return done.folder


def say(run, kind, **said):
    append_edit(edits_path(run), {"kind": kind, **said})


def files_of(run, color):
    return sorted(r.file_name for r in DiscoverRun.load(run).rows if f"{color}-" in r.file_name)


def class_of(run, color):
    (name,) = {r.class_name for r in DiscoverRun.load(run).rows if f"{color}-" in r.file_name}
    return name


def places(run):
    return {row.file_name: row.class_name for row in DiscoverRun.load(run).rows}


def ids_of(run):
    return {each.name: each.id for each in DiscoverRun.load(run).classes}


def test_everything_a_person_said_holds(small, run):
    green, blue, gray = (class_of(run, color) for color in ("green", "blue", "gray"))
    say(run, "rename", **{"class": green, "to": "heron"})
    moved = files_of(run, "blue")[:2]
    say(run, "move", files=moved, to="heron")
    wrong = files_of(run, "gray")[0]
    say(run, "wrong", files=[wrong])
    say(run, "confirm", files=files_of(run, "gray")[1:3])
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    done = refit(run, small / "new")
    found = places(done.folder)
    assert {found[file] for file in (*files_of(run, "green"), *moved)} == {"heron"}
    assert found[wrong] != gray
    assert {found[file] for file in files_of(run, "gray")[1:]} == {gray}
    assert {found[file] for file in files_of(run, "blue")[2:]} == {blue}
    assert {found[f] for f in found if f.startswith("red/")} == {"red"}
    old = ids_of(run)
    assert ids_of(done.folder) == {
        "red": old["red"],
        "heron": old[green],
        blue: old[blue],
        gray: old[gray],
    }
    rows = {row.file_name: row for row in done.run.rows}
    assert all(rows[file].confidence == 1 and not rows[file].known for file in moved)
    assert {each.name for each in done.run.classes if each.known} == {"red"}
    assert done.run.config["refit"] == str(run)
    assert read_edits(edits_path(done.folder)) == []
    assert before == {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}


def test_merged_classes_stay_together_and_their_numbers_are_not_used_again(small, run):
    names = ["novel_001", "novel_002"]
    say(run, "merge", classes=names, to="novel_001")
    out = files_of(run, class_color(run, "novel_001"))[0]
    say(run, "move", files=[out], to="sky")  # which draws the images like it, but for the merge
    done = refit(run, small / "new")
    found, old = places(done.folder), places(run)
    assert {found[file] for file in old if old[file] in names and file != out} == {"novel_001"}
    assert found[out] == "sky"
    kept = {"red": 0, "novel_000": 1, "novel_001": 2, "sky": 4}
    assert ids_of(done.folder) == kept
    more = refit(done.folder, small / "more", classes=5)
    assert ids_of(more.folder) == kept | {"novel_004": 5}
    assert more.run.next_id == 6


def class_color(run, name):
    return next(f for f, c in places(run).items() if c == name).split("/")[-1].split("-")[0]


def test_a_second_refit_remembers_the_first(small, run):
    blue, gray = class_of(run, "blue"), class_of(run, "gray")
    moved, wrong = files_of(run, "blue")[:2], files_of(run, "green")[0]
    say(run, "move", files=moved, to=gray)
    say(run, "wrong", files=[wrong])
    green = class_of(run, "green")
    first = refit(run, small / "first").folder
    assert corrected(DiscoverRun.load(first)).constraints.confirmed == dict.fromkeys(moved, gray)
    say(first, "rename", **{"class": blue, "to": "sky"})
    say(first, "rename", **{"class": gray, "to": "ash"})
    second = refit(first, small / "second").folder
    found = places(second)
    assert {found[file] for file in moved} == {"ash"}
    assert {found[file] for file in files_of(run, "blue")[2:]} == {"sky"}
    assert found[wrong] != green
    say(second, "move", files=moved[:1], to="sky")
    third = places(refit(second, small / "third").folder)
    assert [third[file] for file in moved] == ["sky", "ash"]


def test_a_label_that_was_called_wrong_is_no_label_any_more(small, run):
    wrong = next(file for file in files_of(run, "red") if file.startswith("red/"))
    say(run, "wrong", files=[wrong])
    first = refit(run, small / "first")
    row = next(row for row in first.run.rows if row.file_name == wrong)
    assert (row.class_name != "red", row.labeled, row.label) == (True, False, "red")
    say(first.folder, "wrong", files=[wrong])
    second = places(refit(first.folder, small / "second").folder)
    assert second[wrong] not in ("red", row.class_name)


def test_an_image_that_is_wrong_everywhere_opens_a_class(small, run):
    odd = files_of(run, "gray")[0]
    folder = run
    for step in range(4):
        say(folder, "wrong", files=[odd])
        folder = refit(folder, small / f"step{step}").folder
    assert places(folder)[odd] == "novel_003"
    assert set(places(run).values()) < set(places(folder).values())


def test_a_class_the_person_opened_collects_the_images_like_it(small):
    photos = plant(small / "photos", known=("red",), novel=("green", "blue"))
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    np.save(small / "f.npy", vectors_of(ids))
    coarse = bacon_gcd.discover(
        photos, small / "run", features=small / "f.npy", effort="quick", classes=2
    ).folder
    assert class_of(coarse, "green") == class_of(coarse, "blue") == "novel_000"
    say(coarse, "move", files=files_of(coarse, "blue")[:1], to="sky")
    fine = refit(coarse, small / "new").folder
    assert (class_of(fine, "blue"), class_of(fine, "green")) == ("sky", "novel_000")
    assert ids_of(fine) == {"red": 0, "novel_000": 1, "sky": 2}


@pytest.mark.parametrize("by_hand", [True, False])
def test_ids_that_a_coarser_cut_gave_up_are_not_given_again(small, run, by_hand):
    coarse = recut(run, small / "coarse", classes=2).folder
    assert max(ids_of(coarse).values()) < 3, "the last class is gone"
    if by_hand:
        say(coarse, "move", files=files_of(coarse, "gray")[:1], to="sky")
    done = refit(coarse, small / "new", classes=4)
    opened = {k: v for k, v in ids_of(done.folder).items() if k not in ids_of(coarse)}
    assert opened == ({"sky": 4, "novel_004": 5} if by_hand else {"novel_003": 4, "novel_004": 5})


def test_a_class_that_lost_all_its_images_is_gone_for_good(small, run):
    last = [file for file, name in places(run).items() if name == "novel_002"]
    say(run, "move", files=last, to="red")
    done = refit(run, small / "new")
    assert ids_of(done.folder) == {"red": 0, "novel_000": 1, "novel_001": 2}
    assert done.run.next_id == 4
    say(done.folder, "move", files=last[:1], to="sky")
    again = ids_of(refit(done.folder, small / "again").folder)
    assert again["sky"] == 4


def overlapping(folder, *, n_large=135, n_small=15):
    """A large cluster that k-means cuts in two, and a small one beside it; names tell the truth."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    kinds = ["large"] * n_large + ["small"] * n_small
    for number, kind in enumerate(kinds):
        picture("red", number).save(folder / f"{kind}-{number:03d}.png")
    vectors = rng.normal(0, 0.3, (len(kinds), 7))
    vectors[:, 0] = 1.0
    vectors[n_large:, 1] += 1.2
    np.save(folder.with_suffix(".npy"), vectors.astype(np.float32))
    return folder


def test_ten_moved_images_make_the_others_better(small):
    photos = overlapping(small / "photos")
    ready = {"features": small / "photos.npy", "effort": "quick", "classes": 2}
    run = bacon_gcd.discover(photos, small / "run", **ready).folder
    found = places(run)
    (home,) = {found[file] for file in found if "small" in file}
    other = ({"novel_000", "novel_001"} - {home}).pop()
    true = {file: home if "small" in file else other for file in found}
    wrong = [file for file in found if found[file] != true[file]]
    moved = np.random.default_rng(1).choice(wrong, 10, replace=False).tolist()
    say(run, "move", files=moved, to=other)
    after = places(refit(run, small / "new").folder)
    others = set(found) - set(moved)
    n_before = sum(found[file] == true[file] for file in others)
    n_after = sum(after[file] == true[file] for file in others)
    assert n_after > n_before + 5, (n_before, n_after)
    assert all(after[file] == other for file in moved)


def test_training_learns_from_them_too_and_the_model_follows(small, training_pays):
    photos = plant(small / "photos", n=6, labeled=3)
    run = bacon_gcd.discover(photos, small / "run", effort="quick", classes=4).folder
    (gray,) = {places(run)[file] for file in files_of(run, "gray")}
    say(run, "rename", **{"class": gray, "to": "ash"})
    say(run, "confirm", files=files_of(run, "gray")[:3])
    said = bacon("discover", "--refit", run, "-o", small / "new", "--effort", "thorough", "--json")
    assert said.exit_code == 0, (said.output, said.exception)
    new = DiscoverRun.load(small / "new")
    assert new.config["effort"] == "thorough"
    assert [c.name for c in new.classes if c.known] == ["green", "red"]
    free = {r.file_name: r for r in new.rows if not r.labeled and r.confidence < 1}
    told = json.loads(bacon("predict", small / "new", photos, "--json").stdout)["predictions"]
    answers = {row["file_name"]: row for row in told}
    for file, row in free.items():
        assert answers[file]["class"] == row.class_name
        assert answers[file]["known"] == row.known


def test_two_refits_give_the_same_bytes(small, run):
    say(run, "move", files=files_of(run, "blue")[:3], to=class_of(run, "gray"))
    for name in ("a", "b"):
        refit(run, small / name)
    for file in ("predictions.csv", "classes.json", "constraints.json", "features.npy"):
        assert (small / "a" / file).read_bytes() == (small / "b" / file).read_bytes()


def test_without_corrections_the_classes_stay(small, run):
    done = refit(run, small / "new").folder
    assert places(done) == places(run)
    assert ids_of(done) == ids_of(run)
    assert Constraints.read(done) == Constraints(next_id=4)


def test_classes_can_be_counted_again_but_not_below_what_a_person_named(small, run):
    say(run, "rename", **{"class": "novel_000", "to": "a"})
    say(run, "confirm", files=[f for f, c in places(run).items() if c == "novel_001"][:1])
    counted = ids_of(refit(run, small / "auto", classes="auto").folder)
    assert {"red", "a", "novel_001"} <= set(counted)
    fewest = refit(run, small / "three", classes=3).folder
    assert set(ids_of(fewest)) == {"red", "a", "novel_001"}
    with pytest.raises(UserError, match="name 3 classes already"):
        refit(run, small / "two", classes=2)
    with pytest.raises(UserError, match="make at most"):
        refit(run, small / "many", classes=99)


def test_images_that_changed_are_not_refitted(small, run):
    next((small / "photos/_unlabeled").iterdir()).unlink()
    kept = sorted(
        p.relative_to(small / "photos").as_posix() for p in small.rglob("photos/**/*.png")
    )
    np.save(small / "f.npy", vectors_of(kept))
    with pytest.raises(UserError, match="not those of"):
        refit(run, small / "new")
    assert not (small / "new").exists()


MISTAKES = {
    "no run": (["--refit", "photos", "-o", "new"], "discover run"),
    "nothing there": (["--refit", "nowhere", "-o", "new"], "no such folder"),
    "the result is there": (["--refit", "run", "-o", "photos"], "already there"),
    "images too": (["photos", "--refit", "run", "-o", "new"], "give one of"),
    "recut too": (["--refit", "run", "--recut", "run", "-o", "new"], "give one of"),
    "labels too": (["--refit", "run", "--labels", "x.csv", "-o", "new"], "--labels has no effect"),
    "seed too": (["--refit", "run", "--seed", "1", "-o", "new"], "--seed has no effect"),
    "backbone too": (
        ["--refit", "run", "--backbone", "x", "-o", "new"],
        "--backbone has no effect",
    ),
    "effort": (["--refit", "run", "--effort", "some", "-o", "new"], "quick, normal, thorough"),
}


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(small, run, words, said):
    names = ("photos", "nowhere", "run", "new", "x.csv")
    done = bacon("discover", *(small / word if word in names else word for word in words))
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (small / "new").exists()


@pytest.mark.parametrize("color", ["red", "blue"])
def test_classes_are_counted_again_after_a_merge(small, run, color):
    """Also when as few are counted as there are known ones, or a known class was merged."""
    names = [class_of(run, color), class_of(run, "gray")]
    say(run, "merge", classes=names, to=names[0])
    done = refit(run, small / "new", classes="auto")
    assert {places(done.folder)[file] for file in files_of(run, "gray")} == {names[0]}
    assert {c.name for c in done.run.classes} >= {"red", names[0]}


def test_classes_are_counted_again_when_no_image_is_free_to_move(small, run):
    say(run, "merge", classes=list(ids_of(run)), to="red")
    assert set(places(refit(run, small / "new", classes="auto").folder).values()) == {"red"}


def test_a_name_that_a_person_chose_keeps_its_class(small, run):
    """Also in a later refit that is to leave fewer classes, and whatever the name is."""
    gray, blue = class_of(run, "gray"), class_of(run, "blue")
    say(run, "rename", **{"class": gray, "to": "novel_042"})
    first = refit(run, small / "first")
    assert {c.name for c in first.run.classes if c.named} == {"novel_042"}
    found = refit(first.folder, small / "second", classes=3)
    assert {"red", "novel_042"} < {c.name for c in found.run.classes}
    with pytest.raises(UserError, match="name 2 classes already"):
        refit(first.folder, small / "third", classes=1)
    assert blue in ids_of(first.folder)


def test_damaged_constraints_are_named(small, run):
    done = refit(run, small / "new").folder
    (done / "constraints.json").write_text("{}")
    with pytest.raises(UserError, match=r"constraints\.json: not the constraints"):
        refit(done, small / "again")


def test_counting_again_after_everything_was_merged_opens_no_class_without_an_image(small, run):
    names = [each.name for each in DiscoverRun.load(run).classes]
    say(run, "merge", classes=names, to="red")  # no image is free to move
    done = refit(run, small / "new", classes="auto")
    assert {row.class_name for row in done.run.rows} == {"red"}
    assert [each.name for each in done.run.classes] == ["red"]


def test_a_merged_class_leaves_no_more_new_classes_than_free_images(small, run):
    names = [class_of(run, color) for color in ("green", "blue")]
    say(run, "merge", classes=["red", *names], to="red")
    gray = files_of(run, "gray")
    say(run, "move", files=gray[1:], to=class_of(run, "gray"))
    left = corrections_of(DiscoverRun.load(run), corrected(DiscoverRun.load(run)))
    assert len(resized(left, 9).classes) == len(left.classes) + 1
