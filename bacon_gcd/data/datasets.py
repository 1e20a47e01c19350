"""Datasets by name: the paper's four, some of ours, and folder:PATH, any labelled folder.

Each says where its files are and what the paper fixes about it; `longtail.make_split` splits it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from bacon_gcd.config import UserError
from bacon_gcd.data.cifar import CifarFiles, find_cifar
from bacon_gcd.data.entries import Entry, Quarantined, list_files
from bacon_gcd.data.images import ImageTable, read_folder, read_npz, table_of

if TYPE_CHECKING:
    from bacon_gcd.data.split import Split

FOLDER = "folder:"
TEST_SHARE = 0.2  # of each class of a folder without test images: held out, never trained on

# Class id at rank 0, 1, ... of the long tail, read off the authors' index files; the same for
# every ratio. The classes at CIFAR-100's ranks 97 and 98 have equal counts at every released
# ratio, so their order is unknown; the smaller id comes first here.
CIFAR10_RANKS = (0, 4, 2, 8, 5, 6, 7, 1, 9, 3)
# fmt: off
CIFAR100_RANKS = (
    5, 85, 65, 8, 95, 44, 68, 23, 50, 75, 71, 86, 16, 30, 24, 36, 6, 11, 83, 97,
    74, 67, 17, 41, 48, 45, 33, 55, 90, 77, 12, 92, 32, 84, 20, 89, 19, 69, 53, 87,
    14, 26, 46, 49, 80, 52, 63, 91, 25, 4, 22, 99, 82, 15, 73, 31, 42, 21, 47, 88,
    98, 9, 51, 66, 39, 27, 43, 64, 54, 10, 57, 78, 62, 37, 28, 56, 18, 3, 81, 35,
    34, 96, 1, 38, 40, 70, 58, 59, 94, 29, 79, 7, 61, 76, 2, 93, 13, 60, 72, 0,
)
# fmt: on


@dataclass(frozen=True)
class ListFiles:
    """The published lists, one line "relative/path class-id" per image."""

    train: str
    test: str

    @property
    def wanted(self) -> str:
        """What a person may put into the data folder."""
        return (
            f"put the images and {self.train} and {self.test} there, "
            "or train/<class>/ and test/<class>/ (or val/<class>/)"
        )


@dataclass(frozen=True)
class ArrayFiles:
    """One .npz file with train_images, train_labels, test_images, test_labels, class_names."""

    stem: str

    @property
    def wanted(self) -> str:
        """What a person may put into the data folder."""
        return f"put {self.stem}.npz there"

    def load(self, root: Path) -> ImageTable | None:
        """Every image; None where there is no file."""
        for path in (root / f"{self.stem}.npz", root / f"{self.stem}-subset.npz"):
            if path.is_file():
                return read_npz(path)
        return None


@dataclass(frozen=True)
class EmbeddedFiles:
    """Images inside the package, which come with their split."""

    wanted: str = "it is part of the package"

    def load(self) -> ImageTable:
        """Every image with its true class."""
        from bacon_gcd.data import demo  # it needs the splits, which need this module

        return demo.load()

    def split(self, table: ImageTable) -> Split:
        """The only split there is."""
        from bacon_gcd.data import demo

        return demo.load_split(table)


@dataclass(frozen=True)
class PlantedVectors:
    """Clusters made from a seed; there are no images behind them."""

    wanted: str = "it is made when it is asked for"

    def load(self) -> ImageTable:
        """Every row with its true class."""
        from bacon_gcd.data import planted  # as for the embedded images: hardly anyone needs it

        return planted.load()


DatasetFiles = CifarFiles | ListFiles | ArrayFiles | EmbeddedFiles | PlantedVectors


@dataclass(frozen=True)
class Dataset:
    """What the paper and the authors' code fix about a dataset. BaCon App. C."""

    n_classes: int
    n_known: int
    """The first class ids are the known ones."""
    files: DatasetFiles
    profile: str
    n_max: int
    """Images of the largest class."""
    n_min: int | None = None
    """Images of the smallest class of a Pareto profile."""
    ranks: tuple[int, ...] = ()
    """Class id at each rank of the exponential profile."""
    learning_rate: float | None = 0.1
    """Of the authors' scripts; None: the method's own."""

    @property
    def listed(self) -> bool:
        """Whether its long tail is published as a list of images."""
        return isinstance(self.files, ListFiles)


