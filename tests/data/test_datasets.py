"""The paper's datasets from small files in their real formats; `bacon data show`."""

import json
import os
import pickle
import resource
import shutil
import struct
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.data import demo, safe_pickle
from bacon_gcd.data.datasets import DATASETS, MissingDataError, load_dataset
from bacon_gcd.data.images import from_arrays
from bacon_gcd.data.index_files import import_index_files
from bacon_gcd.data.longtail import (
    Plan,
    Split,
    SplitSettings,
    long_tail_counts,
    make_split,
    plan_counts,
)
from bacon_gcd.data.profile_chart import draw
from bacon_gcd.data.safe_pickle import read_pickle, read_torch_array


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("BACON_DATA", raising=False)


class Evil:
    """Leaves a file behind if a reader lets the pickle call what it names."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def cifar_pixels(n_images, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n_images, 32, 32, 3), dtype=np.uint8)


def stored_rows(images):
    """(N, 3072): all reds of an image, then greens, then blues."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), 3072))


def python2_pickle(values):
    """Protocol 2 as Python 2 wrote it: byte strings, numpy 1 names. This is what CIFAR ships."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value):
        return b"J" + struct.pack("<i", value)

    def array(value):
        rows, columns = value.shape
        make = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + integer(0) + b"\x85"
        kind = b"cnumpy\ndtype\n(" + text(b"u1") + integer(0) + integer(1) + b"tR"
        kind += b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) * 2 + integer(0) + b"tb"
        shape = integer(rows) + integer(columns) + b"\x86"
        state = b"(" + integer(1) + shape + kind + b"\x89" + text(value.tobytes()) + b"tb"
        return make + text(b"b") + b"tR" + state

    def item(value):
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, list):
            return b"](" + b"".join(item(v) for v in value) + b"e"
        return integer(value) if isinstance(value, int) else text(value.encode())

    pairs = b"".join(text(key.encode()) + item(value) for key, value in values.items())
    return b"\x80\x02}(" + pairs + b"u."


def python3_pickle(values):
    return pickle.dumps({key.encode(): value for key, value in values.items()})


def write_batches(folder, dataset, dump, *, n_train=20, n_test=10):
    """An official folder in small; returns the images and labels it holds, train before test."""
    files = DATASETS[dataset].files
    n_classes = DATASETS[dataset].n_classes
    folder.mkdir(parents=True)
    images, labels = [], []
    for number, name in enumerate([*files.train, files.test]):
        n_images = n_test if name == files.test else n_train
        images.append(cifar_pixels(n_images, seed=number))
        labels.append([(7 * i + number) % n_classes for i in range(n_images)])
        part = {"data": stored_rows(images[-1]), files.label_key: labels[-1]}
        (folder / name).write_bytes(dump(part))
    names = [f"name {c}" for c in range(n_classes)]
    (folder / files.meta).write_bytes(dump({files.names_key: names}))
    return np.concatenate(images), np.concatenate(labels)


def assert_same_pixels(table, images):
    for row in range(0, len(images), 7):
        assert np.array_equal(np.asarray(table.image(row)), images[row])


# CIFAR from official batches


@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
@pytest.mark.parametrize(("dataset", "n_train"), [("cifar10-lt", 20), ("cifar100-lt", 100)])
def test_official_batches_keep_pixels_labels_and_order(tmp_path, dump, dataset, n_train):
    folder = tmp_path / DATASETS[dataset].files.folder
    images, labels = write_batches(folder, dataset, dump, n_train=n_train, n_test=100)
    for data in (tmp_path, folder):
        table = load_dataset(dataset, data)
        assert table.labels.tolist() == labels.tolist()
        assert table.splits == ("train",) * (len(labels) - 100) + ("test",) * 100
        assert table.class_names[1] == "name 1"
        assert_same_pixels(table, images)


def test_real_protocols_of_pickle_are_read_alike(tmp_path):
    rows = stored_rows(cifar_pixels(3))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"batch{protocol}"
        path.write_bytes(pickle.dumps({b"data": rows, b"labels": [1, 2, 3]}, protocol=protocol))
        stored = read_pickle(path)
        assert np.array_equal(stored["data"], rows)
        assert stored["labels"] == [1, 2, 3]


@pytest.mark.parametrize("place", ["batch", "meta"])
def test_a_malicious_batch_runs_nothing(tmp_path, place):
    folder = tmp_path / "cifar-10-batches-py"
    write_batches(folder, "cifar10-lt", python3_pickle)
    evil = pickle.dumps({b"data": Evil(tmp_path / "trace"), b"label_names": []}, protocol=2)
    (folder / {"batch": "data_batch_3", "meta": "batches.meta"}[place]).write_bytes(evil)
    with pytest.raises(
        UserError, match=r"cannot be read safely: it asks for posix\.mkdir; refused"
    ):
        load_dataset("cifar10-lt", tmp_path)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "names",
    [
        ("builtins", "eval"),
        ("os", "system"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "scalar"),
    ],
)
def test_names_the_format_does_not_need_are_refused(tmp_path, names):
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x02c" + "\n".join(names).encode() + b"\n.")
    with pytest.raises(UserError, match="refused"):
        read_pickle(path)


def damaged(name, value):
    return {"data": stored_rows(cifar_pixels(4)), "labels": [0, 1, 2, 3]} | {name: value}


def one_row_more(content):
    """The pickle says (5, 3072) and holds the bytes of four rows."""
    shape = b"J" + struct.pack("<i", 4) + b"J" + struct.pack("<i", 3072)
    assert shape in content
    return content.replace(shape, shape.replace(b"\x04", b"\x05"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read safely"),
        (pickle.dumps([1]), "a list where a CIFAR batch has a dict"),
        (pickle.dumps(damaged("labels", [1])), "'labels' does not hold 4 labels"),
        (pickle.dumps(damaged("data", np.zeros((4, 5), np.uint8))), "no CIFAR images"),
        (pickle.dumps(damaged("data", np.zeros((4, 3072)))), "arrays of type 'f8'"),
        (pickle.dumps(damaged("data", np.array([None]))), "arrays of type 'O8'"),
        (one_row_more(python2_pickle(damaged("labels", [0] * 4))), "damaged array"),
    ],
)
def test_a_damaged_batch_is_one_line_that_names_the_file(tmp_path, content, message):
    folder = tmp_path / "cifar-10-batches-py"
    write_batches(folder, "cifar10-lt", python2_pickle)
    (folder / "data_batch_2").write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_dataset("cifar10-lt", tmp_path)
    assert "data_batch_2" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_batch_is_named(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    write_batches(folder, "cifar10-lt", python2_pickle)
    (folder / "data_batch_4").unlink()
    with pytest.raises(UserError, match="data_batch_4: no such file"):
        load_dataset("cifar10-lt", tmp_path)


# CIFAR from arrays and parquet


@pytest.mark.parametrize("name", ["cifar10.npz", "cifar10-subset.npz"])
def test_npz_arrays_are_read(tmp_path, name):
    images, labels = cifar_pixels(30), np.arange(30, dtype=np.int16) % 10
    np.savez(
        tmp_path / name,
        train_images=images[:20],
        train_labels=labels[:20],
        test_images=images[20:],
        test_labels=labels[20:],
        class_names=np.array([f"name {c}" for c in range(10)]),
    )
    for data in (tmp_path, tmp_path / name):
        table = load_dataset("cifar10-lt", data)
        assert table.labels.tolist() == labels.tolist()
        assert len(table.rows("test")) == 10
        assert_same_pixels(table, images)


def write_parquet(path, images, labels, *, columns, names):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = []
    for image in images:
        buffer = BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    features = {columns[1]: {"_type": "ClassLabel", "names": names}} if names else {}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({columns[0]: cells, columns[1]: list(labels)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("dataset", "folder", "columns"),
    [
        ("cifar10-lt", "cifar10/plain_text", ("img", "label")),
        ("cifar100-lt", "cifar100/cifar100", ("img", "fine_label")),
        ("cifar10-lt", ".", ("image", "label")),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_parquet_of_the_hub_is_read(tmp_path, dataset, folder, columns, named):
    n_classes = DATASETS[dataset].n_classes
    images, labels = cifar_pixels(3 * n_classes), np.tile(np.arange(n_classes), 3)
    names = [f"name {c}" for c in range(n_classes)] if named else None
    for number, part in enumerate(("train-0-of-2", "train-1-of-2", "test-0-of-1")):
        rows = slice(number * n_classes, (number + 1) * n_classes)
        path = tmp_path / folder / f"{part}.parquet"
        write_parquet(path, images[rows], labels[rows], columns=columns, names=names)
    table = load_dataset(dataset, tmp_path)
    assert table.labels.tolist() == labels.tolist()
    assert len(table.rows("train")) == 2 * n_classes
    assert table.class_names[1] == ("name 1" if named else "1")
    assert_same_pixels(table, images)


def test_parquet_with_other_columns_or_images_is_one_line(tmp_path):
    images = cifar_pixels(10)
    for part in ("train", "test"):
        path = tmp_path / f"{part}-0.parquet"
        write_parquet(path, images, range(10), columns=("img", "class"), names=None)
    with pytest.raises(UserError, match="no column fine_label or label; it has img, class"):
        load_dataset("cifar10-lt", tmp_path)
    write_parquet(
        tmp_path / "train-0.parquet", images[:, :8], range(10), columns=("img", "label"), names=None
    )
    with pytest.raises(UserError, match="row 0: an image of 32 x 8, not 32 x 32"):
        load_dataset("cifar10-lt", tmp_path)
    (tmp_path / "train-0.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match="not a parquet file"):
        load_dataset("cifar10-lt", tmp_path)


# ImageNet-100 and Places


@pytest.fixture(scope="module")
def image_bytes():
    buffer = BytesIO()
    Image.new("RGB", (4, 4), (10, 20, 30)).save(buffer, "PNG")
    return buffer.getvalue()


def write_lists(root, dataset, image_bytes, sizes):
    """Images and lists in the published form; class ids do not follow the names of folders."""
    files = DATASETS[dataset].files
    n_classes = len(sizes)
    root.mkdir(parents=True, exist_ok=True)
    lines = {"train": [], "test": []}
    for class_id, size in enumerate(sizes):
        folder = f"n{(class_id * 37) % n_classes:04d}"
        for split, n_images in (("train", size), ("test", 1)):
            for number in range(n_images):
                lines[split].append(f"{split}/{folder}/{number}.png {class_id}")
    lines["train"] = lines["train"][::-1]  # a list has its own order
    for split in lines:
        (root / getattr(files, split)).write_text("\n".join(lines[split]) + "\n")
        for line in lines[split]:
            path = root / line.rpartition(" ")[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image_bytes)
    return lines


@pytest.mark.parametrize("dataset", ["imagenet100-lt", "places-lt"])
def test_published_lists_give_order_classes_and_split(tmp_path, dataset, image_bytes):
    benchmark = DATASETS[dataset]
    sizes = [1 + 19 // (c + 1) for c in range(benchmark.n_classes)]
    lines = write_lists(tmp_path / dataset, dataset, image_bytes, sizes)
    table = load_dataset(dataset, tmp_path)
    whole = lines["train"] + lines["test"]
    assert [f"{name} {label}" for name, label in zip(table.ids, table.labels, strict=True)] == whole
    assert table.class_names[1] == "n0037"
    split = make_split(table, SplitSettings(dataset=dataset))
    assert split.settings["profile"] == "listed"
    assert (split.n_known, split.n_classes) == (benchmark.n_known, benchmark.n_classes)
    assert len(split.unlabeled_known) == sum(size // 2 for size in sizes[: split.n_known])
    assert split.train_counts(table).tolist() == sizes


def test_folders_of_one_name_are_told_apart_by_their_whole_path(tmp_path, image_bytes):
    files = DATASETS["imagenet100-lt"].files
    lines = [f"data/{c}/outdoor/x.png {c}" for c in range(100)]
    for line in lines:
        path = tmp_path / line.split()[0]
        path.parent.mkdir(parents=True)
        path.write_bytes(image_bytes)
        (path.parent / "y.png").write_bytes(image_bytes)
    (tmp_path / files.train).write_text("\n".join(lines))
    (tmp_path / files.test).write_text("\n".join(lines).replace("x.png", "y.png"))
    assert load_dataset("imagenet100-lt", tmp_path).class_names[7] == "data/7/outdoor"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train/n0000/0.png", "is not 'relative/path class-id'"),
        ("../secret.png 3", "is not 'relative/path class-id'"),
        ("/etc/secret.png 3", "is not 'relative/path class-id'"),
        ("train/n0000/0.png -1", "is not 'relative/path class-id'"),
        ("train/n0000/gone.png 0", "1 of 201 listed images cannot be read, the first is train/n0"),
        ("train/other/1.png 100", "101 classes found, it has 100"),
    ],
)
def test_a_wrong_line_of_a_list_is_one_line(tmp_path, image_bytes, line, message):
    write_lists(tmp_path, "imagenet100-lt", image_bytes, [1] * 100)
    (tmp_path / "train/other").mkdir()
    (tmp_path / "train/other/1.png").write_bytes(image_bytes)
    with (tmp_path / "imageNet_100_LT_train.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=message) as error:
        load_dataset("imagenet100-lt", tmp_path)
    assert "\n" not in str(error.value)


def test_a_list_without_its_test_list_is_named(tmp_path, image_bytes):
    write_lists(tmp_path, "imagenet100-lt", image_bytes, [1] * 100)
    (tmp_path / "ImageNet_100_test.txt").unlink()
    with pytest.raises(UserError, match=r"ImageNet_100_test\.txt: no such file"):
        load_dataset("imagenet100-lt", tmp_path)


@pytest.mark.parametrize("test_folder", ["test", "val"])
def test_class_folders_are_cut_to_a_pareto_profile(tmp_path, image_bytes, test_folder):
    for class_id in range(100):
        for folder, n_images in (("train", 6), (test_folder, 1)):
            place = tmp_path / folder / f"n{class_id:04d}"
            place.mkdir(parents=True)
            for number in range(n_images):
                (place / f"{number}.png").write_bytes(image_bytes)
    table = load_dataset("imagenet100-lt", tmp_path)
    assert (len(table.rows("train")), len(table.rows("test"))) == (600, 100)
    split = make_split(table, SplitSettings(dataset="imagenet100-lt", n_max=6, n_min=1))
    assert split.settings["profile"] == "pareto"
    assert sorted(split.train_counts(table))[-1] == 6
    with pytest.raises(UserError, match="needs 1280 training images, 6 are present"):
        make_split(table, SplitSettings(dataset="imagenet100-lt"))


# What is missing


PAPER = ["cifar10-lt", "cifar100-lt", "imagenet100-lt", "places-lt"]


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name not in ("demo", "planted")])
def test_missing_data_says_in_one_line_what_to_put_where(tmp_path, dataset, monkeypatch):
    with pytest.raises(MissingDataError, match="--data DIR or BACON_DATA and put") as error:
        load_dataset(dataset, None)
    assert "\n" not in str(error.value)
    with pytest.raises(MissingDataError, match=f"not found in {tmp_path}; put "):
        load_dataset(dataset, tmp_path)
    monkeypatch.setenv("BACON_DATA", str(tmp_path / "absent"))
    with pytest.raises(MissingDataError, match=r"not found in .*absent; put "):
        load_dataset(dataset)


def test_an_unknown_dataset_lists_the_choices():
    with pytest.raises(
        UserError, match="'cifar' is not known; choose from cifar10-lt, cifar100-lt"
    ):
        load_dataset("cifar")


def test_data_of_another_dataset_is_refused(tmp_path):
    np.savez(
        tmp_path / "cifar100.npz",
        train_images=cifar_pixels(10),
        train_labels=np.arange(10),
        test_images=cifar_pixels(10),
        test_labels=np.arange(10),
    )
    with pytest.raises(UserError, match="cifar100-lt: 10 classes found, it has 100"):
        load_dataset("cifar100-lt", tmp_path)


def test_learning_rates_and_known_classes_are_the_released_ones():
    assert {name: DATASETS[name].learning_rate for name in PAPER} == {
        "cifar10-lt": 0.01,
        "cifar100-lt": 0.1,
        "imagenet100-lt": 0.1,
        "places-lt": 0.1,
    }
    assert [DATASETS[name].n_known for name in PAPER] == [5, 80, 50, 182]


# The authors' index files


@pytest.fixture(scope="module")
def official_table():
    """As many training images as CIFAR-10 has, one pixel each, in a mixed order."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    pixels = np.arange(50_010, dtype="<u4").view(np.uint8).reshape(-1, 1, 1, 4)[..., :3].copy()
    splits = ["train"] * 50_000 + ["test"] * 10
    return from_arrays(pixels, np.concatenate([labels, np.arange(10)]), splits=splits)


