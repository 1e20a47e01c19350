"""`bacon discover` end to end on planted folders: colors are classes."""

import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discovery import inputs, summary
from bacon_gcd.discovery.edits import append_edit, edits_path
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.recut import recut
from bacon_gcd.discovery.refit import refit
from bacon_gcd.discovery.settings import parse_classes
from tests.planted_photos import bacon, picture, plant, vectors_of
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    return tmp_path


def rows_of(run):
    with (run / "predictions.csv").open() as file:
        return list(csv.DictReader(file))


def test_planted_colors_are_found_and_everything_is_written(small):
    photos = plant(small / "photos")
    (photos / "broken.png").write_bytes(b"no image")
    done = bacon(
        "discover", photos, "-o", small / "run", "--effort", "quick", "--classes", "4", "--json"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    run = DiscoverRun.load(small / "run")
    assert [c.name for c in run.classes] == ["green", "red", "novel_000", "novel_001"]
    assert [c.id for c in run.classes] == [0, 1, 2, 3]
    assert [c.count for c in run.classes] == [8, 8, 8, 8]
    assert run.next_id == 4
    found = {row.file_name: row.class_name for row in run.rows}
    assert all(found[f] == c for f, c in found.items() if c in ("red", "green") and c in f)
    assert len({found[f] for f in found if "blue" in f}) == 1
    assert len({found[f] for f in found if "gray" in f}) == 1
    labeled = [row for row in run.rows if row.labeled]
    assert len(labeled) == 10
    assert all(row.label == row.class_name and row.confidence == 1 for row in labeled)
    assert all(len(row.neighbors) == 6 and row.file_name not in row.neighbors for row in run.rows)
    np.testing.assert_allclose(np.linalg.norm(run.features, axis=1), 1, atol=1e-5)
    assert "broken.png" in (small / "run/quarantine.csv").read_text()
    names = {path.name for path in (small / "run").iterdir()}
    assert names >= {"report.html", "log.jsonl", "config.toml", "duplicates.json", "tree.json"}
    said = bacon("predict", small / "run", photos / "_unlabeled", "--json")
    assert said.exit_code == 0, said.output
    again = json.loads(said.stdout)["predictions"]
    stored = {row.file_name: row for row in run.rows}
    for row in again:
        before = stored[f"_unlabeled/{row['file_name']}"]
        assert row["class"] == before.class_name
    now, then = (
        np.mean([row["confidence"] for row in again]),
        np.mean([row.confidence for row in run.rows if not row.labeled]),
    )
    assert now == pytest.approx(then, abs=0.02)  # as sure on average


def test_a_model_records_how_much_of_an_image_it_saw(small):
    for name, expected in (("thumbnails", True), ("photographs", False)):
        photos = plant(small / name)
        if not expected:
            for path in photos.rglob("*.png"):
                Image.open(path).resize((200, 200)).save(path)
        bacon_gcd.discover(photos, small / f"{name}-run", effort="quick")
        facts = json.loads((small / f"{name}-run/model/model.json").read_text())
        assert facts["backbone"]["uncropped"] is expected


def test_two_runs_give_the_same_bytes(small):
    photos = plant(small / "photos")
    for name in ("a", "b"):
        bacon_gcd.discover(photos, small / name, effort="quick")
    assert rows_of(small / "a")
    for file in ("predictions.csv", "classes.json", "tree.json", "features.npy"):
        assert (small / "a" / file).read_bytes() == (small / "b" / file).read_bytes()


NO_LABELS = {"known": (), "novel": ("red", "green", "blue")}
ALL_LABELED = {"novel": (), "labeled": 8}
ONE_KNOWN = {"known": ("red",), "novel": ("blue",)}
CASES = {
    "no labels": (NO_LABELS, "3", {"novel_000", "novel_002"}),
    "all labeled": (ALL_LABELED, "auto", {"red", "green"}),
    "one known class": (ONE_KNOWN, "auto", {"red"}),
    "one label each": ({"labeled": 1}, "4", {"red", "green", "novel_000", "novel_001"}),
    "classes of one image": ({"n": 1, "labeled": 1}, "auto", {"red", "green"}),
}


@pytest.mark.parametrize(("planted", "classes", "expected"), CASES.values(), ids=CASES)
def test_few_none_and_all_labels_are_sorted(small, planted, classes, expected):
    photos = plant(small / "photos", **planted)
    done = bacon_gcd.discover(photos, small / "run", effort="quick", classes=classes)
    names = {c.name for c in done.run.classes}
    assert expected <= names
    assert {row.class_name for row in done.run.rows} <= names
    assert all(0 <= row.confidence <= 1 for row in done.run.rows)


def test_identical_images_are_one_class_and_exact_duplicates(small):
    (small / "photos").mkdir()
    for i in range(12):
        picture("red", 0).save(small / f"photos/{i:02d}.png")
    done = bacon_gcd.discover(small / "photos", small / "run", effort="quick")
    assert [c.count for c in done.run.classes] == [12]
    (group,) = json.loads((small / "run/duplicates.json").read_text())
    assert group["kind"] == "exact"
    assert len(group["files"]) == 12


MISTAKES = {
    "0 images": (0, "auto", "there are no images in it"),
    "1 image": (1, "auto", "1 image; there must be at least 4"),
    "more classes than images": (6, "50", "make at most 6"),
    "a word": (6, "many", "give auto, a number, or a range"),
    "an empty range": (6, "5-2", "give the smaller number first, 2-5"),
    "no class": (6, "0", "there is at least 1 class"),
}


@pytest.mark.parametrize(("n", "classes", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(small, n, classes, said):
    (small / "photos").mkdir()
    for i in range(n):
        picture("red", i).save(small / f"photos/{i}.png")
    done = bacon(
        "discover", small / "photos", "-o", small / "run", "--effort", "quick", "--classes", classes
    )
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (small / "run").exists()
    assert not list(small.glob("*.part"))
    assert not list(small.glob(".*.part"))


def test_fewer_classes_than_the_labels_name_are_refused_before_anything_is_told(small):
    photos = plant(small / "photos")
    with pytest.raises(UserError, match="name 2 classes already"):
        bacon_gcd.discover(photos, small / "a/b/run", classes=1, tell=pytest.fail)
    assert not (small / "a").exists()


UNUSABLE = {
    "no file of names": ({"names": "w.txt"}, r"--names .*/w\.txt: cannot be read .*: No such file"),
    "no backbone of this name": ({"backbone": "x"}, "backbone 'x' is not known"),
    "weights that are not here": ({"backbone": "resnet50.tv_in1k"}, "bacon weights get resnet50"),
    "no such folder of a model": ({"backbone": "hf:./x"}, "hf:./x: no such folder"),
    "weights of timm that are not here": ({"backbone": "timm:x"}, "bacon weights get timm:x"),
    "one of two": ({"backbone": "resnet18.pypi_in1k+resnet50.tv_in1k"}, "get resnet50.tv_in1k"),
}


@pytest.mark.parametrize(("options", "said"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_option_that_cannot_be_used_is_told_before_images_are_read(
    small, monkeypatch, options, said
):
    monkeypatch.chdir(small)
    monkeypatch.setattr(inputs, "read_images", pytest.fail)
    with pytest.raises(UserError, match=said):
        bacon_gcd.discover(small, small / "a/b/run", **options)
    assert not (small / "a").exists()


@pytest.mark.parametrize(
    ("n_bad", "said"),
    [
        (1, "1 image cannot be read: 0.png (zero bytes); quarantine.csv of the run lists it"),
        (2, "2 images cannot be read, first: 0.png (zero bytes); quarantine.csv lists them all"),
    ],
)
def test_images_that_cannot_be_read_are_told_with_the_file_that_lists_them(small, n_bad, said):
    photos, told = plant(small / "photos", n=3, labeled=1), []
    for i in range(n_bad):
        (photos / f"{i}.png").touch()
    bacon_gcd.discover(photos, small / "run", effort="quick", tell=told.append)
    assert said in told
    assert (small / "run/quarantine.csv").read_text().count("zero bytes") == n_bad


def test_a_folder_that_holds_something_is_not_overwritten(small):
    photos = plant(small / "photos", n=3, labeled=1)
    (small / "run").mkdir()
    (small / "run/mine.txt").write_text("mine")
    with pytest.raises(UserError, match="already there"):
        bacon_gcd.discover(photos, small / "run", effort="quick")
    assert [p.name for p in (small / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("suffix", "effort"), [(".npy", "thorough"), (".parquet", "normal")])
def test_ready_features_take_the_place_of_a_backbone(small, suffix, effort):
    photos = plant(small / "photos")
    ids = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    path = small / f"features{suffix}"
    if suffix == ".npy":
        np.save(path, vectors_of(ids))
    else:
        backward = ids[::-1]
        values = vectors_of(backward).tolist()
        pq.write_table(pa.table({"file_name": backward, "vector": values}), path)
    done = bacon_gcd.discover(photos, small / "run", features=path, effort=effort, classes="3-6")
    assert [c.count for c in done.run.classes] == [8, 8, 8, 8]
    assert done.run.config["backbone"] == "vectors"


def test_features_that_do_not_fit_the_images_are_named(small):
    photos = plant(small / "photos", n=3, labeled=1)
    np.save(small / "f.npy", np.zeros((5, 8)))
    with pytest.raises(UserError, match=r"f.npy: has shape \(5, 8\); 12 readable images"):
        bacon_gcd.discover(photos, small / "run", features=small / "f.npy")
    np.save(small / "f.npy", np.full((12, 8), 1e30))
    with pytest.raises(UserError, match=r"f\.npy: holds values so large that"):
        bacon_gcd.discover(photos, small / "run", features=small / "f.npy")


@pytest.mark.parametrize("planted", [{}, NO_LABELS, ALL_LABELED])
def test_training_sorts_with_some_none_and_all_labels(small, planted, training_pays):
    photos = plant(small / "photos", **planted)
    done = bacon_gcd.discover(photos, small / "run", effort="thorough", backbone="auto")
    log = (small / "run/log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["kind"] == "epoch"
    assert done.run.config["epochs"] == 30
    assert bacon("predict", small / "run", photos, "--json").exit_code == 0


def test_a_label_on_the_wrong_color_is_suspected_but_stays(small):
    photos = plant(small / "photos", novel=(), n=12, labeled=10)
    picture("green", 77).save(photos / "red/wrong.png")
    done = bacon_gcd.discover(photos, small / "run", effort="quick")
    wrong = [row for row in done.run.rows if row.suspected]
    assert [(r.file_name, r.class_name, r.suggested) for r in wrong] == [
        ("red/wrong.png", "red", "green")
    ]


def suspected_in(run):
    return {row.file_name: row.suggested for row in DiscoverRun.load(run).rows if row.suspected}


def test_copies_of_one_image_in_two_class_folders_are_suspected_by_every_command(small):
    photos = plant(small / "photos", novel=("blue",), n=8, labeled=4)
    shutil.copy(photos / "red/red-00.png", photos / "green/copy.png")
    shutil.copy(photos / "red/red-01.png", photos / "red/copy.png")
    done = bacon_gcd.discover(photos, small / "run", effort="quick", classes=3)
    assert "4 images are there twice or more (duplicates.json)" in done.text()
    assert done.facts()["duplicates"] == 4
    expected = {"green/copy.png": "red", "red/red-00.png": "green"}
    assert suspected_in(small / "run") == expected
    assert all(row.class_name == row.label for row in done.run.rows if row.labeled)
    recut(small / "run", small / "cut", classes=4)
    assert suspected_in(small / "cut") == expected
    edit = {"kind": "confirm", "files": ["red/red-00.png"]}
    append_edit(edits_path(small / "run"), edit)
    refit(small / "run", small / "refitted")
    assert suspected_in(small / "refitted") == {"green/copy.png": "red"}
    recut(small / "refitted", small / "cut again", classes=4)
    assert suspected_in(small / "cut again") == {"green/copy.png": "red"}


def test_a_known_class_may_be_called_like_a_novel_one(small):
    photos = plant(small / "photos", known=("red",), novel=("blue",))
    (photos / "red").rename(photos / "novel_004")
    done = bacon_gcd.discover(photos, small / "run", effort="quick", classes=2)
    assert [c.name for c in done.run.classes] == ["novel_004", "novel_000"]
    assert done.run.next_id == 2
    (photos / "novel_004").rename(photos / "novel_000")
    again = bacon_gcd.discover(photos, small / "again", effort="quick", classes=2).run
    assert [(c.id, c.name, c.known) for c in again.classes] == [
        (0, "novel_000", True),
        (1, "novel_001", False),
    ]
    assert {r.class_name for r in again.rows if "red" in r.file_name} == {"novel_000"}
    assert {r.class_name for r in again.rows if "blue" in r.file_name} == {"novel_001"}


def test_the_object_shows_and_exports_itself(small):
    photos = plant(small / "photos", known=("red", "green"), n=4, labeled=2)
    (photos / "green").rename(photos / "<b>")
    done = bacon_gcd.discover(photos, small / "run", effort="quick", classes=4)
    assert done.table.num_rows == 16
    page = done.report().read_text()
    assert page.lower().startswith("<!doctype html>")
    assert str(small) not in page
    assert '"bases":[["./../photos/",0]]' in page, "relative links to the images"
    assert "&lt;b&gt;" in done._repr_html_()
    assert "<b>" not in done._repr_html_()
    done.export(small / "sorted")
    assert len(list((small / "sorted").rglob("*.png"))) == 16


def test_the_backbone_is_named_with_the_command_for_a_better_one(small):
    photos = plant(small / "photos", n=3, labeled=1)
    said = []
    bacon_gcd.discover(photos, small / "run", effort="quick", tell=said.append)
    better = "bacon weights get vit_small_patch14_dinov2.pypi_lvd142m"
    assert any("resnet18.pypi_in1k" in s and better in s for s in said)
    assert any("no training: about" in s and "from here" in s for s in said)
    assert not any("0 views" in s or "0 epochs" in s for s in said)


def test_printed_commands_can_be_pasted(small):
    photos = plant(small / "photos", n=3, labeled=1)
    done = bacon_gcd.discover(photos, small / "my run; rm x", effort="quick", classes=4)
    assert "twice" not in done.text()
    assert f"bacon review '{small}/my run; rm x'" in done.text()


def test_without_weights_the_command_that_gets_them_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "empty"))
    photos = plant(tmp_path / "photos", n=3, labeled=1)
    with pytest.raises(UserError, match="bacon weights get"):
        bacon_gcd.discover(photos, tmp_path / "run")


def test_classes_are_read_as_auto_number_or_range():
    assert parse_classes("auto") is None
    assert parse_classes("12") == (12, 12)
    assert parse_classes("5-20") == (5, 20)


@pytest.mark.parametrize("name", ["photos \U000f0000", "photos \U0001f98a", 'q"uo\\te\ttab'])
def test_a_source_of_any_name_can_be_read_again(small, name):
    photos = plant(small / name)
    bacon_gcd.discover(photos, small / "run", effort="quick")
    assert DiscoverRun.load(small / "run").source == photos
    assert bacon("export", small / "run", "--to", small / "out").exit_code == 0


def test_a_source_whose_name_is_not_utf8_is_refused_before_any_work(small):
    photos = plant(small / "photos").rename(small / "photos \udcff")
    with pytest.raises(UserError, match=r"source .* not UTF-8"):
        bacon_gcd.discover(photos, small / "run", effort="quick", tell=pytest.fail)
    assert not (small / "run").exists()


def test_every_file_is_accounted_for_in_what_is_told(small):
    photos = plant(small / "photos")
    (photos / "broken.png").write_bytes(b"no image")
    (photos / "movie.mov").touch()
    told = []
    bacon_gcd.discover(photos, small / "run", effort="quick", tell=told.append)
    summary = "32 images, 10 with a label; 1 unreadable, 1 other files ignored: 1 .mov"
    assert told[0] == summary
    assert summary in (small / "run" / "report.html").read_text()


def test_without_labels_the_report_speaks_of_new_classes_only(small, monkeypatch):
    pages = []
    monkeypatch.setattr(summary, "write_report", lambda data, path: pages.append(data))
    plant(small / "photos", known=(), novel=("red", "blue"), n=6)
    (small / "photos/notes.txt").write_text("no image")
    bacon_gcd.discover(small / "photos", small / "run", classes=2)
    (page,) = pages
    assert "Nothing had a label" in page.chosen[0]
    assert any("There was no label to hide" in note for note in page.notes)
    assert any("1 other files ignored: 1 .txt" in note for note in page.notes)


def test_one_label_per_class_is_told_to_be_too_few(small, monkeypatch):
    pages = []
    monkeypatch.setattr(summary, "write_report", lambda data, path: pages.append(data))
    plant(small / "photos", n=6, labeled=1)
    bacon_gcd.discover(small / "photos", small / "run", classes=4)
    notes = pages[0].notes
    assert any(note.startswith("Too few labels could be hidden") for note in notes)
    assert not any("0 unreadable" in note for note in notes)
