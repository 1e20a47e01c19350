"""New images into the classes of a finished run, by the evidence that sorted the run itself.

An image counts as much as its neighbors in the run together: half of its evidence for a class is
its own, half is the mean of theirs. Whether it fits any class at all is asked of the image alone,
because its neighbors, which are of the run, do. It fits none where a class that nobody has seen is
likelier than all classes of the run together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.classes.calibration import matching_temperature
from bacon_gcd.classes.leverage import Leverage, fit_leverage
from bacon_gcd.classes.neighbors import exact_neighbors
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import ClassSpace, Projection, fit_space, sample, without_itself
from bacon_gcd.cluster import as_ids

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CHUNK = 4096
OUTLIER = 0.5  # score from which an image is one
MOST_KEPT = 10_000  # images of the run among which a new one has its neighbors


@dataclass(frozen=True, eq=False)
class Sorter:
    """C classes by their members, and M images of the run that new ones are compared with."""

    projection: Projection
    between: Tensor
    """(d,) variance of the class means along each axis."""
    counts: Tensor
    """(C,) members of each class, an unlabeled one counts less."""
    sums: Tensor
    """(C, d) sums of their rows."""
    kept: Tensor
    """(M, D) float16 features of images of the run."""
    temperature: float
    """Of the softmax of the evidence."""
    n_neighbors: int
    fit_spread: float = 0.0
    """Standard deviation of `fit` over the run's own images; 0: of a model that has no such."""

    def rows(self, features: Tensor) -> ClassSpace:
        """(n, D) unit features in the space of the classes."""
        return ClassSpace(self.projection(features), self.between)

    def evidence(self, features: Tensor) -> Tensor:
        """(n, C) for each class, of images that the run has not seen."""
        directions = self.rows(features).directions
        near = exact_neighbors(directions, self._kept_directions, n_neighbors=self.n_neighbors)
        return shared(self.own_evidence(features), neighbor_means(self._kept_evidence, near))

    def own_evidence(self, features: Tensor) -> Tensor:
        """(n, C) for each class, whatever its neighbors are; -inf for a class without members."""
        found = self.rows(features).evidence(self.counts, self.sums)
        return found.masked_fill(self.counts <= 0, -torch.inf)

    def probabilities(self, features: Tensor) -> npt.NDArray[np.float32]:
        """(n, C) of each class, as sure on average as the run was."""
        return softmax(self.evidence(features), self.temperature)

    def outlier_score(self, features: Tensor) -> FloatArray:
        """(n,) 0 to 1, see `outlier_score`."""
        fits = fit(self.own_evidence(features)) - self.unlike(features)
        return outlier_score(fits, self.temperature)

    def unlike(self, features: Tensor) -> Tensor:
        """(n,) log-odds of a class nobody has seen, by how unlike the run each image is. Ours."""
        if not self.fit_spread:
            return torch.zeros(len(features))
        unusual = self._leverage.unusual(self.projection.centered(features))
        return RULES.leverage_weight * self.fit_spread * unusual

    @cached_property
    def _kept_features(self) -> Tensor:
        return self.kept.float()

    @cached_property
    def _leverage(self) -> Leverage:
        return fit_leverage(self.projection.centered(self._kept_features))

    @cached_property
    def _kept_directions(self) -> Tensor:
        return self.rows(self._kept_features).directions

    @cached_property
    def _kept_evidence(self) -> Tensor:
        return self.own_evidence(self._kept_features)

    def with_classes(self, members: Sequence[Tensor], *, at: int, weight: float) -> Sorter:
        """With a class for each group of (n, D) unit rows, at a position.

        weight: of each of these images; a labeled one counts 1.
        """
        if not members:
            return self
        counts = torch.tensor([weight * len(rows) for rows in members])
        sums = weight * torch.stack([self.projection(rows).sum(dim=0) for rows in members])
        return replace(
            self,
            counts=torch.cat([self.counts[:at], counts, self.counts[at:]]),
            sums=torch.cat([self.sums[:at], sums, self.sums[at:]]),
            kept=torch.cat([self.kept, *(rows.half() for rows in members)]),
        )

    def tensors(self) -> dict[str, Tensor]:
        """What is stored of it, beside `facts`."""
        return {
            "mean": self.projection.mean,
            "shift": self.projection.shift,
            "axes": self.projection.axes.contiguous(),
            "between": self.between,
            "counts": self.counts,
            "sums": self.sums,
            "kept": self.kept,
        }

    def facts(self) -> dict[str, float]:
        """Its numbers."""
        return {
            "temperature": self.temperature,
            "n_neighbors": self.n_neighbors,
            "fit_spread": self.fit_spread,
        }

    @classmethod
    def from_stored(
        cls, tensors: Mapping[str, Tensor], facts: Mapping[str, float], *, n_classes: int
    ) -> Sorter:
        """What `tensors` and `facts` gave; a ValueError or KeyError where they do not fit."""
        refuse_unfit(tensors, n_classes)
        return cls(
            Projection(tensors["mean"], tensors["shift"], tensors["axes"]),
            tensors["between"],
            tensors["counts"],
            tensors["sums"],
            tensors["kept"],
            facts["temperature"],
            int(facts["n_neighbors"]),
            float(facts.get("fit_spread", 0.0)),
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A sorter, and what it says of the run's own N images."""

    sorter: Sorter
    evidence: Tensor
    """(N, C) of each image as if it were new: it is no member of its own class."""
    outlier_score: FloatArray
    """(N,) of each image alone, as if it were new, by the evidence: it is like the run."""


def fit_sorter(
    features: Tensor,
    class_ids: IntArray,
    labels: IntArray,
    neighbors: IntArray,
    *,
    n_classes: int,
    sure: float | None = None,
    seed: int,
) -> Fitted:
    """The sorter of N images that are in C classes. Ours.

    Args:
        features: (N, D) unit rows.
        class_ids: (N,) the class of every image.
        labels: (N,) class of images that are certain, -1 for the others.
        neighbors: (N, K) similar images, best first.
        sure: mean confidence of images that are not certain; None: by how many are right.
    """
    space, weights = leveled(fit_space(features, labels, seed=seed)), weights_by(labels)
    counts, sums = space.sums(class_ids, n_classes, weights)
    n_neighbors = max(1, min(neighbors.shape[1], len(features) // RULES.rows_per_neighbor))
    means = neighbor_means(space.evidence(counts, sums), neighbors[:, :n_neighbors])
    own = without_itself(space, class_ids, weights, counts, sums)
    evidence = shared(own, means)
    if sure is None:
        sure = float((evidence.argmax(dim=1).numpy() == class_ids).mean())
    free = torch.from_numpy(labels < 0 if (labels < 0).any() else labels >= 0)
    temperature = matching_temperature(evidence[free], sure)
    chosen = torch.from_numpy(sample(len(features), MOST_KEPT, seed))
    fits = fit(own)
    assert space.projection is not None
    sorter = Sorter(
        space.projection,
        space.between,
        counts,
        sums,
        features[chosen].half(),
        temperature,
        n_neighbors,
        float(fits.std(correction=0)),
    )
    return Fitted(sorter, evidence, outlier_score(fits, temperature))


def weights_by(labels: IntArray) -> Tensor:
    """(N,) how much each image counts in its class, by (N,) labels where -1 = unlabeled."""
    return torch.from_numpy(np.where(labels >= 0, 1.0, RULES.unlabeled_weight)).float()


def sort_others(
    others: Tensor,
    features: Tensor,
    class_ids: IntArray,
    labels: IntArray,
    *,
    n_classes: int,
    seed: int,
) -> IntArray:
    """(M,) classes of (M, D) other images, by the evidence of each image alone. Ours.

    Neighbors are not asked: they are as uneven as the classes of the N images are, and where the
    others are not, large classes would take the images of small ones.

    Args:
        features: (N, D) unit rows that the classes were found from.
        class_ids: (N,) their classes; a class without images is nobody's.
        labels: (N,) -1 = unlabeled.
    """
    space = leveled(fit_space(features, labels, seed=seed))
    counts, sums = space.sums(class_ids, n_classes, weights_by(labels))
    assert space.projection is not None
    evidence = ClassSpace(space.projection(others), space.between).evidence(counts, sums)
    return as_ids(evidence.masked_fill(counts <= 0, -torch.inf).argmax(dim=1))


def refuse_unfit(tensors: Mapping[str, Tensor], n_classes: int) -> None:
    """A ValueError unless the stored tensors are those of a sorter of so many classes."""
    n_dims, n_axes = tensors["axes"].shape
    shapes = {
        "mean": (n_dims,),
        "shift": (n_dims,),
        "between": (n_axes,),
        "counts": (n_classes,),
        "sums": (n_classes, n_axes),
        "kept": (len(tensors["kept"]), n_dims),
    }
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensors[name].shape)} instead of {shape}")
    if not all(each.isfinite().all() for each in tensors.values()):
        raise ValueError("a value is not finite")


def leveled(space: ClassSpace) -> ClassSpace:
    """The space with the same variance between classes along all axes. Ours.

    Classes that are still to come differ from the others in any direction, not just in those in
    which the classes of the run differ.
    """
    level = space.between.mean().expand_as(space.between).contiguous()
    return ClassSpace(space.rows, level, space.projection)


def neighbor_means(values: Tensor, neighbors: IntArray) -> Tensor:
    """(n, C) mean of the (M, C) values of each row's neighbors."""
    result = values.new_empty(len(neighbors), values.shape[1])
    index = torch.from_numpy(neighbors)
    for start in range(0, len(neighbors), CHUNK):
        result[start : start + CHUNK] = values[index[start : start + CHUNK]].mean(dim=1)
    return result


def shared(own: Tensor, of_neighbors: Tensor) -> Tensor:
    """(n, C) evidence of an image and of its neighbors, which together count as much as it."""
    return (own + of_neighbors) / 2


def fit(evidence: Tensor) -> Tensor:
    """(n,) log-odds of one of the classes against one nobody has seen, as likely beforehand.

    evidence: (n, C) of each image alone.
    """
    n_classes = (evidence > -torch.inf).sum(dim=1)
    return evidence.logsumexp(dim=1) - n_classes.log()


def outlier_score(fits: Tensor, temperature: float) -> FloatArray:
    """(n,) probability of a class nobody has seen, of (n,) log-odds against it."""
    return np.asarray((-fits / temperature).sigmoid().double().numpy())


def softmax(evidence: Tensor, temperature: float) -> npt.NDArray[np.float32]:
    """(n, C) probabilities."""
    found: npt.NDArray[np.float32] = (evidence / temperature).softmax(dim=1).numpy()
    return found