FILES = ("l_k_x.pt", "unl_k_x.pt", "unl_unk_x.pt")


def write_index_files(folder, parts):
    import torch

    folder.mkdir()
    for name, positions in zip(FILES, parts, strict=True):
        torch.save(np.asarray(positions, dtype=np.int64), folder / name)


def parts_of(split):
    return split.labeled, split.unlabeled_known, split.unlabeled_novel


def test_index_files_become_the_split_they_hold(tmp_path, official_table):
    drawn = make_split(official_table, SplitSettings(dataset="cifar10-lt"))
    write_index_files(tmp_path / "cifar10_k5_imb100", parts_of(drawn))
    split = import_index_files(tmp_path / "cifar10_k5_imb100", official_table, dataset="cifar10-lt")
    assert split.hash == drawn.hash
    assert Plan.of(split, official_table) == plan_counts(SplitSettings(dataset="cifar10-lt"))
    assert split.settings["source"] == "cifar10_k5_imb100"
    split.save(tmp_path / "split.npz")
    assert Split.load(tmp_path / "split.npz").hash == drawn.hash


def test_a_malicious_index_file_runs_nothing(tmp_path, official_table):
    import torch

    drawn = make_split(official_table, SplitSettings(dataset="cifar10-lt", n_max=200))
    write_index_files(tmp_path / "split", parts_of(drawn))
    torch.save(Evil(tmp_path / "trace"), tmp_path / "split" / FILES[1])
    with pytest.raises(UserError, match=r"unl_k_x\.pt: cannot be read safely: .*mkdir; refused"):
        import_index_files(tmp_path / "split", official_table, dataset="cifar10-lt")
    assert not (tmp_path / "trace").exists()


