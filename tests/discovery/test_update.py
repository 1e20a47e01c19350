"""Tomorrow's images: predict with an outlier flag, and update of a finished run."""

import csv
import dataclasses
import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.edits import append_edit, edits_path
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.predict import predict
from bacon_gcd.discovery.recut import recut
from bacon_gcd.discovery.refit import refit
from bacon_gcd.discovery.update import map_positions, update, with_source
from bacon_gcd.model import Model, load_model
from bacon_gcd.system.devices import device_line
from bacon_gcd.system.files import sha256_of
from tests.new_photos import add, grow, kind_of, photos, sorted_as, vectors
from tests.planted_photos import bacon, plant


@pytest.fixture
def real_page():
    """Asks for the report's page."""


@pytest.fixture(autouse=True)
def _no_pages(request, monkeypatch):
    """The page is most of the work, and another test's subject."""
    if "real_page" not in request.fixturenames:
        monkeypatch.setattr(summary, "write_report", lambda data, path: path)


def test_images_of_the_runs_classes_join_them_and_open_none(small, planted):
    grown = add(small, ("red", "blue")).run
    assert [c.name for c in grown.classes] == [c.name for c in planted.run.classes]
    assert [c.id for c in grown.classes] == [c.id for c in planted.run.classes]
    assert grown.rows[: len(planted.run.rows)] != ()
    assert kind_of(grown, "red") == "red"
    assert kind_of(grown, "blue") == kind_of(planted.run, "blue")
    assert [c.count for c in grown.classes] == [
        c.count + 4 * (c.name in ("red", kind_of(grown, "blue"))) for c in planted.run.classes
    ]
    new = grown.rows[len(planted.run.rows) :]
    assert [row.file_name.partition("/")[0] for row in new] == ["added-1"] * 8
    assert all(0.5 < row.confidence <= 1 and not row.labeled for row in new)


def test_the_runs_own_images_stay_as_they_were(small, planted):
    before = {p.name: p.read_bytes() for p in planted.folder.iterdir() if p.is_file()}
    grown = add(small, ("red", "pink")).run
    for old, new in zip(planted.run.rows, grown.rows, strict=False):
        for what in ("file_name", "class_name", "known", "confidence", "label", "x", "y"):
            assert getattr(old, what) == getattr(new, what)
    np.testing.assert_array_equal(grown.features[: len(planted.run.rows)], planted.run.features)
    assert before == {p.name: p.read_bytes() for p in planted.folder.iterdir() if p.is_file()}


def test_images_that_fit_nowhere_open_one_class_with_an_unused_number(small, planted):
    grown = add(small, ("pink",)).run
    assert [c.name for c in grown.classes][:4] == [c.name for c in planted.run.classes]
    assert (grown.classes[4].name, grown.classes[4].known) == ("novel_002", False)
    assert grown.classes[4].id == 4
    assert kind_of(grown, "pink") == "novel_002"
    assert grown.next_id == 5
    assert sum(row.outlier for row in grown.rows if "pink" in row.file_name) <= 1


def test_two_images_that_fit_nowhere_are_outliers_and_no_class(small, planted):
    grown = add(small, ("pink",), n=2).run
    assert len(grown.classes) == 4
    assert all(row.outlier for row in grown.rows if "pink" in row.file_name)


def test_copies_of_one_image_are_no_class(small, planted):
    new = photos(small / "new", ("pink",), n=1)
    for copy in "abc":
        shutil.copyfile(next(new.glob("pink-*.png")), new / f"pink-{copy}.png")
    grown = update(
        small / "run", new, small / "grown", features=vectors(new, small / "n.npy", seed=1)
    )
    assert len(grown.run.classes) == 4


def test_a_second_update_goes_on_where_the_first_ended(small, planted):
    add(small, ("pink",))
    again = add(small, ("teal", "pink"), run="grown", out="again", name="more", first=600).run
    assert kind_of(again, "pink") == "novel_002"
    assert kind_of(again, "teal") == "novel_003"
    assert [c.id for c in again.classes] == [0, 1, 2, 3, 4, 5]
    assert {row.file_name.partition("/")[0] for row in again.rows[-8:]} == {"added-2"}
    assert again.image(len(again.rows) - 1).size == (16, 16)
    assert again.file_of(len(again.rows) - 1).parent == small / "more"


