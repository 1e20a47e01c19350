"""Every format and every defect of images, and the three ways to name them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import pickle
import random
import shutil
import struct
import sys
import time
import zlib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bacon_gcd.config import UserError
from bacon_gcd.data import entries, pixels
from bacon_gcd.data.entries import describe_ignored, label_text, list_files, table_entries
from bacon_gcd.data.images import (
    ImageTable,
    from_arrays,
    read_files,
    read_folder,
    read_images,
    read_npz,
    read_table,
)

RED, BLUE = (250, 10, 20), (10, 20, 250)


def save(path: Path, color=RED, size=(8, 6), **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path, **options)
    return path


def near(image: Image.Image, at, color, tolerance=6) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(image.getpixel(at), color, strict=True))


def reasons(table: ImageTable) -> dict[str, str]:
    return dict(table.quarantine)


def write_table(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    root = tmp_path / "animals"
    for name in ("cat/1.jpg", "cat/young/2.png", "dog/1.JPEG", "_unlabeled/a/1.webp", "loose.bmp"):
        save(root / name, color=(len(name) * 9, 30, 60))
    (root / "dog" / "notes.txt").write_text("barks")
    (root / ".hidden.jpg").write_text("not read")
    save(root / ".cache" / "thumb.jpg")
    return root


# Folders


def test_first_folder_is_the_class_and_loose_or_reserved_images_are_unlabeled(animals):
    table = read_images(animals)
    names = ("_unlabeled/a/1.webp", "cat/1.jpg", "cat/young/2.png", "dog/1.JPEG", "loose.bmp")
    assert table.ids == names
    assert list_files(animals).files == list(names)
    assert table.class_names == ("cat", "dog")
    assert table.labels.tolist() == [-1, 0, 0, 1, -1]
    assert set(table.splits) == {"train"}
    assert (table.groups, table.quarantine) == (None, ())
    assert table.ignored == {".txt": 1, "hidden": 2}


def test_train_and_test_are_splits_and_never_classes(tmp_path):
    save(tmp_path / "train/cat/1.png")
    save(tmp_path / "test/1.png")
    table = read_folder(tmp_path)
    assert (table.class_names, table.labels.tolist()) == (("cat",), [-1, 0])
    assert table.remarks == ("test/, train/ taken for splits; classes are the folders inside",)
    save(tmp_path / "test/dog/1.png")
    save(tmp_path / "train/_unlabeled/1.png")
    save(tmp_path / "_unlabeled/2.png")
    table = read_folder(tmp_path)
    assert table.class_names == ("cat", "dog")
    assert [table.ids[row] for row in table.rows("test")] == ["test/1.png", "test/dog/1.png"]
    assert table.labels.tolist() == [-1, -1, 1, -1, 0]
    with pytest.raises(UserError, match="split 'val' is not known; choose from train, test"):
        table.rows("val")


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (["train"], ["train"]),
        (["test", "train", "val"], ["test", "train", "train"]),
        (["Train", "validation"], ["train", "test"]),
        (["TESTING", "Training", "valid"], ["test", "train", "train"]),
    ],
)
def test_splits_have_many_names_and_val_is_the_test_split_where_there_is_no_other(
    tmp_path, folders, splits
):
    for folder in folders:
        save(tmp_path / folder / "cat" / "1.png")
    table = read_folder(tmp_path)
    assert (table.class_names, list(table.splits)) == (("cat",), splits)


def test_a_class_may_be_called_train(tmp_path):
    for name in ("train/1.png", "car/1.png", "train/steam/2.png"):
        save(tmp_path / name)
    table = read_folder(tmp_path)
    assert table.class_names == ("car", "train")
    assert not any("taken for splits" in line for line in table.remarks)


def test_a_class_beside_splits_is_refused(tmp_path):
    for name in ("train/cat/1.png", "test/cat/1.png", "dog/1.png"):
        save(tmp_path / name)
    with pytest.raises(UserError, match=r"test/, train/ hold class folders, so dog/ beside them"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["Unlabeled", "UNLABELED", "_Unlabeled", "unlabelled"])
def test_the_folder_of_unlabeled_images_has_any_capitalisation(tmp_path, name):
    save(tmp_path / "cat/1.png")
    save(tmp_path / name / "2.png")
    table = read_folder(tmp_path)
    assert table.class_names == ("cat",)
    assert sorted(table.labels.tolist()) == [-1, 0]


def test_class_names_that_differ_only_in_case_or_blanks_are_warned_about(tmp_path):
    for name in ("Cat", "cat", "grey heron", "greyheron", "dog"):
        save(tmp_path / name / "1.png")
    assert read_folder(tmp_path).remarks == (
        "classes 'Cat', 'cat' differ only in case or blanks; they are different classes here",
        "classes 'grey heron', 'greyheron' differ only in case or blanks;"
        " they are different classes here",
    )


def test_every_file_of_a_folder_is_counted_once(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "heif_problem", lambda: "pip install 'bacon-gcd[heif]' reads them")
    for number in range(3):
        save(tmp_path / f"cat/{number}.jpg")
        Image.new("RGB", (8, 6), RED).save(tmp_path / f"{number}.jfif", format="JPEG")
        (tmp_path / f"{number}.HEIC").write_bytes(b"heic")
    (tmp_path / "broken.png").write_bytes(b"png")
    (tmp_path / "README").touch()
    (tmp_path / ".DS_Store").touch()
    save(tmp_path / "cat/.thumbnails/0.jpg")  # a hidden folder counts as one
    table = read_folder(tmp_path)
    assert table.ignored == {".heic": 3, "without extension": 1, "hidden": 2}
    n_files = sum(path.is_file() for path in tmp_path.rglob("*"))
    assert len(table) + len(table.quarantine) + sum(table.ignored.values()) == n_files
    assert table.summary() == (
        "6 images, 3 with a label; 1 unreadable, 6 other files ignored: 3 .heic"
        " (pip install 'bacon-gcd[heif]' reads them), 2 hidden, 1 without extension"
    )
    assert table.take([0]).ignored == table.ignored


def test_other_kinds_of_images_are_listed_with_what_to_do():
    listed = describe_ignored({".cr2": 2, ".txt": 1})
    assert listed == "2 .cr2 (not read; convert them to JPEG or PNG), 1 .txt"


def test_heic_is_read_where_its_decoder_is_installed(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(Image.new("RGB", (64, 48), RED)).save(tmp_path / "a.heic")
    table = read_folder(tmp_path)
    assert table.ids == ("a.heic",)
    assert near(table.image(0), (9, 9), RED, tolerance=12)


@pytest.mark.parametrize("error", ["ImportError", "OSError", "AttributeError"])
def test_a_decoder_of_heic_that_does_not_load_is_told_and_the_rest_is_read(
    tmp_path, monkeypatch, error
):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/pillow_heif.py").write_text(f"raise {error}('libheif.so.1: missing')")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.delitem(sys.modules, "pillow_heif", raising=False)
    save(tmp_path / "in/a.png")
    (tmp_path / "in/b.heic").write_bytes(b"heic")
    try:
        pixels.heif_problem.cache_clear()
        pixels.formats.cache_clear()
        table = read_folder(tmp_path / "in")
    finally:
        pixels.heif_problem.cache_clear()
        pixels.formats.cache_clear()
    assert table.summary() == (
        "1 images, 0 with a label; 0 unreadable, 1 other files ignored: 1 .heic"
        " (not read: pillow_heif is installed, but does not load: libheif.so.1: missing)"
    )


def test_order_and_fingerprint_do_not_depend_on_the_file_system(animals, monkeypatch):
    before = read_folder(animals)
    listed, shuffle = os.scandir, random.Random(3).shuffle

    class Shuffled:
        def __init__(self, path):
            with listed(path) as scan:
                self.entries = list(scan)
            shuffle(self.entries)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(os, "scandir", Shuffled)
    for _ in range(5):
        after = read_folder(animals, threads=3)
        assert (after.ids, after.fingerprint) == (before.ids, before.fingerprint)


def test_fingerprint_follows_bytes_and_labels_but_not_the_folder(animals, tmp_path):
    before = read_folder(animals)
    moved = animals.rename(tmp_path / "elsewhere")
    assert read_folder(moved).fingerprint == before.fingerprint
    (moved / "dog").rename(moved / "wolf")
    relabeled = write_table(tmp_path / "l.csv", [{"file_name": "cat/1.jpg", "label": "dog"}])
    one, other = read_folder(moved), read_folder(moved, relabeled)
    assert len({before.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert one.contents_fingerprint == other.contents_fingerprint != before.contents_fingerprint
    with (moved / "cat/1.jpg").open("ab") as file:
        file.write(b"\0")  # behind the end of the picture: still sound, but another file
    assert read_folder(moved).fingerprint != one.fingerprint


def test_each_column_has_a_part_in_the_fingerprint():
    images = np.zeros((3, 2, 2), np.uint8)
    tables = [
        from_arrays(images, [0, 1, 1], ["a", "b"]),
        from_arrays(images, [0, 0, 1], ["a", "b"]),
        from_arrays(images, [0, 1, 1], ["a", "c"]),
        from_arrays(images, [0, 1, 1], ["a", "b"], splits=["train", "train", "test"]),
        from_arrays(images + np.uint8(1), [0, 1, 1], ["a", "b"]),
        from_arrays(images.reshape(3, 1, 4), [0, 1, 1], ["a", "b"]),
    ]
    grouped = dataclasses.replace(tables[0], groups=("x", "x", "y"))
    assert len({table.fingerprint for table in [*tables, grouped]}) == 7
    assert from_arrays(images, [0, 1, 1], ["a", "b"]).fingerprint == tables[0].fingerprint


def test_names_of_every_kind_are_ids(tmp_path):
    names = ["kätze/ß 1.png", "kätze/new\nline.png", "kätze/" + "x" * 240 + ".png", "日本/#1,2.png"]
    for name in names:
        save(tmp_path / name)
    (tmp_path / "kätze" / os.fsdecode(b"caf\xe9.png")).write_bytes(
        (tmp_path / names[0]).read_bytes()
    )
    table = read_folder(tmp_path)
    assert table.ids == tuple(sorted([*names, "kätze/caf\\udce9.png"]))
    assert all(table.image(row).size == (8, 6) for row in range(len(table)))
    assert "".join(table.ids).encode()
    assert table.fingerprint


def test_folder_links_are_followed_once_and_loops_end(tmp_path):
    root = tmp_path / "root"
    save(root / "zebra/1.png")
    save(tmp_path / "far/2.png")
    (root / "cat").symlink_to(tmp_path / "far")  # a class kept elsewhere
    (root / "alias").symlink_to(root / "zebra")  # sorts before the folder, must not replace it
    (root / "zebra/loop").symlink_to(root)
    (root / "zebra/out").symlink_to(tmp_path)
    (root / "gone").symlink_to(tmp_path / "nowhere")
    table = read_folder(root)
    assert table.ids == ("cat/2.png", "zebra/1.png")
    already = "link to a folder that is read already, or above"
    assert reasons(table) == {
        "alias": already,
        "gone": "broken link",
        "zebra/loop": already,
        "zebra/out": already,
    }


def test_folders_that_link_to_each_other_are_each_read_once(tmp_path, monkeypatch):
    names = [f"class_{number:02d}" for number in range(12)]
    for name in names:
        save(tmp_path / name / "1.png")
        for other in names:
            (tmp_path / name / f"to_{other}").symlink_to(tmp_path / other)
    monkeypatch.setattr(os, "scandir", Mock(side_effect=os.scandir))
    assert list_files(tmp_path).files == [f"{name}/1.png" for name in names]
    assert os.scandir.call_count <= 1 + 12 + 12 * 12  # not the 12! ways through the links


# Pixels


def test_every_format_is_read(tmp_path):
    for suffix in ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "PNG"):
        save(tmp_path / f"{suffix}.{suffix}")
    table = read_folder(tmp_path)
    assert len(table) == 9
    for row in range(9):
        image = table.image(row)
        assert (image.mode, image.size) == ("RGB", (8, 6))
        assert near(image, (4, 3), RED)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize(
    ("orientation", "corner"),
    [(1, "top left"), (2, "top right"), (3, "bottom right"), (4, "bottom left"),
     (5, "top left"), (6, "top right"), (7, "bottom right"), (8, "bottom left")],
)  # fmt: skip
def test_exif_rotation_moves_the_pixels(tmp_path, suffix, orientation, corner):
    stored = Image.new("RGB", (48, 32), BLUE)
    stored.paste(RED, (0, 0, 16, 16))  # the stored top left corner
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    image = read_folder(tmp_path).image(0)
    assert image.size == ((48, 32) if orientation < 5 else (32, 48))
    for y, vertical in ((4, "top"), (image.height - 5, "bottom")):
        for x, horizontal in ((4, "left"), (image.width - 5, "right")):
            expected = RED if f"{vertical} {horizontal}" == corner else BLUE
            assert near(image, (x, y), expected, tolerance=40)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_does_not_cost_the_image(tmp_path):
    save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert read_folder(tmp_path).image(0).size == (8, 6)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, suffix):
    Image.fromarray(np.array([[0, 256, 32768, 65535]], np.uint16)).save(tmp_path / f"a.{suffix}")
    image = read_folder(tmp_path).image(0)
    assert [image.getpixel((x, 0)) for x in range(4)] == [(v, v, v) for v in (0, 1, 128, 255)]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_images_without_a_defined_white_are_stretched(tmp_path, dtype):
    Image.fromarray(np.array([[-1000, 0, 1000]], dtype)).save(tmp_path / "a.tif")
    Image.fromarray(np.full((1, 3), 7, dtype)).save(tmp_path / "flat.tif")
    table = read_folder(tmp_path)
    assert np.asarray(table.image(0))[0, :, 0].tolist() == [0, 128, 255]
    assert np.asarray(table.image(1)).max() == 0


def test_cmyk_grey_and_bilevel_become_rgb(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "cmyk.jpg", quality=100)
    Image.new("L", (8, 8), 77).save(tmp_path / "grey.png")
    Image.new("1", (8, 8), 1).save(tmp_path / "one.png")
    table = read_folder(tmp_path)
    assert near(table.image(0), (4, 4), (255, 0, 0), tolerance=12)
    assert table.image(1).getpixel((4, 4)) == (77, 77, 77)
    assert table.image(2).getpixel((4, 4)) == (255, 255, 255)


def test_transparency_is_laid_on_white(tmp_path):
    Image.new("RGBA", (4, 4), (0, 0, 200, 0)).save(tmp_path / "rgba.png")
    Image.new("LA", (4, 4), (0, 127)).save(tmp_path / "la.png")
    Image.new("RGB", (4, 4), RED).save(tmp_path / "key.png", transparency=RED)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([*BLUE, *RED, *BLUE])
    palette.putpixel((0, 0), 2)
    palette.save(tmp_path / "palette.png", transparency=1)
    found = {
        table.ids[row]: table.image(row) for table in [read_folder(tmp_path)] for row in range(4)
    }
    white = (255, 255, 255)
    assert found["rgba.png"].getpixel((1, 1)) == found["key.png"].getpixel((1, 1)) == white
    assert found["la.png"].getpixel((1, 1)) == (128, 128, 128)
    assert found["palette.png"].getpixel((1, 1)) == white
    assert found["palette.png"].getpixel((0, 0)) == BLUE


@pytest.mark.parametrize("suffix", ["gif", "tif", "webp"])
def test_first_frame_of_many_is_the_image(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, BLUE, BLUE)]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    assert near(read_folder(tmp_path).image(0), (4, 4), RED, tolerance=12)


def test_extreme_shapes_are_images(tmp_path):
    save(tmp_path / "dot.png", size=(1, 1))
    save(tmp_path / "wire.png", size=(2, 20000))
    table = read_folder(tmp_path)
    assert [table.image(row).size for row in range(2)] == [(1, 1), (2, 20000)]


# Quarantine


def bomb(side: int) -> bytes:
    """A PNG of a few bytes whose header promises side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def test_every_defect_is_quarantined_with_its_reason_and_the_run_goes_on(tmp_path, recwarn):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    for suffix in ("jpg", "png", "webp", "bmp", "gif", "tif"):
        noise.save(tmp_path / f"half.{suffix}")
        whole = (tmp_path / f"half.{suffix}").read_bytes()
        (tmp_path / f"half.{suffix}").write_bytes(whole[: len(whole) // 2])
    save(tmp_path / "good.png")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("this is not a picture" * 50)
    (tmp_path / "bomb.png").write_bytes(bomb(60000))
    (tmp_path / "grenade.png").write_bytes(bomb(10000))  # where Pillow only warns
    (tmp_path / "broken.png").symlink_to("nowhere.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "link.png").symlink_to("good.png")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    table = read_folder(tmp_path)
    assert table.ids == ("good.png", "link.png")
    found = reasons(table)
    halves = {name: found.pop(name) for name in sorted(found) if name.startswith("half")}
    assert len(halves) == 6
    assert halves["half.jpg"] == halves["half.png"] == "truncated"
    assert not any(str(tmp_path) in reason for reason in halves.values())
    assert found == {
        "bomb.png": "larger than 89 megapixels",
        "broken.png": "broken link",
        "empty.jpg": "zero bytes",
        "folder.jpg": "a folder named like an image: rename it to have it read",
        "grenade.png": "larger than 89 megapixels",
        "loop.png": "looping link",
        "pipe.jpg": "not a regular file",
        "text.jpg": f"not an image ({', '.join(pixels.formats())})",
    }
    assert not recwarn.list


def progressive_jpeg(n_scans: int) -> bytes:
    """A JPEG whose last scan is there `n_scans` times more."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64), RED).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * n_scans + data[-2:]


def test_a_progressive_jpeg_may_not_scan_its_pixels_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "MAX_SCANNED", 20 * 64 * 64)
    (tmp_path / "good.jpg").write_bytes(progressive_jpeg(0))
    (tmp_path / "slow.jpg").write_bytes(progressive_jpeg(500))
    table = read_folder(tmp_path)
    assert table.ids == ("good.jpg",)
    assert reasons(table)["slow.jpg"].startswith("a progressive JPEG of 51")


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    save(tmp_path / "good.png")
    (tmp_path / "large.png").write_bytes(bytes(2000))
    monkeypatch.setattr(pixels, "MAX_FILE_BYTES", 1000)
    assert reasons(read_folder(tmp_path)) == {"large.png": "larger than 0 GB"}


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "F", "LA", "P"])
def test_strips_give_the_same_pixels_as_the_whole_image(monkeypatch, mode):
    values = np.random.default_rng(0).integers(0, 256, (37, 11, 4), np.uint8)
    image = Image.fromarray(values).convert(mode if mode in ("RGBA", "LA", "P") else "RGBA")
    if mode == "I;16":
        image = Image.fromarray(values[..., 0].astype(np.uint16) * 250)
    if mode == "F":
        image = Image.fromarray(values[..., 0].astype(np.float32) - 3.5)
    whole = np.asarray(pixels.to_rgb(image))
    monkeypatch.setattr(pixels, "STRIP_ROWS", 5)
    assert np.array_equal(np.asarray(pixels.to_rgb(image)), whole)


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "LARGE_PIXELS", 10)
    inside, most = [], []

    def watched(image):
        inside.append(image)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return image.convert("RGB")

    monkeypatch.setattr(pixels, "to_rgb", watched)
    monkeypatch.setattr(pixels, "FILES_PER_TASK", 1)
    for number in range(8):
        save(tmp_path / f"{number}.png")
    read_folder(tmp_path, threads=4)
    assert max(most) == 1


def test_an_eps_file_starts_no_other_program(tmp_path, monkeypatch):
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n"
    save(tmp_path / "good.png")
    (tmp_path / "eps.png").write_bytes(eps)
    monkeypatch.setattr("subprocess.check_call", Mock(side_effect=AssertionError("started")))
    assert reasons(read_folder(tmp_path))["eps.png"].startswith("not an image")


def test_the_limit_of_pixels_can_be_set(tmp_path, monkeypatch):
    save(tmp_path / "small.png", size=(10, 10))
    save(tmp_path / "large.png", size=(10, 11))
    monkeypatch.setattr(pixels, "MAX_PIXELS", 100)
    assert read_folder(tmp_path).ids == ("small.png",)


def test_files_and_folders_without_permission_are_quarantined(tmp_path):
    save(tmp_path / "good.png")
    save(tmp_path / "secret.png").chmod(0)
    save(tmp_path / "closed/1.png").parent.chmod(0)
    if os.access(tmp_path / "secret.png", os.R_OK):
        pytest.skip("this user may read everything")
    try:
        table = read_folder(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert reasons(table)["secret.png"] == "no permission to read it"
    assert reasons(table)["closed"].startswith("folder cannot be read")


def test_a_refused_file_says_so_without_its_path(tmp_path, monkeypatch):
    def refuse(path: Path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(pixels, "_open", refuse)
    assert pixels.check_file(tmp_path / "a.jpg").reason == "no permission to read it"


def test_no_readable_image_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"there are no images in it; .* end in \.bmp, \.gif, .*p$"):
        read_folder(tmp_path)
    (tmp_path / "a.txt").touch()
    with pytest.raises(UserError, match=r"no images in it; .*; ignored: 1 \.txt$"):
        read_folder(tmp_path)
    (tmp_path / "a.jpg").touch()
    with pytest.raises(UserError, match=r"1 bad.*'a\.jpg': zero bytes"):
        read_folder(tmp_path)


def test_a_file_that_disappears_during_the_run_is_one_line(animals):
    table = read_folder(animals)
    (animals / "cat/1.jpg").unlink()
    with pytest.raises(UserError, match=r"cat/1\.jpg can no longer be used: missing file"):
        table.image(1)


# Tables


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_names_files_labels_splits_groups_and_boxes(tmp_path, suffix):
    image = Image.new("RGB", (10, 8), BLUE)
    image.paste(RED, (2, 3, 6, 5))
    image.save(tmp_path / "a.png")
    save(tmp_path / "sub/b.png")
    empty = {"label": None, "split": None, "group": None, "x": None, "y": None}
    empty |= {"width": None, "height": None}
    box = {"x": 2.4, "y": 3, "width": 3.4, "height": 2}  # edges round to 2, 3, 6, 5
    rows = [
        {"file_name": "sub/./b.png", **empty, "split": "test"},
        {"file_name": "a.png", **empty, "label": " fox ", "group": "burst", **box},
        {"file_name": "a.png", **empty, "label": "fox", "x": 0, "y": 0, "width": 2, "height": 8},
        {"file_name": "a.png", **empty, "label": "owl", "x": 4, "y": 4, "width": 7, "height": 1},
        {"file_name": "gone.png", **empty, "label": "owl"},
    ]
    table = read_images(write_table(tmp_path / f"t{suffix}", rows))
    assert table.ids == ("a.png#0,0,2,8", "a.png#2,3,4,2", "sub/b.png")
    assert table.class_names == ("fox",)
    assert table.labels.tolist() == [0, 0, -1]
    assert table.splits == ("train", "train", "test")
    assert table.groups == ("a.png", "burst", "sub/b.png")
    where = {".csv": "line 6", ".jsonl": "line 5", ".parquet": "row 5"}[suffix]
    assert reasons(table) == {
        "a.png#4,4,7,1": "box outside the image of 10 x 8 pixels",
        "gone.png": f"a label without a file ({where} of the table)",
    }
    assert table.image(1).size == (4, 2)
    assert (np.asarray(table.image(1)) == RED).all()
    assert (np.asarray(table.image(0)) == BLUE).all()


def test_a_box_is_measured_on_the_upright_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "a.jpg", size=(40, 20), exif=exif)
    box = {"x": 0, "y": 30, "width": 20, "height": 10}
    rows = [{"file_name": "a.jpg", "label": "", **box}]
    assert read_table(write_table(tmp_path / "t.csv", rows)).image(0).size == (20, 10)


@pytest.mark.parametrize(
    "value", ["", " ", "-1", "-1.0", -1, -1.0, math.nan, "NaN", None, "Unlabeled"]
)
def test_what_means_unlabeled(value):
    assert label_text(value) is None


def test_whole_numbers_are_the_same_class_however_they_are_stored():
    assert label_text(3) == label_text(3.0) == label_text("3") == "3"
    assert label_text(0) == "0"
    assert label_text(2.5) == "2.5"


words = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6)
labels = st.one_of(st.none(), words, st.sampled_from(["", "-1", "nan", "unlabeled", "a", "b"]))
numbers = st.integers(0, 20)
boxes = st.one_of(st.none(), st.tuples(numbers, numbers, numbers, numbers))
table_rows = st.lists(
    st.tuples(
        words.filter(lambda word: word not in (".", "..")),
        labels,
        st.sampled_from([None, "train", "test"]),
        labels,
        boxes,
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda row: (row[0], row[4]),
)


@given(rows=table_rows)
@settings(max_examples=60, deadline=None)
def test_csv_jsonl_and_parquet_say_the_same(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tables")
    plain = [
        dict(zip(("file_name", "label", "split", "group"), row, strict=False))
        | dict(zip(("x", "y", "width", "height"), row[4] or (None,) * 4, strict=True))
        for row in rows
    ]
    first, second, third = (
        table_entries(write_table(folder / f"t{suffix}", plain), root=folder)
        for suffix in (".csv", ".jsonl", ".parquet")
    )
    assert first == second == third
    assert [entry.file for entry in first] == [row[0] for row in rows]
    assert [entry.label for entry in first] == [label_text(row[1]) for row in rows]
    shutil.rmtree(folder)


def test_spreadsheets_may_use_semicolons_and_a_byte_order_mark(tmp_path):
    save(tmp_path / "a,b.png")
    (tmp_path / "t.csv").write_text("file_name; label\na,b.png;cat\n", encoding="utf-8-sig")
    assert read_table(tmp_path / "t.csv").class_names == ("cat",)


def test_equal_rows_count_once_and_contradictions_name_both_lines(tmp_path):
    save(tmp_path / "a.png")
    rows = [{"file_name": "a.png", "label": label} for label in ("cat", "cat")]
    assert len(read_table(write_table(tmp_path / "t.csv", rows))) == 1
    write_table(tmp_path / "t.csv", [*rows, {"file_name": "./a.png", "label": "dog"}])
    with pytest.raises(UserError, match=r"line 2 and line 4 contradict each other about 'a\.png'"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["../a.png", "sub/../../a.png", "/etc/a.png", ""])
def test_names_stay_inside_the_root(tmp_path, name):
    table = write_table(tmp_path / "t.csv", [{"file_name": name, "label": "cat"}])
    with pytest.raises(UserError, match=r"t\.csv, line 2: file_name"):
        read_table(table)


def test_a_root_makes_absolute_names_possible(tmp_path):
    image = save(tmp_path / "far/a.png")
    (tmp_path / "near").mkdir()
    rows = [{"file_name": str(image), "label": "cat"}]
    table = write_table(tmp_path / "near/t.csv", rows)
    assert read_table(table, root=tmp_path).ids == ("far/a.png",)
    assert len(read_table(table, root="/")) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "file,label\na.png,1\n", "there is no 'file_name'; the columns are file, label"),
        ("t.csv", "file_name,labels\na.png,1\n", "there is no 'label'"),
        ("t.csv", "", "the columns are none"),
        ("t.csv", "file_name,label\na.png,1,2\n", "line 2: more values than columns"),
        ("t.csv", "file_name,label,split\na.png,1,val\n", "line 2: split 'val' is not known"),
        ("t.csv", "file_name,label,x,y,width,height\na.png,1,1,,2,2\n", "a box needs all of"),
        ("t.csv", "file_name,label,x,y,width,height\na.png,1,1,z,2,2\n", "'z' is not a number"),
        ("t.csv", "file_name,label,x,y,width,height\na.png,1,1,inf,2,2\n", "'inf' is not finite"),
        ("t.jsonl", '{"file_name": "a.png"}\n', "line 1: there is no 'label'"),
        ("t.jsonl", '{"file_name": "a.png", "label": 1}\n\n{\n', "line 3: not valid JSON"),
        ("t.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("t.jsonl", '{"file_name": 3, "label": 1}', "file_name 3 is not a file name"),
        ("t.parquet", "no", "not a valid parquet file"),
        ("t.txt", "", "choose from|give a folder"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_images(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_labels_beside_a_folder_replace_its_classes(animals):
    save(animals / "train/x/1.png")
    save(animals / "test/x/1.png")
    for name in ("cat", "dog"):
        shutil.move(animals / name, animals / "train" / name)
    rows = [
        {"file_name": "loose.bmp", "label": "tiger", "split": "test"},
        {"file_name": "test/x/1.png", "label": "lion", "split": ""},
        {"file_name": "train/cat/1.jpg", "label": "", "split": ""},
        {"file_name": "train/gone.jpg", "label": "lion", "split": ""},
    ]
    table = read_images(animals, write_table(animals / "labels.csv", rows))
    assert table.class_names == ("lion", "tiger")
    labeled = {table.ids[row]: table.splits[row] for row in np.flatnonzero(table.labels >= 0)}
    assert labeled == {"loose.bmp": "test", "test/x/1.png": "test"}
    assert len(table) == 7
    assert reasons(table) == {"train/gone.jpg": "a label without a file (line 5 of the table)"}


def test_labels_that_name_no_file_of_the_folder_are_refused(animals, tmp_path):
    table = write_table(tmp_path / "l.csv", [{"file_name": "animals/loose.bmp", "label": "cat"}])
    with pytest.raises(UserError, match="no row names a file"):
        read_images(animals, table)


# Arrays and lists


def test_arrays_keep_the_order_and_the_numbers_of_the_caller():
    images = np.arange(4 * 5 * 6 * 3, dtype=np.uint8).reshape(4, 5, 6, 3)
    table = from_arrays(images, [2, -1, 0, 2], ["a", "b", "c"])
    assert table.ids == ("train/000000", "train/000001", "train/000002", "train/000003")
    assert (table.labels.tolist(), table.class_names) == ([2, -1, 0, 2], ("a", "b", "c"))
    assert all((np.asarray(table.image(row)) == images[row]).all() for row in range(4))
    assert from_arrays(images[..., 0]).image(1).mode == "RGB"
    assert from_arrays(images[..., :1]).image(1).size == (6, 5)


def test_labels_may_be_numbers_with_gaps_or_names():
    images = np.zeros((4, 2, 2), np.uint8)
    table = from_arrays(images, [10, -1, 2, 10])
    assert (table.labels.tolist(), table.class_names) == ([1, -1, 0, 1], ("2", "10"))
    table = from_arrays(images, np.array(["owl", -1, "fox", None], dtype=object))
    assert (table.labels.tolist(), table.class_names) == ([1, -1, 0, -1], ("fox", "owl"))
    assert from_arrays(images, [0.0, math.nan, 1.0, 0.0]).labels.tolist() == [0, -1, 1, 0]
    assert from_arrays(images).class_names == ()


@pytest.mark.parametrize(
    ("images", "given", "message"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), None, "float32"),
        (np.zeros((2, 4, 4, 2), np.uint8), None, "shape"),
        (np.zeros((0, 4, 4, 3), np.uint8), None, "nothing in them"),
        (np.zeros((2, 4, 4), np.uint8), [0], "labels have shape"),
        (np.zeros((2, 4, 4), np.uint8), [0, -2], "whole numbers"),
        (np.zeros((2, 4, 4), np.uint8), [0, 0.5], "whole numbers"),
        (np.zeros((2, 4, 4), np.uint8), [0, 2], "label 2 is not one of the 2 class names"),
        (np.zeros((2, 4, 4), np.uint8), ["a", "z"], "'z' is not one of a, b"),
    ],
)
def test_a_mistake_in_arrays_is_one_line(images, given, message):
    with pytest.raises(UserError, match=message):
        from_arrays(images, given, ["a", "b"])


def test_npz_with_train_and_test(tmp_path):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, 4, 4, 3), np.uint8) for n in (3, 2))
    names = np.array(["x", "y"])
    arrays = {"train_images": train, "train_labels": np.array([[1], [0], [-1]], np.int16)}
    arrays |= {"test_images": test, "test_labels": np.array([0, 1]), "class_names": names}
    np.savez(tmp_path / "a.npz", **arrays)
    table = read_images(tmp_path / "a.npz")
    assert table.ids[2:] == ("train/000002", "test/000000", "test/000001")
    assert table.labels.tolist() == [1, 0, -1, 0, 1]
    assert table.rows("test").tolist() == [3, 4]
    assert (np.asarray(table.image(4)) == test[1]).all()
    assert table.class_names == ("x", "y")
    before = table.fingerprint
    train[2, 1, 1, 1] ^= 1
    np.savez(tmp_path / "b.npz", **arrays)
    assert read_npz(tmp_path / "b.npz").fingerprint != before


def test_npz_with_images_and_labels(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=["b", ""])
    table = read_npz(tmp_path / "a.npz")
    assert (table.class_names, table.labels.tolist()) == (("b",), [0, -1])


def test_npz_mistakes_are_one_line_and_nothing_is_executed(tmp_path):
    path, images = tmp_path / "a.npz", np.zeros((2, 4, 4), np.uint8)

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    hostile = np.array([Hostile()], dtype=object)
    for arrays in (
        {"pixels": images},
        {"images": images, "labels": [1]},
        {"train_images": images, "test_images": images[:, :2]},
        {"images": images, "labels": hostile},
        {"images": np.uint8(3)},
    ):
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=r"a\.npz: "):
            read_images(path)
    for content in (b"", b"no", path.read_bytes()[:50], pickle.dumps(Hostile())):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"a\.npz: "):
            read_images(path)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(UserError, match="no such file"):
        read_images(tmp_path / "absent.npz")


def test_a_list_of_files_keeps_its_order(animals):
    paths = [animals / "loose.bmp", animals / "cat/1.jpg", animals / "gone.png"]
    table = read_files(paths, ["b", "a", "a"])
    assert table.ids == ("loose.bmp", "cat/1.jpg")
    assert (table.labels.tolist(), table.class_names) == ([1, 0], ("a", "b"))
    assert reasons(table) == {"gone.png": "missing file"}
    assert read_images([str(path) for path in paths]).ids == table.ids
    assert read_images(paths[0]).ids == ("loose.bmp",)
    with pytest.raises(UserError, match="named 2 times"):
        read_files([paths[0], animals / "cat" / ".." / "loose.bmp"])
    with pytest.raises(UserError, match="empty"):
        read_files([])


def test_a_class_may_have_any_name(tmp_path):
    for name in ("nan", "-1", "naan"):
        save(tmp_path / name / "1.png")
    assert read_folder(tmp_path).class_names == ("-1", "naan", "nan")


@pytest.mark.parametrize("source", ["absent", "absent.csv", "absent.jpg", "absent.npz"])
def test_what_does_not_exist_is_one_line(tmp_path, source):
    with pytest.raises(UserError, match=f"{source}: no such file"):
        read_images(tmp_path / source)


def test_a_label_table_needs_a_folder(tmp_path):
    with pytest.raises(UserError, match="goes with a folder"):
        read_images(tmp_path / "a.npz", tmp_path / "labels.csv")


# The table itself


def test_take_keeps_rows_together(animals):
    table = read_folder(animals)
    part = table.take([3, 1])
    assert (part.ids, part.labels.tolist()) == (("dog/1.JPEG", "cat/1.jpg"), [1, 0])
    assert part.class_names == table.class_names
    assert part.image(1).tobytes() == table.image(1).tobytes() != part.image(0).tobytes()
    assert table.take(range(len(table))).fingerprint == table.fingerprint != part.fingerprint
    assert len(table.take([])) == 0
    assert table.take(table.labels == 1).ids == ("dog/1.JPEG",)
    assert table.take([-1]).ids == (table.ids[-1],)
    arrays = from_arrays(np.arange(12, dtype=np.uint8).reshape(3, 2, 2)).take([2]).take([0])
    assert np.asarray(arrays.image(0))[0, 0].tolist() == [8, 8, 8]


def test_a_table_travels_to_workers_without_pixels(animals):
    table = read_folder(animals)
    sent = pickle.dumps(table)
    assert len(sent) < 5000
    arrived = pickle.loads(sent)
    assert arrived.fingerprint == table.fingerprint
    assert arrived.image(0).tobytes() == table.image(0).tobytes()


def test_duplicates_have_equal_contents(tmp_path):
    save(tmp_path / "a/1.png")
    shutil.copy(tmp_path / "a/1.png", tmp_path / "2.png")
    save(tmp_path / "3.png", BLUE)
    two, three, one = read_folder(tmp_path).contents
    assert one == two != three


def shared_data() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get("BACON_DATA", beside)) / "cifar100-subset.npz"


@pytest.mark.shared
@pytest.mark.skipif(not shared_data().exists(), reason="cifar100-subset.npz is not in BACON_DATA")
def test_the_cifar_subset_is_read():
    table = read_images(shared_data())
    assert (len(table.rows("train")), len(table.rows("test"))) == (16748, 10000)
    assert np.bincount(table.labels[table.rows("test")]).tolist() == [100] * 100
    assert table.class_names[:2] == ("apple", "aquarium_fish")
    assert table.image(0).size == (32, 32)


@pytest.mark.parametrize(
    "row",
    [
        '{"file_name": "a.png", "label": ["x"]}',
        '{"file_name": "a.png", "label": {"x": 1}}',
        '{"file_name": {}, "label": "x"}',
        '{"file_name": "a.png", "label": "x", "group": []}',
        "[" * 100_000,
        "7",
        '"\udcff"',
    ],
    ids=lambda row: row[:60],
)
def test_wrong_types_in_a_table_are_one_line(tmp_path, row):
    path = tmp_path / "t.jsonl"
    path.write_bytes(row.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"t.jsonl, line 1: ") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
