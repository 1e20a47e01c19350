import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from bacon_gcd.config import UserError, to_toml
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.folder import DiscoverRun, unused_names, write_predictions
from bacon_gcd.system.files import write_json
from bacon_gcd.system.tables import safe_cell
from tests.discover_samples import CLASSES, make_run, predictions


def test_what_is_written_is_read_again(tmp_path):
    run = DiscoverRun.load(make_run(tmp_path))
    assert run.rows == tuple(predictions())
    assert run.classes == CLASSES
    assert run.next_id == 4
    assert run.features.shape == (16, 8)


def test_the_csv_has_the_agreed_columns_and_joins_neighbors(tmp_path):
    path = make_run(tmp_path, images=False) / "predictions.csv"
    with path.open(newline="") as file:
        first = next(csv.DictReader(file))
    assert list(first) == [
        *("file_name", "class", "known", "confidence", "known_probability", "labeled", "label"),
        *("outlier", "suspected", "suggested", "x", "y", "neighbors"),
    ]
    assert first["file_name"] == "in/0_0.png"
    assert (first["known"], first["outlier"], first["neighbors"]) == ("true", "false", "in/0_1.png")


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_cell_that_begins_like_a_formula_is_escaped(text):
    assert safe_cell(text) == f"'{text}"


def test_numbers_and_plain_text_are_left_alone():
    assert [safe_cell(v) for v in (-1.5, "cat", "a=b", "")] == [-1.5, "cat", "a=b", ""]


def test_escaping_is_in_the_csv_and_not_in_what_is_read(tmp_path):
    rows = [
        replace(predictions()[0], file_name="=a.png", neighbors=("=b.png",)),
        replace(predictions()[0], file_name="=b.png"),
    ]
    folder = make_run(tmp_path, rows, images=False)
    assert "'=a.png" in (folder / "predictions.csv").read_text()
    assert "'=b.png" in (folder / "predictions.csv").read_text()
    assert DiscoverRun.load(folder).rows[0].file_name == "=a.png"


@pytest.mark.parametrize("name", ["predictions.parquet", "classes.json", "config.toml"])
def test_a_missing_file_is_one_line_that_names_it(tmp_path, name):
    folder = make_run(tmp_path, images=False)
    (folder / name).unlink()
    with pytest.raises(UserError, match=name) as caught:
        DiscoverRun.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["predictions.parquet", "classes.json", "config.toml"])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, name):
    folder = make_run(tmp_path, images=False)
    (folder / name).write_bytes(b"\x00{[")
    with pytest.raises(UserError, match=name) as caught:
        DiscoverRun.load(folder)
    assert "\n" not in str(caught.value)


def test_features_of_another_run_are_refused(tmp_path):
    folder = make_run(tmp_path, images=False)
    np.save(folder / "features.npy", np.zeros((3, 8), np.float32))
    with pytest.raises(UserError, match=r"features\.npy: has shape \(3, 8\)"):
        _ = DiscoverRun.load(folder).features


def test_a_class_of_the_predictions_that_is_not_listed_is_named(tmp_path):
    folder = make_run(tmp_path, images=False)
    stored = json.loads((folder / "classes.json").read_text())
    stored["classes"].pop()
    write_json(folder / "classes.json", stored)
    with pytest.raises(UserError, match="'novel_001' is not in it"):
        DiscoverRun.load(folder)


def test_names_of_new_classes_follow_their_ids_and_pass_over_taken_ones():
    assert unused_names(CLASSES, 4, 2) == ["novel_002", "novel_003"]
    assert unused_names(CLASSES, 4, 2, taken=["novel_002"]) == ["novel_003", "novel_004"]
    assert unused_names(CLASSES[:2], 2, 1) == ["novel_000"]
    assert unused_names([replace(CLASSES[0], name="novel_000")], 1, 2) == [
        "novel_001",
        "novel_002",
    ]


def test_the_first_unused_id_is_stored_and_never_below_an_id(tmp_path):
    folder = make_run(tmp_path, images=False, next_id=9)
    assert json.loads((folder / "classes.json").read_text())["next_id"] == 9
    assert DiscoverRun.load(folder).next_id == 9
    stored = json.loads((folder / "classes.json").read_text())
    write_json(folder / "classes.json", stored | {"next_id": 1})
    assert DiscoverRun.load(folder).next_id == 4


def test_two_rows_of_one_file_are_refused(tmp_path):
    folder = make_run(tmp_path, images=False)
    rows = predictions()
    write_predictions(folder, [rows[0], rows[0]], CLASSES, next_id=4)
    with pytest.raises(UserError, match="same file_name"):
        DiscoverRun.load(folder)


def test_an_image_is_opened_by_its_row(tmp_path):
    run = DiscoverRun.load(make_run(tmp_path))
    assert run.image(0).size == (12, 10)
    assert run.image(0).getpixel((0, 0)) != run.image(5).getpixel((0, 0))


def test_a_box_is_cut_out(tmp_path):
    rows = [replace(predictions()[0], file_name="a.png#1,2,3,4")]
    run = DiscoverRun.load(make_run(tmp_path, rows, images=False))
    Image.new("RGB", (20, 20)).save(run.root / "a.png")
    assert run.image(0).size == (3, 4)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "in/../../secret.png"])
def test_a_file_outside_the_source_folder_is_never_opened(tmp_path, name):
    folder = make_run(tmp_path, [replace(predictions()[0], file_name=name)], images=False)
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    (tmp_path / "source" / "in").mkdir()
    with pytest.raises(UserError, match="leads out of"):
        DiscoverRun.load(folder).image(0)


def test_images_behind_links_are_shown_as_discover_reads_them(tmp_path):
    names = ("linked.png", "far/a.png")
    rows = [replace(predictions()[0], file_name=name) for name in names]
    folder = make_run(tmp_path, rows, images=False)
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "source" / "linked.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "source" / "far").symlink_to(tmp_path / "elsewhere")
    run = DiscoverRun.load(folder)
    assert sorted(read_images(run.source).ids) == sorted(names)
    assert [run.image(row).size for row in (0, 1)] == [(4, 4), (4, 4)]


def test_images_in_an_npz_file_are_found_by_their_id(tmp_path):
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    np.savez(tmp_path / "data.npz", images=pixels)
    folder = make_run(tmp_path, [replace(predictions()[0], file_name="train/000001")], images=False)
    (folder / "config.toml").write_text(to_toml({"source": str(tmp_path / "data.npz")}))
    found = DiscoverRun.load(folder).image(0)
    assert np.array_equal(np.asarray(found), pixels[1])