def test_labels_hold_images_in_old_classes_and_open_known_ones(small, planted):
    blue = kind_of(planted.run, "blue")
    photos(small / "new", ("red",), n=3, label=blue)
    photos(small / "new", ("pink",), n=2, label="pig")
    photos(small / "new", ("pink",), n=3, first=700, label="_unlabeled")
    grown = grow(small).run
    held = [row for row in grown.rows if f"/{blue}/" in row.file_name]
    assert [(r.class_name, r.label, r.labeled, r.known) for r in held] == [
        (blue, blue, True, False)
    ] * 3
    assert kind_of(grown, "pink") == "pig"
    assert [(c.name, c.known) for c in grown.classes][:3] == [
        ("green", True),
        ("red", True),
        ("pig", True),
    ]
    ids = {c.name: c.id for c in grown.classes}
    assert ids == {c.name: c.id for c in planted.run.classes} | {"pig": 4}
    assert {c.name: c.labeled for c in grown.classes}["pig"] == 2


def test_corrections_are_kept(small, planted):
    blue, gray = (kind_of(planted.run, kind) for kind in ("blue", "gray"))
    lone = next(row.file_name for row in planted.run.rows if "gray" in row.file_name)
    for edit in (
        {"kind": "rename", "class": blue, "to": "heron"},
        {"kind": "rename", "class": "red", "to": "scarlet"},
        {"kind": "move", "files": [lone], "to": "heron"},
    ):
        append_edit(edits_path(planted.folder), edit)
    photos(small / "new", ("blue",), n=2)
    photos(small / "new", ("blue",), n=2, first=700, label="heron")
    photos(small / "new", ("red",), n=2, label="red")
    grown = grow(small).run
    assert {c.name for c in grown.classes} == {"green", "scarlet", "heron", gray}
    assert kind_of(grown, "blue") == "heron"
    assert kind_of(grown, "red") == "scarlet"
    assert sorted_as(grown)[lone] == "heron"
    assert json.loads((small / "grown/constraints.json").read_text())["confirmed"] == {
        lone: "heron"
    }


def test_a_label_means_the_class_that_has_this_name_now(small, planted):
    """Not the one that had it before."""
    blue = kind_of(planted.run, "blue")
    for old, new in (("red", "scarlet"), (blue, "red")):
        append_edit(edits_path(planted.folder), {"kind": "rename", "class": old, "to": new})
    photos(small / "new", ("blue",), n=2, label="red")
    assert kind_of(grow(small).run, "blue") == "red"


def test_the_number_of_a_merged_class_is_not_given_again(small, planted):
    merge = {"kind": "merge", "classes": ["novel_000", "novel_001"], "to": "novel_000"}
    append_edit(edits_path(planted.folder), merge)
    assert add(small, ("red",)).run.next_id == 4


def test_a_class_that_was_opened_and_emptied_again_is_gone(small, planted):
    lone = next(row for row in planted.run.rows if "gray" in row.file_name)
    for to in ("passing", lone.class_name):
        edit = {"kind": "move", "files": [lone.file_name], "to": to}
        append_edit(edits_path(planted.folder), edit)
    grown = add(small, ("red",)).run
    assert [c.name for c in grown.classes] == [c.name for c in planted.run.classes]
    assert grown.next_id == 5  # its id stays used


def test_a_finer_cut_of_the_grown_run_leaves_confirmed_images_in_their_class(small, planted):
    lone = next(row.file_name for row in planted.run.rows if "gray" in row.file_name)
    append_edit(edits_path(planted.folder), {"kind": "move", "files": [lone], "to": "red"})
    add(small, ("red",))
    for n_classes in (5, 6, 8):
        finer = recut(small / "grown", small / f"{n_classes}", classes=n_classes).run
        assert sorted_as(finer)[lone] == "red"


def test_the_grown_runs_model_is_as_sure_as_its_table(small, planted):
    grown = add(small, ("red", "blue", "pink")).run
    told = predict(small / "grown", small / "new", features=small / "new.npy")
    new = grown.rows[-len(told) :]
    assert [row["class"] for row in told] == [row.class_name for row in new]
    np.testing.assert_allclose(
        [row["confidence"] for row in told], [row.confidence for row in new], atol=1e-5
    )


def test_a_new_image_lies_in_the_middle_of_those_that_look_like_it(planted):
    xy = {row.file_name: (row.x, row.y) for row in planted.run.rows}
    own = torch.eye(len(xy))
    new = torch.zeros(1, len(xy))
    new[0, :3] = 1.0
    placed = map_positions(planted.run, own, new)
    np.testing.assert_allclose(placed[:-1], list(xy.values()))
    np.testing.assert_allclose(placed[-1], np.mean(list(xy.values())[:3], axis=0), rtol=1e-6)


def test_a_folder_named_like_an_addition_is_not_taken_for_one(planted):
    taken = dataclasses.replace(planted.run.rows[0], file_name="added-1/photo.png")
    run = dataclasses.replace(planted.run, rows=(taken, *planted.run.rows[1:]))
    assert with_source(run, "new", None, None)[1] == "added-2"