DATASETS = {
    "cifar10-lt": Dataset(
        n_classes=10,
        n_known=5,
        profile="exp",
        n_max=4500,
        ranks=CIFAR10_RANKS,
        learning_rate=0.01,  # of the authors' script; the paper says 0.1 for all
        files=CifarFiles(
            stem="cifar10",
            folder="cifar-10-batches-py",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test="test_batch",
            meta="batches.meta",
            label_key="labels",
            names_key="label_names",
        ),
    ),
    "cifar100-lt": Dataset(
        n_classes=100,
        n_known=80,
        profile="exp",
        n_max=450,
        ranks=CIFAR100_RANKS,
        files=CifarFiles(
            stem="cifar100",
            folder="cifar-100-python",
            train=("train",),
            test="test",
            meta="meta",
            label_key="fine_labels",
            names_key="fine_label_names",
        ),
    ),
    "imagenet100-lt": Dataset(
        n_classes=100,
        n_known=50,
        profile="pareto",
        n_max=1280,
        n_min=5,  # the published list ends at 6; the paper says 5
        files=ListFiles("imageNet_100_LT_train.txt", "ImageNet_100_test.txt"),
    ),
    "places-lt": Dataset(
        n_classes=365,
        n_known=182,
        profile="pareto",
        n_max=4980,
        n_min=5,
        files=ListFiles("Places_LT_train.txt", "Places_LT_test.txt"),
    ),
    "fashion-lt": Dataset(  # not of the paper: clothes, which ImageNet hardly has
        n_classes=10,
        n_known=5,
        profile="exp",
        n_max=1000,
        files=ArrayFiles("fashion"),
    ),
    "demo": Dataset(
        n_classes=10,
        n_known=5,
        profile="exp",
        n_max=420,
        learning_rate=None,
        files=EmbeddedFiles(),
    ),
    "planted": Dataset(
        n_classes=10,
        n_known=5,
        profile="exp",
        n_max=120,
        learning_rate=None,
        files=PlantedVectors(),
    ),
}


def find_dataset(name: str) -> Dataset | None:
    """What is fixed about a dataset; None for a folder of one's own, of which nothing is."""
    if name.startswith(FOLDER):
        return None
    if name not in DATASETS:
        names = ", ".join([*DATASETS, f"{FOLDER}PATH"])
        raise UserError(f"dataset {name!r} is not known; choose from {names}")
    return DATASETS[name]


class MissingDataError(UserError):
    """The dataset's files are not there; the line says what to put where."""


def load_dataset(name: str, data: Path | None = None) -> ImageTable:
    """All images of a dataset, train before test; `data` (or $BACON_DATA) says where they are.

    CIFAR keeps the order of its files, a published list the order of its lines.
    """
    dataset = find_dataset(name)
    named = data or os.environ.get("BACON_DATA")
    root = Path(named).expanduser() if named else None
    if dataset is None:
        return load_folder(Path(name.removeprefix(FOLDER)).expanduser(), root)
    return _checked(_find(name, dataset.files, root), name, dataset)


def _find(name: str, files: DatasetFiles, root: Path | None) -> ImageTable:
    if isinstance(files, EmbeddedFiles | PlantedVectors):
        return files.load()
    if root is None:
        raise MissingDataError(
            f"{name}: no data folder; name one with --data DIR or BACON_DATA and {files.wanted}"
        )
    if isinstance(files, CifarFiles):
        table = find_cifar(files, root)
    elif isinstance(files, ArrayFiles):
        table = files.load(root)
    else:
        table = _find_lists(files, root / name) or _find_lists(files, root)
    if table is None:
        raise MissingDataError(f"{name}: not found in {root}; {files.wanted}")
    return table


def _checked(table: ImageTable, name: str, benchmark: Dataset) -> ImageTable:
    """Refuse a table with other classes than the dataset has."""
    if len(table.class_names) != benchmark.n_classes:
        raise UserError(
            f"{name}: {len(table.class_names)} classes found, it has {benchmark.n_classes}"
        )
    for split in ("train", "test"):
        missing = set(range(benchmark.n_classes)) - set(table.labels[table.rows(split)].tolist())
        if missing:
            raise UserError(f"{name}: no {split} image of class {table.class_names[min(missing)]}")
    return table