def test_index_files_of_another_order_or_place_are_refused(tmp_path, official_table):
    drawn = make_split(official_table, SplitSettings(dataset="cifar10-lt", n_max=200))
    labeled, hidden, novel = parts_of(drawn)
    wrong = {
        "points outside the 50000 training images": (labeled, hidden, [50_000]),
        "an image is in more than one part": (labeled, labeled, novel),
        "use CIFAR's official batches": (labeled[::-1], hidden, novel),
        "does not fit these images": (labeled, novel, hidden),
        "points outside the": (labeled, hidden, [-1]),
        "fit these images": (labeled, [], hidden),
    }
    for number, (message, parts) in enumerate(wrong.items()):
        write_index_files(tmp_path / f"{number}", parts)
        with pytest.raises(UserError, match=message):
            import_index_files(tmp_path / f"{number}", official_table, dataset="cifar10-lt")
    with pytest.raises(UserError, match=r"0 files l_k_\*\.pt, where one is expected"):
        import_index_files(tmp_path, official_table, dataset="cifar10-lt")


def test_files_that_are_no_saved_arrays_are_one_line(tmp_path):
    import torch

    path = tmp_path / "x.pt"
    with pytest.raises(UserError, match="no such file"):
        read_torch_array(path)
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"not a zip file of torch\.save"):
        read_torch_array(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b", b"")
    with pytest.raises(UserError, match=r"holds no data\.pkl"):
        read_torch_array(path)
    torch.save([1, 2], path)
    with pytest.raises(UserError, match="a list where a numpy array is expected"):
        read_torch_array(path)
    torch.save(torch.arange(3), path)
    with pytest.raises(UserError, match="cannot be read safely"):
        read_torch_array(path)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02N" + b"r" + struct.pack("<I", 2**31 - 1) + b".",  # memo entry 2 billion
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # a text of 4 exabytes
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
    ],  # a frame of 4 exabytes
    ids=["memo", "bytes", "frame"],
)
def test_numbers_in_a_pickle_reserve_no_memory(tmp_path, bomb):
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("x/data.pkl", bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError):
        read_torch_array(tmp_path / "x.pt")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_large_and_encrypted_archives_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(2000))
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="too large for a list"):
        read_torch_array(path)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"not a zip file of torch\.save, or damaged"):
        read_torch_array(path)


