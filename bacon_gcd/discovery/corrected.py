"""What a person's corrections demand, as arrays: which class an image must and must not be in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, unused_names

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Corrected:
    """N images in C classes as a person left them, known classes first."""

    classes: tuple[FoundClass, ...]
    class_ids: IntArray
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
    """Ids from here on were never given to a class."""

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
        return np.where(self.certain | self.linked, self.class_ids, -1)

    @property
    def given(self) -> IntArray:
        """(N,) classes by labels that came with the images, -1 = none."""
        return np.where(self.labeled & ~self.confirmed, self.class_ids, -1)

    @property
    def required(self) -> BoolArray:
        """(C,) known classes, and those that a person named, merged or confirmed an image of."""
        used = np.bincount(self.fixed[self.fixed >= 0], minlength=len(self.classes)) > 0
        named = [each.known or each.named for each in self.classes]
        return np.logical_or(used, named)

    @property
    def most_classes(self) -> int:
        """A new class needs an image that is free to move."""
        return len(self.classes) + int((self.fixed < 0).sum())

    def barred_from_all(self, n_classes: int) -> BoolArray:
        """(N,) images that are barred from all of the first classes."""
        n_barred = np.bincount(self.barred[:, 0], minlength=len(self.class_ids))
        found: BoolArray = n_barred >= n_classes
        return found

    def only(self, keep: BoolArray) -> Corrected:
        """Without the other classes. keep: (C,)."""
        position = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
        barred = self.barred[keep[self.barred[:, 1]]]
        return replace(
            self,
            classes=tuple(c for c, kept in zip(self.classes, keep, strict=True) if kept),
            class_ids=position[self.class_ids],
            barred=np.column_stack([barred[:, 0], position[barred[:, 1]]]),
        )

    def with_new(self, n_new: int) -> Corrected:
        """With this many new classes, whose ids and names were never used before."""
        names = unused_names(self.classes, self.next_id, n_new)
        new = (FoundClass(self.next_id + n, name, known=False) for n, name in enumerate(names))
        return replace(self, classes=(*self.classes, *new), next_id=self.next_id + n_new)


def corrections_of(before: DiscoverRun, applied: Applied) -> Corrected:
    """The outcome of a person's edits as arrays; classes without an image are gone."""
    rows, classes, constraints, next_id = applied
    used = {row.class_name for row in rows}
    kept = known_first(before, (each for each in classes if each.name in used))
    position = {each.name: number for number, each in enumerate(kept)}
    row_of = {row.file_name: number for number, row in enumerate(rows)}
    apart = set(constraints.cannot_link)
    linked = {file for files in constraints.must_link for file in files}
    pairs = [(row_of[file], position[name]) for file, name in sorted(apart) if name in position]
    return Corrected(
        classes=kept,
        class_ids=np.array([position[row.class_name] for row in rows], dtype=np.int64),
        labeled=np.array([r.labeled and (r.file_name, r.class_name) not in apart for r in rows]),
        confirmed=np.array([row.file_name in constraints.confirmed for row in rows]),
        linked=np.array([row.file_name in linked for row in rows]),
        barred=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        next_id=next_id,
    )


def known_first(before: DiscoverRun, classes: Iterable[FoundClass]) -> tuple[FoundClass, ...]:
    """Known classes, then new ones; those that edits opened or renamed are named by a person."""
    names = {each.id: each.name for each in before.classes}
    marked = (replace(c, named=c.named or c.name != names.get(c.id)) for c in classes)
    return tuple(sorted(marked, key=lambda each: not each.known))


def resized(left: Corrected, n_classes: int) -> Corrected:
    """Fewer: the smallest classes that are not required go. More: new ones, never used before.

    An image that is barred from every class opens one more. Each new class needs an image that is
    free to move.
    """
    sizes = np.bincount(left.class_ids, minlength=len(left.classes))
    order = np.lexsort((sizes, left.required))  # what may go comes first, the smallest before
    keep = np.ones(len(left.classes), dtype=bool)
    keep[order[: max(len(left.classes) - n_classes, 0)]] = False
    left = left.only(keep)
    n_more = int(left.barred_from_all(len(left.classes)).any())
    n_new = max(n_classes - len(left.classes), n_more)
    return left.with_new(min(n_new, int((left.fixed < 0).sum())))


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