# A labelled folder


def load_folder(path: Path, data: Path | None = None) -> ImageTable:
    """The labelled images of a folder; TEST_SHARE of each class is held out if none are for test.

    path: relative to `data` where it is found there, so that a recorded name holds no private path.
    """
    inside = data / path if data is not None and (data / path).is_dir() else path
    table = read_folder(inside)
    table = table.take(table.labels >= 0)
    if len(table.class_names) < 2:
        raise UserError(f"{inside}: fewer than two labelled classes; put each in its own folder")
    if len(table.rows("test")) == 0:
        table = hold_out_test(table, inside)
    # Test images are the last rows, as in every dataset.
    return table.take(np.concatenate([table.rows("train"), table.rows("test")]))


def hold_out_test(table: ImageTable, where: Path) -> ImageTable:
    """TEST_SHARE of each class as test images, always the same; equal files stay together."""
    splits = list(table.splits)
    for class_id, name in enumerate(table.class_names):
        rows = np.flatnonzero(table.labels == class_id)
        contents = sorted({table.contents[row] for row in rows})
        if len(contents) < 2:
            raise UserError(
                f"{where}: class {name!r} has {len(contents)} different image; each class needs"
                f" two, because {TEST_SHARE:.0%} of it are held out as test images"
            )
        order = np.random.default_rng([0, class_id]).permutation(len(contents))
        n_test = max(1, round(TEST_SHARE * len(contents)))
        chosen = {contents[position] for position in order[:n_test]}
        for row in rows:
            splits[row] = "test" if table.contents[row] in chosen else "train"
    return replace(table, splits=tuple(splits))


# ImageNet-100 and Places


def _find_lists(files: ListFiles, root: Path) -> ImageTable | None:
    """The published lists if they are there, otherwise folders of classes."""
    if (root / files.train).is_file():
        return _read_lists(files, root)
    test = "test" if (root / "test").is_dir() else "val"
    if (root / "train").is_dir() and (root / test).is_dir():
        return _read_class_folders(root, test)
    return None


def _read_lists(files: ListFiles, root: Path) -> ImageTable:
    train, test = (_read_list(root / name) for name in (files.train, files.test))
    names = _listed_names(train)
    entries = [
        Entry(path, names.get(class_id, str(class_id)), split)
        for split, lines in (("train", train), ("test", test))
        for path, class_id in lines
    ]
    table = table_of(root, entries, class_names=list(names.values()))
    if bad := table.quarantine:
        raise UserError(
            f"{root}: {len(bad)} of {len(entries)} listed images cannot be read, "
            f"the first is {bad[0].id}: {bad[0].reason}"
        )
    return table


def _read_list(path: Path) -> list[tuple[str, int]]:
    """(relative path, class id) of each line."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; it is the published list of the test images")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a list in UTF-8: {error}") from None
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, _, class_id = line.strip().rpartition(" ")
        inside = PurePosixPath(name)
        numbered = class_id.isdecimal() and len(class_id) < 10  # int() refuses thousands of digits
        if not name or not numbered or inside.is_absolute() or ".." in inside.parts:
            raise UserError(f"{path}, line {number}: {line!r} is not 'relative/path class-id'")
        lines.append((name, int(class_id)))
    return lines


def _listed_names(lines: Sequence[tuple[str, int]]) -> dict[int, str]:
    """Class id -> folder of its images: the last part of it, or all where that is not unique."""
    folders = {class_id: PurePosixPath(path).parent for path, class_id in lines}
    short = {class_id: folders[class_id].name for class_id in sorted(folders)}
    if len(set(short.values())) == len(short):
        return short
    return {class_id: str(folders[class_id]) for class_id in sorted(folders)}


def _read_class_folders(root: Path, test: str) -> ImageTable:
    """train/<class>/ and test/<class>/ in full; `make_split` cuts them to the profile."""
    entries: list[Entry] = []
    quarantine: list[Quarantined] = []
    for folder, split in (("train", "train"), (test, "test")):
        found = list_files(root / folder)
        files = (file for file in found.files if "/" in file)
        entries += [Entry(f"{folder}/{file}", file.split("/")[0], split) for file in files]
        quarantine += [Quarantined(f"{folder}/{bad.id}", bad.reason) for bad in found.quarantine]
    return table_of(root, entries, quarantine=quarantine)