def test_a_copy_of_an_image_of_the_run_is_a_duplicate(small, planted):
    new = photos(small / "new", ("green",), n=1)
    shutil.copyfile(planted.run.root / "red/red-00.png", new / "red-copy.png")
    update(small / "run", new, small / "grown", features=vectors(new, small / "n.npy"))
    listed = json.loads((small / "grown/duplicates.json").read_text())
    assert {"kind": "exact", "files": ["red/red-00.png", "added-1/red-copy.png"]} in listed


def test_the_grown_run_can_be_exported_cut_and_used(small, planted):
    add(small, ("pink",))
    done = bacon("export", small / "grown", "--to", small / "sorted")
    assert done.exit_code == 0, (done.output, done.exception)
    assert len(list((small / "sorted").rglob("*.png"))) == 36
    assert {p.name[:4] for p in (small / "sorted/novel_002").iterdir()} == {"pink"}
    inside = bacon("export", small / "grown", "--to", small / "new/sorted")
    assert "inside the images' own folder" in str(inside.exception)
    finer = recut(small / "grown", small / "finer", classes=6)
    assert len(finer.run.classes) == 6
    more = photos(small / "more", ("pink", "red", "teal"), n=2, first=800)
    told = predict(small / "grown", more, features=vectors(more, small / "m.npy", seed=2))
    assert {(row["file_name"][:4], row["class"], row["outlier"]) for row in told} >= {
        ("pink", "novel_002", False),
        ("red-", "red", False),
    }
    assert all(row["outlier"] for row in told if "teal" in row["file_name"])


def test_the_grown_run_learns_from_corrections_of_old_and_new_images(small, planted):
    add(small, ["pink", "red"])
    run = DiscoverRun.load(small / "grown")
    new = [row.file_name for row in run.rows if row.file_name.startswith("added-1/pink")]
    old = next(row.file_name for row in run.rows if not row.labeled)
    edits = edits_path(run.folder)
    append_edit(edits, {"kind": "rename", "class": run.rows[-1].class_name, "to": "mine"})
    append_edit(edits, {"kind": "move", "files": [new[0], old], "to": "flamingo"})
    learned = refit(run.folder, small / "learned").run
    place = sorted_as(learned)
    assert set(place) == {row.file_name for row in run.rows}
    assert place[new[0]] == place[old] == "flamingo"
    assert "mine" in {each.name for each in learned.classes}


def test_two_updates_give_the_same_bytes(small, planted):
    add(small, ("pink", "teal", "red"))
    update(small / "run", small / "new", small / "other", features=small / "new.npy")
    for file in ("predictions.csv", "classes.json", "features.npy", "duplicates.json"):
        assert (small / "grown" / file).read_bytes() == (small / "other" / file).read_bytes()


@pytest.mark.parametrize(
    ("n_bad", "said"), [(0, "there are no images in it"), (2, "no readable image (2 bad")]
)
def test_nothing_to_add_is_one_line_and_leaves_nothing(small, planted, n_bad, said):
    (small / "new").mkdir()
    for i in range(n_bad):
        (small / f"new/{i}.png").write_bytes(b"no image")
    done = bacon("update", small / "run", small / "new", "-o", small / "grown")
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (small / "grown").exists()


def test_vectors_must_be_given_and_fit(small, planted):
    new = photos(small / "new", ("red",), n=2)
    np.save(small / "wide.npy", np.zeros((2, 9), dtype=np.float32))
    with pytest.raises(UserError, match="made from ready vectors"):
        update(small / "run", new, small / "grown")
    with pytest.raises(UserError, match="vectors of 9 values; the run has 8"):
        predict(small / "run", new, features=small / "wide.npy")


class StoppedError(Exception):
    pass


def stop(*_, **__):
    raise StoppedError


@pytest.mark.parametrize("command", ["update", "predict"])
def test_the_device_is_said_before_the_work_and_after_the_input_was_checked(
    small, planted, monkeypatch, command
):
    told, new = [], photos(small / "new", ("red",), n=2)
    call = partial(update, out=small / "grown") if command == "update" else predict
    with pytest.raises(UserError):
        call(small / "run", new, tell=told.append)  # without vectors
    assert told == []
    monkeypatch.setattr(Model, "features", stop)
    monkeypatch.setattr(Model, "answer", stop)
    ready = vectors(new, small / "new.npy", seed=1)
    with pytest.raises(StoppedError):
        call(small / "run", new, features=ready, device="cpu", tell=told.append)
    assert told == [device_line(torch.device("cpu"))]


def test_real_images_are_added_by_the_command(small, real_page):
    plant(small / "photos", known=("red",), novel=("blue",))
    bacon_gcd.discover(small / "photos", small / "run", effort="quick", classes=2)
    photos(small / "new", ("red", "blue"), n=2)
    done = bacon("update", small / "run", small / "new", "-o", small / "grown", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)["images"] == 20
    grown = DiscoverRun.load(small / "grown")
    told = {row["file_name"]: row for row in predict(small / "grown", small / "new")}
    for row in grown.rows[-4:]:
        assert told[row.file_name.removeprefix("added-1/")]["class"] == row.class_name
    assert "</html>" in (small / "grown/report.html").read_text()