def test_a_list_in_another_encoding_is_one_line(tmp_path, image_bytes):
    (tmp_path / "imageNet_100_LT_train.txt").write_bytes(b"\xff\xfe 1")
    with pytest.raises(UserError, match=r"train.txt: not a list in UTF-8"):
        load_dataset("imagenet100-lt", tmp_path)


# bacon data show


def show(*words):
    return CliRunner().invoke(app, ["data", "show", *words])


def test_show_counts_without_images_and_says_so():
    result = show("cifar100-lt", "--ratio", "100")
    assert result.exit_code == 0, result.output
    for text in ("3,788", "3,754", "2,212", "9,754", "450 / 4 = 112.5", "38 at batch size 256"):
        assert text in result.output
    assert "Counts only" in result.output
    assert "█" in result.output
    assert "░" in result.output


def test_show_prints_one_json_object():
    values = json.loads(show("cifar10-lt", "--ratio", "20", "--json").output)
    assert (values["labeled"], values["unlabeled_known"], values["total"]) == (5351, 5348, 15318)
    assert values["settings"]["ratio"] == 20
    assert values["split_hash"] is None
    assert len(values["per_class"]["labeled"]) == 10


def test_show_saves_and_draws_a_split_of_real_files(tmp_path):
    images, labels = cifar_pixels(110), np.tile(np.arange(10), 11)
    np.savez(
        tmp_path / "cifar10.npz",
        train_images=images[:100],
        train_labels=labels[:100],
        test_images=images[100:],
        test_labels=labels[100:],
    )
    save, plot = tmp_path / "split.json", tmp_path / "profile.png"
    options = ["--n-max", "10", "--ratio", "5", "--known", "1,3,", "--labeled-share", "0.3"]
    files = ["--data", str(tmp_path), "--save", str(save), "--plot", str(plot)]
    result = show("cifar10-lt", *options, *files, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.output)
    split = Split.load(save)
    assert values["split_hash"] == split.hash
    assert split.class_order[:2] == (1, 3)
    assert split.settings["labeled_share"] == 0.3
    with Image.open(plot) as picture:
        assert picture.width > 1000
    assert show("cifar10-lt", *options, "--data", str(tmp_path)).output.count(split.hash) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cifar"], "choose from"),
        (["cifar10-lt", "--known", "some"], "--known 'some': give a number"),
        (["cifar10-lt", "--known", ","], "--known ',': give a number"),
        (["cifar10-lt", "--save", "split.json"], "--data DIR"),
        (["cifar10-lt", "--index-files", "folder"], "--data DIR"),
        (["cifar10-lt", "--plot", "profile.txt"], r"picture '\.txt' is not known"),
    ],
)
def test_show_refuses_in_one_line(words, message):
    result = show(*words)
    assert isinstance(result.exception, UserError)
    assert Path("split.json").exists() is False
    with pytest.raises(UserError, match=message):
        raise result.exception


