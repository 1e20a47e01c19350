"""Links to the originals are relative, right and few; the page names no folder of the machine."""

import gzip
import json
import os
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bacon_gcd.data.images import read_images
from bacon_gcd.data.joined import file_of, join
from bacon_gcd.report import choices, columns, sprites
from bacon_gcd.report.contents import ClassInfo, ReportData, Rows
from bacon_gcd.report.links import WHOLE, link_columns
from bacon_gcd.report.page import render, write_report
from bacon_gcd.report.text import without_folders

from ..report_samples import picture, sample


def links(ids, files, folder):
    return link_columns(ids, range(len(ids)), dict(enumerate(files)).get, folder)


def test_one_folder_of_images_is_one_base(tmp_path):
    ids = ["a/1.jpg", "b/2.jpg", "3.jpg#1,2,3,4"]
    files = [tmp_path / "photos" / name for name in ("a/1.jpg", "b/2.jpg", "3.jpg")]
    found = links(ids, files, tmp_path / "runs" / "photos")
    assert found == {"bases": [["./../../photos/", 0]], "base": [0, 0, 0]}


def test_ids_under_another_name_skip_it(tmp_path):
    found = links(["added-1/x.jpg"], [tmp_path / "new folder" / "x.jpg"], tmp_path / "run")
    assert found["bases"] == [["./../new%20folder/", 1]]


@pytest.mark.parametrize("name", ["photo\u202egpj.exe", "broken\udcff.jpg", "../up.jpg"])
def test_names_that_are_not_shown_as_they_are_get_a_whole_link(tmp_path, name):
    (found,) = links([name], [tmp_path / "photos" / name], tmp_path / "run")["bases"]
    assert found[1] == WHOLE
    assert found[0].isascii()


def test_no_link_climbs_to_the_root_and_spells_the_machine(tmp_path):
    root = Path(tmp_path.anchor)
    found = links(["x.jpg"], [root / "elsewhere" / "x.jpg"], tmp_path / "run")
    assert found == {"bases": [], "base": [-1]}


def test_images_that_are_no_files_have_no_link(tmp_path):
    assert links(["x.jpg"], [None], tmp_path)["base"] == [-1]
    assert link_columns(["x.jpg"], [0], None, tmp_path) == {}


def test_the_file_of_a_row_is_found_in_every_kind_of_source(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    files = read_images(tmp_path)
    arrays = read_images(np.zeros((1, 4, 4, 3), np.uint8))
    both = join({"": files, "added-1": arrays})
    found = [file_of(both.source, row) for row in range(len(both))]
    assert found == [tmp_path / "a.png", tmp_path / "b.png", None]


def test_the_page_holds_no_absolute_path(tmp_path):
    data = sample(
        file=lambda row: tmp_path / "photos" / f"folder/image_{row}.png",
        settings={"source": str(tmp_path / "photos"), "inner": {"labels": f"{tmp_path}/l.csv"}},
        notes=[f"Images were added to {tmp_path}/run, which has 3 classes."],
        chosen=[f"Weights in '{tmp_path / 'my folder'}/w.safetensors' were used."],
        quarantine=[("bad.jpg", f"cannot open '{tmp_path}/photos/bad.jpg'")],
    )
    page = write_report(data, tmp_path / "run" / "report.html").read_text()
    assert str(tmp_path) not in page
    assert os.path.basename(tmp_path) not in page
    for kept in ("…/photos", "…/l.csv", "…/run", "…/w.safetensors", "…/bad.jpg"):
        assert kept in page
    assert "./../photos/" in page


def test_only_absolute_paths_are_cut():
    for text in ("50 km/h and 1/2", "see https://example.org/a/b", "runs/photos", "known / new"):
        assert without_folders(text) == text
    assert without_folders("C:\\Users\\me\\photos") == "…/photos"
    assert without_folders("in /data/sets/birds, twice") == "in …/birds, twice"


# Large runs


def large(n: int) -> ReportData:
    rng = np.random.default_rng(0)
    rows = Rows(
        [f"images/{rng.bytes(8).hex()}.jpg" for _ in range(n)],
        np.arange(n) % 2,
        np.zeros(n, bool),
        confidence=rng.random(n),
    )
    return ReportData("Large", rows, [ClassInfo("a", True), ClassInfo("b", False)], picture)


def test_names_beyond_the_budget_are_left_out_evenly_and_it_says_so(monkeypatch):
    data = large(400)
    shown = np.arange(50)
    every = choices.listed_rows(data, shown)
    assert sorted(every) == list(range(400))
    assert every[:50].tolist() == list(range(50))
    some = choices.listed_rows(data, shown, budget=1500)
    assert 50 < len(some) < 400
    assert abs(np.diff(np.bincount(data.rows.class_ids[some]))[0]) <= 2
    monkeypatch.setattr(choices.shown_rows, "__kwdefaults__", {"limit": 50})
    monkeypatch.setattr(choices.listed_rows, "__kwdefaults__", {"budget": 1500})
    page = render(replace(data, thumbnail=lambda row: Image.new("RGB", (8, 8))))
    assert f"This page names {len(some)} of 400 images" in page


def test_a_large_payload_is_compressed_and_reads_back(monkeypatch):
    monkeypatch.setattr(columns, "PLAIN", 100)
    value = {"ids": ["</script>", "é"] * 100}
    element = str(columns.script_element(value))
    packed = re.fullmatch(r'<script type="application/gzip" id="payload">(.*)</script>', element)
    assert json.loads(gzip.decompress(b64decode(packed.group(1)))) == value


def test_a_tile_is_no_larger_than_the_images():
    small = [Image.new("RGB", (32, 28))] * 4
    assert sprites.make_sprites(small.__getitem__, list(range(4))).tile == 32