def test_a_run_whose_images_changed_is_not_added_to(small, planted):
    gone = planted.run.file_of(0)
    gone.rename(small / "away.png")
    with pytest.raises(UserError, match="not those of"):
        add(small, ("red",))
    (small / "away.png").rename(gone)
    assert not (small / "grown").exists()


def test_predict_says_outlier_in_every_form_and_uses_the_names_of_corrections(small, planted):
    blue, gray = (kind_of(planted.run, kind) for kind in ("blue", "gray"))
    append_edit(edits_path(planted.folder), {"kind": "rename", "class": blue, "to": "heron"})
    append_edit(edits_path(planted.folder), {"kind": "merge", "classes": [gray, "red"], "to": "b"})
    new = photos(small / "new", ("blue", "gray", "pink"), n=1)
    ready = ("--features", vectors(new, small / "n.npy", seed=1))
    told = json.loads(bacon("predict", small / "run", new, *ready, "--json").stdout)
    rows = {row["file_name"].split("-")[0]: row for row in told["predictions"]}
    assert {k: (r["class"], r["known"], r["outlier"]) for k, r in rows.items() if k != "pink"} == {
        "blue": ("heron", False, False),
        "gray": ("b", True, False),
    }
    assert rows["pink"]["outlier"]
    text = bacon("predict", small / "run", new, *ready).stdout.splitlines()
    assert [line.endswith("  outlier") for line in text] == [False, False, True]
    assert bacon("predict", small / "run", new, *ready, "-o", small / "n.csv").exit_code == 0
    with (small / "n.csv").open() as file:
        assert [row["outlier"] for row in csv.DictReader(file)] == ["false", "false", "true"]


def test_a_model_without_sorter_and_radii_says_nothing_of_outliers(small, planted):
    path = planted.folder / "model/model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sorter": None}))
    new = photos(small / "new", ("pink",), n=1)
    ready = vectors(new, small / "n.npy")
    (told,) = predict(small / "run", new, features=ready)
    assert (told["outlier"], told["outlier_score"]) == (None, None)
    bacon("predict", small / "run", new, "--features", ready, "-o", small / "n.csv")
    with (small / "n.csv").open() as file:
        assert [(row["outlier"], row["outlier_score"]) for row in csv.DictReader(file)] == [
            ("", "")
        ]


def test_the_runs_own_images_are_predicted_into_their_classes(small, planted):
    """By the evidence, as they were sorted: also with the same outliers."""
    told = predict(small / "run", planted.run.root, features=planted.run.config["features"])
    assert [row["class"] for row in told] == [row.class_name for row in planted.run.rows]
    assert [row["outlier"] for row in told] == [row.outlier for row in planted.run.rows]
    free = [n for n, row in enumerate(planted.run.rows) if not row.labeled]
    now = np.mean([told[n]["confidence"] for n in free])
    was = np.mean([planted.run.rows[n].confidence for n in free])
    assert now == pytest.approx(was, abs=0.1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("counts"), "counts"),
        (lambda tensors: tensors.update(sums=torch.zeros(3, 3)), "sums has shape"),
        (lambda tensors: tensors["mean"].fill_(torch.nan), "not finite"),
    ],
)
def test_a_damaged_sorter_is_one_line(small, planted, change, says):
    path, facts = (planted.folder / "model" / n for n in ("sorter.safetensors", "model.json"))
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(UserError, match="missing or damaged"):
        load_model(planted.folder / "model")
    stored = json.loads(facts.read_text())
    stored["sorter"]["sha256"] = sha256_of(path)
    facts.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=says):
        load_model(planted.folder / "model")


@pytest.mark.parametrize("temperature", [0, -1, 10**7, 10**30])
def test_a_temperature_that_no_sorter_has_is_one_line(planted, temperature):
    path = planted.folder / "model/model.json"
    stored = json.loads(path.read_text())
    stored["sorter"]["temperature"] = temperature
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"sorter\.temperature"):
        load_model(planted.folder / "model")


def test_a_models_threshold_decides_known_or_novel(small, planted):
    path = planted.folder / "model/model.json"
    new = photos(small / "new", ("pink", "blue"), n=1)
    ready = vectors(new, small / "n.npy")
    sides = {}
    for threshold in (0.0, 1.0):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"threshold": threshold}))
        sides[threshold] = [row["known"] for row in predict(small / "run", new, features=ready)]
    assert sides == {0.0: [True, True], 1.0: [False, False]}