def test_show_has_help_with_an_example():
    assert "Example: bacon data show cifar100-lt" in show("--help").output


def test_bars_show_every_class_and_tell_known_from_novel():
    plan = Plan(labeled=(50, 0, 1), unlabeled=(50, 50, 0), known=(0, 2))
    lines = draw(plan, width=6, plain=True).splitlines()
    assert lines[0] == "100 |##    "
    assert lines[5] == " 50 |##..  "
    assert lines[9] == "    |##..##"
    assert "# known  . novel   3 classes" in lines[-1]
    assert "2 of them drawn" in draw(plan, width=2)


# The demo set and labelled folders


def test_the_demo_set_is_a_dataset_like_any_other():
    table = load_dataset("demo")
    split = make_split(table, SplitSettings(dataset="demo", seed=3))
    assert split.hash == demo.load_split().hash
    shown = json.loads(show("demo", "--json").stdout)
    assert (shown["split_hash"], shown["labeled"]) == (split.hash, len(split.labeled))


def test_settings_of_a_fixed_split_are_refused_by_name():
    with pytest.raises(UserError, match="demo has a fixed split; ratio, known cannot change"):
        make_split(load_dataset("demo"), SplitSettings(dataset="demo", ratio=10, known=3))


def labelled_folder(root, sizes, test_sizes=()):
    for prefix, counts in (("train/" if test_sizes else "", sizes), ("test/", test_sizes)):
        for number, count in enumerate(counts):
            for k in range(count):
                path = root / f"{prefix}class {number}" / f"{k}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (4, 4), (number, k, len(prefix))).save(path)
    return root


