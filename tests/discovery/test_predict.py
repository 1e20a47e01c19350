"""`bacon predict`: what it tells beside the classes, and what it refuses."""

import csv
import json
import shutil

import pytest

from bacon_gcd.config import UserError
from bacon_gcd.discovery import predict as predicting
from bacon_gcd.discovery.edits import append_edit, edits_path
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.predict import COLUMNS, Predicted, predict
from tests.new_photos import kind_of, photos, vectors
from tests.planted_photos import bacon

pytestmark = pytest.mark.usefixtures("planted")


@pytest.fixture
def new(small):
    """Pictures of a known class, a new one and an unseen one, and the command's words for them."""
    folder = photos(small / "new", ("red", "blue", "pink"), n=2)
    return ["predict", small / "run", folder, "--features", vectors(folder, small / "n.npy")]


def test_files_that_were_not_read_are_told_and_listed(small, new):
    assert "cannot be read" not in bacon(*new).stderr
    for name in ("a.jpg", "b.jpg"):
        (small / "new" / name).write_bytes(b"no image")
    (small / "new/notes.txt").write_text("words")
    done = bacon(*new, "--json")
    assert done.exit_code == 0
    assert "2 images cannot be read, first: a.jpg (" in done.stderr
    assert "1 other file ignored: 1 .txt" in done.stderr
    told = json.loads(done.stdout)
    assert [each["file_name"] for each in told["unreadable"]] == ["a.jpg", "b.jpg"]
    assert all(each["reason"] for each in told["unreadable"])
    assert told["ignored"] == {".txt": 1}
    assert len(told["predictions"]) == 6


def test_update_tells_of_files_that_were_not_read(small, new):
    (small / "new/a.jpg").write_bytes(b"no image")
    done = bacon("update", *new[1:], "-o", small / "grown")
    assert done.exit_code == 0
    assert "1 image cannot be read: a.jpg (" in done.stderr
    assert "added-1/a.jpg" in (small / "grown/quarantine.csv").read_text()


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_is_there_already_is_not_written_over(small, new, monkeypatch, kind):
    out = small / "out.csv"
    match kind:
        case "file":
            out.write_text("precious")
        case "folder":
            out.mkdir()
        case _:
            out.symlink_to(small / "away")
    monkeypatch.setattr(predicting, "load_model", None)  # nothing is computed before
    done = bacon(*new, "-o", out)
    assert isinstance(done.exception, UserError)
    assert str(done.exception) == f"{out}: already there; name another file with -o"
    assert kind != "file" or out.read_text() == "precious"


def test_the_table_ends_with_what_else_an_image_may_be(small, new):
    assert bacon(*new, "-o", small / "n.csv").exit_code == 0
    with (small / "n.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert COLUMNS[-2:] == ("second_class", "second_confidence")
    names = {each.name for each in DiscoverRun.load(small / "run").classes}
    for row in rows:
        assert row["second_class"] in names - {row["class"]}
        assert 0 <= float(row["second_confidence"]) <= float(row["confidence"])
        assert float(row["confidence"]) + float(row["second_confidence"]) <= 1.0002


def test_a_class_that_was_merged_into_the_first_choice_is_not_the_second(small, new):
    run = DiscoverRun.load(small / "run")
    merge = {"kind": "merge", "classes": ["red", kind_of(run, "blue")], "to": "both"}
    append_edit(edits_path(run.folder), merge)
    rows = predict(*new[1:3], features=new[4])
    assert {row["class"] for row in rows if row["file_name"][:3] in ("red", "blu")} == {"both"}
    assert all(row["second_class"] not in (row["class"], "", "red") for row in rows)


def test_the_command_ends_with_counts_that_add_up(small, new):
    done = bacon(*new, "--json")
    counts = json.loads(done.stdout)["counts"]
    assert counts == {"images": 6, "known": 2, "new": 2, "outliers": 2}
    line = "6 images: 2 in known classes, 2 in new ones, 2 outliers"
    assert done.stderr.splitlines()[-1] == line
    assert bacon(*new).stderr.splitlines()[-1] == line
    shutil.rmtree(small / "new")
    lone = photos(small / "new", ("red",), n=1)
    ready = vectors(lone, small / "one.npy")
    done = bacon("predict", small / "run", lone, "--features", ready, "-o", small / "one.csv")
    assert done.stdout == f"wrote {small / 'one.csv'}\n"
    assert done.stderr.splitlines()[-1] == "1 image: 1 in known classes, 0 in new ones, 0 outliers"


def test_a_model_that_cannot_tell_outliers_counts_none():
    rows = [{"known": known, "outlier": None} for known in (True, True, False)]
    found = Predicted(rows, table=None)
    assert found.counts == {"images": 3, "known": 2, "new": 1, "outliers": None}
    assert found.line() == "3 images: 2 in known classes, 1 in new ones"
