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

from bacon_gcd.classes.assign import (
    BoolArray,
    FloatArray,
    choose_side,
    class_radii,
    distances,
    probability_known,
)
from bacon_gcd.cluster import unit
from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.edits import edits_path, novel_number, read_edits
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, Prediction, first_number
from bacon_gcd.model import Model

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrived:
    """One entry per new image, as in `sorting.Sorted`."""

    class_ids: IntArray
    confidence: FloatArray
    known_probability: FloatArray
    outlier: BoolArray


@dataclass(frozen=True, eq=False)
class Classes:
    """C classes with all it takes to sort an image; known ones first."""

    found: tuple[FoundClass, ...]
    centroids: Tensor
    """(C, D) unit rows."""
    limits: FloatArray
    """(C,) radii, see `sorting.radii`."""
    temperature: float
    threshold: float | None
    next_id: int
    next_novel: int

    @cached_property
    def known(self) -> tuple[str, ...]:
        """Names of the known classes."""
        return tuple(each.name for each in self.found if each.known)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {each.name: number for number, each in enumerate(self.found)}

    def positions(self, names: Sequence[str]) -> IntArray:
        """(n,) the class of each name, -1 for one that is not there."""
        return np.array([self._place.get(name, -1) for name in names], dtype=np.int64)

    def labels(self, rows: Sequence[Prediction]) -> IntArray:
        """(N,) the class of each labeled row, -1 = unlabeled."""
        return self.positions([row.class_name if row.labeled else "" for row in rows])

    def sort(self, features: Tensor, labels: IntArray) -> Arrived:
        """Each of (n, D) unit rows into the class of its label, or else by the nearest centroid."""
        cosines = features @ self.centroids.T
        probabilities = (cosines / self.temperature).softmax(dim=1).numpy()
        chosen = choose_side(probabilities, len(self.known), self.threshold)
        class_ids = np.where(labels >= 0, labels, chosen)
        home = np.where(labels >= 0, labels, cosines.argmax(dim=1).numpy())
        sure = probabilities[np.arange(len(labels)), class_ids].astype(np.float64)
        return Arrived(
            class_ids,
            np.where(labels >= 0, 1.0, sure),
            np.where(labels >= 0, 1.0, probability_known(probabilities, len(self.known))),
            distances(cosines, home) > self.limits[home],
        )

    def and_more(self, names: Sequence[str], founders: Sequence[Tensor], *, known: bool) -> Classes:
        """With a class for each group of founders: known behind the known, novel at the end.

        It lies in the middle of its founders and holds them all, and its radius is at least what is
        typical for the other classes.

        founders: for each name (n, D) unit rows.
        """
        if not names:
            return self
        middles = unit(torch.stack([rows.mean(dim=0) for rows in founders]))
        farthest = [
            float((1 - rows @ middle).max()) for rows, middle in zip(founders, middles, strict=True)
        ]
        new = [FoundClass(self.next_id + n, name, known) for n, name in enumerate(names)]
        at = len(self.known) if known else len(self.found)
        return dataclasses.replace(
            self,
            found=(*self.found[:at], *new, *self.found[at:]),
            centroids=torch.cat([self.centroids[:at], middles, self.centroids[at:]]),
            limits=np.insert(self.limits, at, np.maximum(farthest, np.median(self.limits)) + 1e-6),
            next_id=self.next_id + len(new),
        )


def classes_of(before: DiscoverRun, applied: Applied, features: Tensor, model: Model) -> Classes:
    """The classes of a run as a person corrected them.

    Their centroids are the model's; where images were moved, the mean of those that are there. A
    class that edits opened and emptied again has neither, and is gone.

    features: (N, D) of the run's own images.
    """
    used = {row.class_name for row in applied.rows}
    there = {each.id for each in before.classes}
    kept = (each for each in applied.classes if each.name in used or each.id in there)
    found = tuple(sorted(kept, key=lambda each: not each.known))
    place = {each.name: number for number, each in enumerate(found)}
    now = np.array([place[row.class_name] for row in applied.rows], dtype=np.int64)
    centroids, stays = _centroids(before, found, now, features, model)
    limits = model.radii
    if limits is None or not stays:
        limits = class_radii(features, now, centroids)
    names = tuple(each.name for each in (*before.classes, *found))
    edits = read_edits(edits_path(before.folder))
    return Classes(
        found,
        centroids,
        limits,
        float(model.method.temperature),
        model.threshold,
        applied.next_id,
        max(novel_number(edits, start=before.next_novel), first_number(names)),
    )


def _centroids(
    before: DiscoverRun,
    found: tuple[FoundClass, ...],
    now: IntArray,
    features: Tensor,
    model: Model,
) -> tuple[Tensor, bool]:
    """(C, D) unit centroids, and whether they are just the model's. now: (N,) class of each row."""
    first = {each.name: number for number, each in enumerate(before.classes)}
    was = np.array([first[row.class_name] for row in before.rows], dtype=np.int64)
    at = {each.id: number for number, each in enumerate(before.classes)}
    centroids = []
    stays = len(found) == len(before.classes)
    for number, each in enumerate(found):
        members = now == number
        same = each.id in at and bool((members == (was == at[each.id])).all())
        if same or not members.any():
            centroids.append(model.method.centroids[at[each.id]])
        else:
            centroids.append(features[torch.from_numpy(members)].mean(dim=0))
        stays = stays and same and at[each.id] == number
    return unit(torch.stack(centroids)), stays
