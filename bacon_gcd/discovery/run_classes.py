"""The classes of a finished run as a person corrected them, and how images are sorted into them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.assign import BoolArray, FloatArray, choose_side, probability_known
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.sorter import OUTLIER, Sorter, fit_sorter
from bacon_gcd.cluster import unit
from bacon_gcd.discovery.corrected import known_first
from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, Prediction, unused_names
from bacon_gcd.discovery.recut import neighbors_of
from bacon_gcd.discovery.second import Second, second_of
from bacon_gcd.model import Model

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrived:
    """One entry per new image, as in `classes.assign.Sorted`."""

    class_ids: IntArray
    confidence: FloatArray
    known_probability: FloatArray
    outlier: BoolArray
    second: Second


@dataclass(frozen=True, eq=False)
class Classes:
    """C classes with all it takes to sort an image; known ones first."""

    found: tuple[FoundClass, ...]
    centroids: Tensor
    """(C, D) unit rows."""
    temperature: float
    """Of the softmax of the cosines with the centroids."""
    sorter: Sorter
    threshold: float | None
    next_id: int
    """The first id that no class has or had."""

    @cached_property
    def known(self) -> tuple[str, ...]:
        """Names of the known classes."""
        return tuple(each.name for each in self.found if each.known)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {each.name: number for number, each in enumerate(self.found)}

    def positions(self, names: Sequence[str]) -> IntArray:
        """(n,) the class of each name, -1 for one that is not there."""
        return np.array([self._position.get(name, -1) for name in names], dtype=np.int64)

    def labels(self, rows: Sequence[Prediction]) -> IntArray:
        """(N,) the class of each labeled row, -1 = unlabeled."""
        return self.positions([row.class_name if row.labeled else "" for row in rows])

    def sort(self, features: Tensor, labels: IntArray, opened: IntArray) -> Arrived:
        """Each of (n, D) unit rows into the class of its label, or else by the evidence.

        opened: (n,) the class that an image helped to open, -1 = none; it is no outlier there.
        """
        probabilities = self.sorter.probabilities(features)
        chosen = choose_side(probabilities, len(self.known), self.threshold)
        class_ids = np.where(labels >= 0, labels, chosen)
        sure = probabilities[np.arange(len(labels)), class_ids].astype(np.float64)
        return Arrived(
            class_ids,
            np.where(labels >= 0, 1.0, sure),
            np.where(labels >= 0, 1.0, probability_known(probabilities, len(self.known))),
            (self.sorter.outlier_score(features) >= OUTLIER) & (labels < 0) & (class_ids != opened),
            second_of(probabilities, class_ids),
        )

    def with_known(self, names: Sequence[str], members: Sequence[Tensor]) -> Classes:
        """With a known class of each name. members: for each name (n, D) unit rows."""
        new = [FoundClass(self.next_id + n, name, known=True) for n, name in enumerate(names)]
        return self._with_classes(new, members, at=len(self.known), weight=1.0)

    def with_new(self, members: Sequence[Tensor]) -> Classes:
        """With a new class for each group of (n, D) unit rows."""
        names = unused_names(self.found, self.next_id, len(members))
        new = [FoundClass(self.next_id + n, name, known=False) for n, name in enumerate(names)]
        weight = RULES.unlabeled_weight
        return self._with_classes(new, members, at=len(self.found), weight=weight)

    def _with_classes(
        self, new: Sequence[FoundClass], members: Sequence[Tensor], *, at: int, weight: float
    ) -> Classes:
        """With these classes at a position, each made by its members."""
        if not new:
            return self
        middles = unit(torch.stack([rows.mean(dim=0) for rows in members]))
        return dataclasses.replace(
            self,
            found=(*self.found[:at], *new, *self.found[at:]),
            centroids=torch.cat([self.centroids[:at], middles, self.centroids[at:]]),
            sorter=self.sorter.with_classes(members, at=at, weight=weight),
            next_id=self.next_id + len(new),
        )


def classes_of(
    before: DiscoverRun, applied: Applied, features: Tensor, model: Model, *, seed: int
) -> Classes:
    """The classes of a run as a person corrected them.

    Images to come are sorted by the evidence of those that are in the classes now. Centroids are
    the model's; where images were moved, the mean of those that are there. A class that edits
    opened and emptied again has neither, and is gone.

    features: (N, D) of the run's own images.
    """
    rows = applied.rows
    used = {row.class_name for row in rows}
    there = {each.id for each in before.classes}
    kept = (each for each in applied.classes if each.name in used or each.id in there)
    found = known_first(before, kept)
    position = {each.name: number for number, each in enumerate(found)}
    now = np.array([position[row.class_name] for row in rows], dtype=np.int64)
    certain = np.array([r.labeled or r.file_name in applied.constraints.confirmed for r in rows])
    sure = np.array([row.confidence for row in rows])[~certain]
    fitted = fit_sorter(
        features,
        now,
        np.where(certain, now, -1),
        neighbors_of(before),
        n_classes=len(found),
        sure=float(sure.mean()) if len(sure) else None,
        seed=seed,
    )
    return Classes(
        found,
        _centroids(before, found, now, features, model),
        model.temperature,
        fitted.sorter,
        model.threshold,
        applied.next_id,
    )


def _centroids(
    before: DiscoverRun,
    found: tuple[FoundClass, ...],
    now: IntArray,
    features: Tensor,
    model: Model,
) -> Tensor:
    """(C, D) unit centroids. now: (N,) class of each row."""
    first = {each.name: number for number, each in enumerate(before.classes)}
    was = np.array([first[row.class_name] for row in before.rows], dtype=np.int64)
    at = {each.id: number for number, each in enumerate(before.classes)}
    centroids = []
    for number, each in enumerate(found):
        members = now == number
        same = each.id in at and bool((members == (was == at[each.id])).all())
        if same or not members.any():
            centroids.append(model.centroids[at[each.id]])
        else:
            centroids.append(features[torch.from_numpy(members)].mean(dim=0))
    return unit(torch.stack(centroids))
