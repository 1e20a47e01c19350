"""What a person's corrections left, as arrays: which class an image must and must not be in."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.edits import edits_path, novel_number, read_edits
from bacon_gcd.discovery.folder import NOVEL, DiscoverRun, FoundClass

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Corrected:
    """What a person left: N images in C classes, known classes first."""

    classes: tuple[FoundClass, ...]
    places: IntArray
    """(N,) position of each image's class; -1: the class is gone."""
    labeled: BoolArray
    """(N,) it came with a label, and nobody called that wrong."""
    confirmed: BoolArray
    """(N,) a person put it there, or said that it is right."""
    linked: BoolArray
    """(N,) it came by a merge, and stays with the others."""
    barred: IntArray
    """(M, 2) images and the classes they must not be in."""
    next_id: int
    next_novel: int
    """Ids and numbers from here on were never given to a class."""

    @property
    def n_known(self) -> int:
        """The first classes are known."""
        return sum(each.known for each in self.classes)

    @property
    def certain(self) -> BoolArray:
        """(N,) images whose class is taken as true, also by training."""
        return self.labeled | self.confirmed

    @cached_property
    def fixed(self) -> IntArray:
        """(N,) the class an image must be in, -1 = any."""
        return np.where(self.certain | self.linked, self.places, -1)

    @property
    def vouched(self) -> BoolArray:
        """(C,) known classes, and those that a person named, merged or confirmed an image of."""
        used = np.bincount(self.fixed[self.fixed >= 0], minlength=len(self.classes)) > 0
        named = [each.known or not NOVEL.fullmatch(each.name) for each in self.classes]
        return np.logical_or(used, named)

    def homeless(self, n_classes: int) -> BoolArray:
        """(N,) images that are barred from all of the first classes."""
        n_barred = np.bincount(self.barred[:, 0], minlength=len(self.places))
        homeless: BoolArray = n_barred >= n_classes
        return homeless

    def only(self, keep: BoolArray) -> Corrected:
        """Without the other classes. keep: (C,)."""
        position = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
        barred = self.barred[keep[self.barred[:, 1]]]
        return dataclasses.replace(
            self,
            classes=tuple(c for c, kept in zip(self.classes, keep, strict=True) if kept),
            places=position[self.places],
            barred=np.column_stack([barred[:, 0], position[barred[:, 1]]]),
        )


def what_is_left(before: DiscoverRun, applied: Applied) -> Corrected:
    """The edits' outcome as arrays; classes without an image are gone."""
    rows, classes, constraints, next_id = applied
    used = {row.class_name for row in rows}
    kept = tuple(sorted((c for c in classes if c.name in used), key=lambda c: not c.known))
    position = {each.name: number for number, each in enumerate(kept)}
    row_of = {row.file_name: number for number, row in enumerate(rows)}
    apart = set(constraints.cannot_link)
    linked = {file for files in constraints.must_link for file in files}
    pairs = [(row_of[file], position[name]) for file, name in sorted(apart) if name in position]
    return Corrected(
        classes=kept,
        places=np.array([position[row.class_name] for row in rows], dtype=np.int64),
        labeled=np.array([r.labeled and (r.file_name, r.class_name) not in apart for r in rows]),
        confirmed=np.array([row.file_name in constraints.confirmed for row in rows]),
        linked=np.array([row.file_name in linked for row in rows]),
        barred=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        next_id=next_id,
        next_novel=novel_number(read_edits(edits_path(before.folder)), start=before.next_novel),
    )


def resized(left: Corrected, n_classes: int) -> Corrected:
    """Fewer: the smallest classes nobody stands for go. More: new ones, never used before.

    An image that is barred from every class opens one more. There are at most as many new ones as
    images that are free to move: those of a merged class are not.
    """
    sizes = np.bincount(left.places, minlength=len(left.classes))
    order = np.lexsort((sizes, left.vouched))  # what may go comes first, the smallest before others
    keep = np.ones(len(left.classes), dtype=bool)
    keep[order[: max(len(left.classes) - n_classes, 0)]] = False
    left = left.only(keep)
    n_new = max(n_classes - len(left.classes), int(left.homeless(len(left.classes)).any()))
    n_new = min(n_new, int((left.fixed < 0).sum()))
    new = [
        FoundClass(left.next_id + i, f"novel_{left.next_novel + i:03d}", known=False)
        for i in range(n_new)
    ]
    return dataclasses.replace(
        left,
        classes=(*left.classes, *new),
        next_id=left.next_id + n_new,
        next_novel=left.next_novel + n_new,
    )


def best_allowed(scores: Tensor, left: Corrected) -> IntArray:
    """(N,) the fixed class, else the best one that an image is not barred from."""
    best = without_barred(scores, left).argmax(dim=1).numpy()
    return np.where(left.fixed >= 0, left.fixed, best)


def without_barred(scores: Tensor, left: Corrected) -> Tensor:
    """(N, C) scores, -inf where an image must not be."""
    scores = scores.clone()
    rows, classes = torch.from_numpy(left.barred).T
    scores[rows, classes] = -torch.inf
    return scores
