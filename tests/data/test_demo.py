"""The embedded images are the promised ones, and become a folder that hides what it should."""

import csv
import hashlib
import json
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from bacon_gcd.config import UserError
from bacon_gcd.data import demo
from bacon_gcd.data.datasets import CIFAR10_RANKS
from bacon_gcd.data.images import read_folder
from bacon_gcd.data.longtail import class_totals, long_tail_counts


@pytest.fixture(scope="module")
def table():
    return demo.load()


@pytest.fixture(scope="module")
def split(table):
    return demo.load_split(table)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return demo.write_folder(tmp_path_factory.mktemp("demo") / "photos")


def test_the_whole_set_stays_below_four_megabytes():
    assert sum(file.stat().st_size for file in demo.FOLDER.iterdir() if file.is_file()) < 4_000_000


def test_the_pixels_are_the_ones_that_were_built(table):
    index = json.loads((demo.FOLDER / "index.json").read_text())
    for part in demo.PARTS:
        pixels = np.stack([np.asarray(table.image(row)) for row in table.rows(part)])
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == index[part]["pixels_sha256"]


def test_class_sizes_follow_the_profile_of_the_paper(table, split):
    expected = class_totals(long_tail_counts(420, 10, 20), CIFAR10_RANKS)
    assert split.train_counts(table).tolist() == expected
    assert np.bincount(table.labels[split.test]).tolist() == [100] * 10


def test_half_of_every_known_class_is_labeled_and_nothing_of_the_novel_ones(table, split):
    labeled = np.bincount(table.labels[split.labeled], minlength=10)
    hidden = np.bincount(table.labels[split.unlabeled_known], minlength=10)
    assert split.n_known == 5
    assert (labeled[:5] - hidden[:5]).tolist() == [n % 2 for n in (labeled + hidden)[:5]]
    assert labeled[5:].sum() == hidden[5:].sum() == 0
    assert set(table.labels[split.unlabeled_novel]) == {5, 6, 7, 8, 9}


def test_every_training_image_is_in_exactly_one_part(table, split):
    assert sorted(split.train) == table.rows("train").tolist()


def test_no_image_is_there_twice(table):
    assert len(set(table.contents)) == len(table)


def test_a_damaged_mosaic_is_named(monkeypatch, tmp_path):
    for file in demo.FOLDER.glob("*.*"):
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "test.webp").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"test\.webp: damaged"):
        demo.load()


def test_the_folder_reads_back_as_the_labels_a_person_would_have(folder, table, split):
    read = read_folder(folder)
    assert len(read) == len(split.train)
    assert read.class_names == ("airplane", "automobile", "bird", "cat", "deer")
    assert np.bincount(read.labels + 1).tolist() == [926, 210, 20, 108, 11, 151]


def test_file_names_of_the_folder_tell_nothing_of_the_class(folder):
    names = sorted((folder / "_unlabeled").iterdir())
    with (folder / "truth.csv").open() as file:
        truth = {row["file_name"]: row["true_class"] for row in csv.DictReader(file)}
    classes = [truth[f"_unlabeled/{path.name}"] for path in names]
    neighbors_alike = np.mean([a == b for a, b in pairwise(classes)])
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    assert neighbors_alike == pytest.approx(float((shares**2).sum()), abs=0.05)
    assert all(path.stem.removeprefix("image_").isdigit() for path in names)


def test_the_truth_names_the_class_of_every_picture(folder, table, split):
    by_pixels = {np.asarray(table.image(r)).tobytes(): table.labels[r] for r in split.train}
    with (folder / "truth.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(split.train)
    for row in rows[::40]:
        label = by_pixels[np.asarray(Image.open(folder / row["file_name"])).tobytes()]
        assert row["true_class"] == table.class_names[label]
        assert row["kind"] == ("known" if label < 5 else "novel")


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match="not an empty folder"):
        demo.write_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
