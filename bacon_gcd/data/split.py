"""A split of a table: index arrays with a hash, saved so that a changed file is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError, choose, one_line
from bacon_gcd.data.array_files import read_npz
from bacon_gcd.data.images import ImageTable
from bacon_gcd.system.files import digest, json_value, read_json, write_atomic, write_json

IntArray = npt.NDArray[np.int64]
ROW_NAMES = ("labeled", "unlabeled_known", "unlabeled_novel", "test")


class Parts(NamedTuple):
    """Rows of the three training parts, grouped by ascending class id."""

    labeled: IntArray
    unlabeled_known: IntArray
    unlabeled_novel: IntArray


def join(pieces: Sequence[IntArray]) -> IntArray:
    """Index arrays one after the other; none at all is an empty one."""
    return np.concatenate([np.empty(0, dtype=np.int64), *pieces]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a table: three training parts and the test set. Compare splits by `hash`."""

    labeled: IntArray
    unlabeled_known: IntArray
    unlabeled_novel: IntArray
    test: IntArray
    class_order: tuple[int, ...]
    """The dataset's class ids, known first; a class's position is its id for the methods."""
    n_known: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain values: what `make_split` was asked for, defaults filled in."""
    fingerprint: str = ""
    """Of the table the rows point into."""

    @property
    def n_classes(self) -> int:
        """Known and novel classes together."""
        return len(self.class_order)

    @property
    def train(self) -> IntArray:
        """Rows of the training set: labeled, unlabeled-known, unlabeled-novel, in this order."""
        return join([self.labeled, self.unlabeled_known, self.unlabeled_novel])

    @cached_property
    def hash(self) -> str:
        """Identity of the split: rows, class order, and the table they point into."""
        rows = [getattr(self, name).tolist() for name in ROW_NAMES]
        return digest(rows, self.class_order, self.n_known, self.fingerprint)

    def true_labels(self, table: ImageTable, rows: IntArray) -> IntArray:
        """(len(rows),) class ids as the methods number them, hidden or not; -1 where none."""
        position = np.full(self.n_classes + 1, -1, dtype=np.int64)  # label -1 finds the last
        position[list(self.class_order)] = np.arange(self.n_classes)
        return position[table.labels[rows]]

    def visible_labels(self, table: ImageTable) -> IntArray:
        """(N_train,) what a method may see: class ids of the labeled rows, then -1."""
        labels = np.full(len(self.train), -1, dtype=np.int64)
        labels[: len(self.labeled)] = self.true_labels(table, self.labeled)
        return labels

    def train_counts(self, table: ImageTable) -> IntArray:
        """(C,) true number of training images of each class, as the methods number them."""
        return np.bincount(self.true_labels(table, self.train), minlength=self.n_classes)

    def check(self, table: ImageTable) -> None:
        """Refuse a table other than the one the split was made for."""
        if self.fingerprint and self.fingerprint != table.fingerprint:
            raise UserError(
                f"the split belongs to images with fingerprint {self.fingerprint}, "
                f"these have {table.fingerprint}"
            )

    def save(self, path: Path) -> None:
        """Write as JSON or npz, by suffix; whole or not at all."""
        head = {
            "class_order": list(self.class_order),
            "n_known": self.n_known,
            "settings": dict(self.settings),
            "fingerprint": self.fingerprint,
            "hash": self.hash,
        }
        rows = {name: getattr(self, name) for name in ROW_NAMES}
        if choose("split file suffix", path.suffix, (".json", ".npz")) == ".json":
            write_json(path, head | {name: values.tolist() for name, values in rows.items()})
            return
        buffer = BytesIO()
        np.savez_compressed(buffer, head=np.array(json.dumps(head)), **rows)
        write_atomic(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Split:
        """Read what `save` wrote; a damaged or edited file is refused."""
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        read = _read_npz if path.suffix == ".npz" else read_json
        try:
            split, said = _from_stored(read(path))
            found = split.hash
        except Exception as error:  # whatever is wrong inside, it is not a split
            reason = one_line(error).removeprefix(f"{path}: ")
            raise UserError(f"{path}: not a split file: {type(error).__name__} {reason}") from None
        if found != said:
            raise UserError(f"{path}: changed since it was saved: hash {found}, saved as {said}")
        return split


def _read_npz(path: Path) -> dict[str, Any]:
    stored = read_npz(path, ["head", *ROW_NAMES])
    head: dict[str, Any] = json_value(stored["head"].item())
    return head | {name: stored[name] for name in ROW_NAMES}


def _from_stored(stored: dict[str, Any]) -> tuple[Split, str]:
    """The split and the hash it was saved with."""
    values = dict(stored)
    said: str = values.pop("hash")
    values |= {name: np.array(values[name], dtype=np.int64) for name in ROW_NAMES}
    return Split(**values | {"class_order": tuple(values["class_order"])}), said