def test_a_labelled_folder_is_a_dataset(tmp_path):
    root = labelled_folder(tmp_path / "birds", [40, 30, 20, 10])
    table = load_dataset("folder:birds", tmp_path)
    assert table.fingerprint == load_dataset(f"folder:{root}").fingerprint
    assert np.bincount(table.labels[table.rows("test")]).tolist() == [8, 6, 4, 2]
    split = make_split(table, SplitSettings(dataset="folder:birds"))
    assert (split.n_known, split.n_classes) == (2, 4)
    assert len(split.train) == 80
    assert len(split.test) == 20
    assert not set(split.train) & set(split.test)


def test_a_folder_is_cut_to_the_largest_tail_of_a_ratio(tmp_path):
    root = labelled_folder(tmp_path, [40, 30, 20, 10])
    words = [f"folder:{root}", "--known", "0.5", "--ratio", "4", "--json"]
    shown = json.loads(show(*words).stdout)
    totals = [a + b for a, b in zip(*shown["per_class"].values(), strict=True)]
    assert sorted(totals, reverse=True) == long_tail_counts(32, 4, 4)
    assert (shown["classes_known"], shown["settings"]["n_max"]) == (2, 32)
    assert "20 test images (20% of each class" in shown["note"]


def test_test_images_of_a_folder_are_taken_as_they_are(tmp_path):
    table = load_dataset(f"folder:{labelled_folder(tmp_path, [5, 5], [3, 2])}")
    assert np.bincount(table.labels[table.rows("test")]).tolist() == [3, 2]
    assert len(table.rows("train")) == 10


def test_copies_of_an_image_are_not_both_in_training_and_test(tmp_path):
    root = labelled_folder(tmp_path, [10, 10])
    for k in range(10):
        shutil.copy(root / "class 0" / f"{k}.png", root / "class 0" / f"copy {k}.png")
    table = load_dataset(f"folder:{root}")
    parts = [{table.contents[row] for row in table.rows(part)} for part in ("train", "test")]
    assert not parts[0] & parts[1]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [([5], "fewer than two labelled classes"), ([5, 1], "class 'class 1' has 1 different image")],
)
def test_a_folder_without_enough_labels_is_one_line(tmp_path, sizes, message):
    with pytest.raises(UserError, match=message):
        load_dataset(f"folder:{labelled_folder(tmp_path, sizes)}")


def test_a_ratio_that_no_class_can_show_is_one_line(tmp_path):
    table = load_dataset(f"folder:{labelled_folder(tmp_path, [5, 5])}")
    with pytest.raises(UserError, match="ratio 50 is too large for classes of 4 to 4 images"):
        make_split(table, SplitSettings(dataset="folder:x", ratio=50))
