"""The authors' published index files: the very images of their CIFAR experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError
from bacon_gcd.data.cifar import CifarFiles
from bacon_gcd.data.datasets import find_dataset
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.longtail import assemble
from bacon_gcd.data.safe_pickle import read_torch_array
from bacon_gcd.data.split import Parts, Split

IntArray = npt.NDArray[np.int64]
# The released names, up to the part that differs: labeled, unlabeled-known, unlabeled-novel.
PATTERNS = ("l_k_*.pt", "unl_k_*.pt", "unl_unk_*.pt")


def import_index_files(folder: Path, table: ImageTable, *, dataset: str) -> Split:
    """A split from the three files of one (dataset, ratio), for a table of the official batches.

    The files hold positions in CIFAR's own order of 50,000 training images; a table in another
    order is noticed by its labels and refused. Nothing inside the files is executed.
    """
    facts = find_dataset(dataset)
    if facts is None or not isinstance(facts.files, CifarFiles):
        raise UserError(f"{dataset}: the authors' index files are of cifar10-lt and cifar100-lt")
    n_known = facts.n_known
    positions = [read_torch_array(_find(folder, pattern)) for pattern in PATTERNS]
    everything = np.concatenate([part.reshape(-1) for part in positions])
    train = table.rows("train")
    if everything.min(initial=0) < 0 or everything.max(initial=-1) >= len(train):
        raise UserError(f"{folder}: points outside the {len(train)} training images of {dataset}")
    if len(np.unique(everything)) < len(everything):
        raise UserError(f"{folder}: an image is in more than one part")
    parts = Parts(*(train[part.reshape(-1)] for part in positions))
    _check_labels(folder, [table.labels[rows] for rows in parts], n_known)
    settings = {"dataset": dataset, "profile": "index files", "source": folder.name}
    return assemble(table, parts, known=range(n_known), settings=settings)


def _find(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UserError(f"{folder}: {len(found)} files {pattern}, where one is expected")
    return found[0]


def _check_labels(folder: Path, labels: list[IntArray], n_known: int) -> None:
    """Each part holds its own classes, in ascending order, as the released files do."""
    ascending = all((np.diff(part) >= 0).all() for part in labels)
    known = all((part < n_known).all() for part in labels[:2])
    if not ascending or not known or (labels[2] < n_known).any():
        raise UserError(f"{folder}: does not fit these images; use CIFAR's official batches")
