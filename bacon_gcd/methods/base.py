"""The contract every method keeps; the training loop knows nothing else about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.classes.calibration import CENTROID_TEMPERATURE
from bacon_gcd.cluster import kmeans
from bacon_gcd.data.batches import Batch

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
REFERENCE_EPOCHS = 200  # the length in which the papers state their schedules


@dataclass(frozen=True)
class Task:
    """What a method may know. No hidden truth: an oracle prior is passed by name."""

    n_classes: int
    n_known: int
    labeled_counts: tuple[int, ...]
    """Labeled images of each known class."""
    n_images: int
    """Training images, labeled and unlabeled."""
    n_epochs: int
    """Length of the run; schedules stated in epochs of 200 are scaled to it."""

    @classmethod
    def from_labels(cls, labels: IntArray, *, n_classes: int, n_known: int, n_epochs: int) -> Task:
        """The task that (N,) visible labels describe, -1 = unlabeled."""
        counts = np.bincount(labels[labels >= 0], minlength=n_known)
        return cls(n_classes, n_known, tuple(counts.tolist()), len(labels), n_epochs)

    def scaled(self, epochs_of_200: float) -> int:
        """Epochs of this run that correspond to a length stated for 200 epochs, at least one."""
        return max(1, round(epochs_of_200 * self.n_epochs / REFERENCE_EPOCHS))


class TailSource(Protocol):
    """The part of a backbone a method needs: it asks for as many tails as it has branches."""

    feature_dim: int

    def new_tail(self) -> nn.Module:
        """A fresh trainable copy of the last part of the network."""


@dataclass(frozen=True)
class Recipe:
    """How a method is optimized. Milestones are fractions of the run's length."""

    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-5
    batch_size: int = 256
    epochs: int = REFERENCE_EPOCHS
    schedule: str = "cosine"
    """cosine (down to 1e-3 of the rate), step (x 0.1 at each milestone) or constant; per epoch."""
    milestones: tuple[float, ...] = ()
    optimizer: str = "sgd"
    """sgd or adam."""
    sampler: str = "half"
    """half, proportional or equal: how labeled and unlabeled images share a batch."""


@dataclass(frozen=True)
class Group:
    """Parameters that share an optimizer. BaCon has one group per branch."""

    name: str
    parameters: list[nn.Parameter]
    decay_vectors: bool = True
    """Whether biases and other 1-d parameters are decayed too."""


class Probe(Protocol):
    """An ordered, gradient-free look at the whole training set."""

    @property
    def labels(self) -> IntArray:
        """(N,) what is visible, -1 = unlabeled."""

    @property
    def seed(self) -> int:
        """The run's seed."""

    @property
    def n_views(self) -> int:
        """How many training views can be named in `run`."""

    def run(self, function: Callable[[Tensor], Tensor], view: int | None = None) -> Tensor:
        """function(tokens) of every image, in order; of the test view, or of a training view."""


@dataclass(frozen=True)
class Predictor:
    """Class ids for any image, seen or new: the same ids for ever."""

    features: Callable[[Tensor], Tensor]
    """tokens to (N, D) unit-length features."""
    logits: Callable[[Tensor], Tensor]
    """tokens to (N, C) logits; their softmax is the confidence."""

    @torch.no_grad()
    def predict(self, tokens: Tensor) -> IntArray:
        """(N,) class ids: known 0..K-1, novel K..C-1."""
        ids: IntArray = self.logits(tokens).argmax(dim=1).cpu().numpy()
        return ids

    @torch.no_grad()
    def probabilities(self, tokens: Tensor) -> FloatArray:
        """(N, C) probabilities."""
        values: FloatArray = self.logits(tokens).softmax(dim=1).float().cpu().numpy()
        return values


class Method(nn.Module, ABC):
    """One method: its branches as submodules, everything learned or estimated as state."""

    views: ClassVar[tuple[str, ...]] = ("weak", "weak")
    recipe: ClassVar[Recipe] = Recipe()
    headline: str = "classifier"
    """The block of result.json that corresponds to the paper's number for this method."""
    restarts: int = 10
    """Of the k-means that places the centroids."""
    training_only: ClassVar[tuple[str, ...]] = ("projector",)
    """Submodules that a kept model does without."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        # One centroid per class in feature space, set after training; part of the saved state.
        self.centroids: Tensor = nn.Buffer(torch.empty(0, 0))

    @abstractmethod
    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Named, weighted terms of one step; the loop adds them, the log shows each."""

    @abstractmethod
    def features(self, tokens: Tensor) -> Tensor:
        """(N, D) features of the branch that is clustered."""

    def classify(self, tokens: Tensor) -> Tensor | None:
        """(N, C) logits of the trained classifier, for methods that have one."""
        return None

    def groups(self) -> list[Group]:
        """Which parameters each optimizer gets."""
        return [Group("all", [p for p in self.parameters() if p.requires_grad])]

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Before each epoch: priors, uncertainties, temperatures, tables."""

    def after_step(self, batch: Batch) -> None:
        """After the optimizer's step: prototypes, moving averages."""

    def place_centroids(self, probe: Probe) -> None:
        """After training: one centroid per class, known classes held by their labels.

        Novel classes are in order of size, as in the estimated class counts. Each needs an
        unlabeled image; where there are too few, the last ones stay empty, with a centroid at the
        origin, which is nearest to nobody.
        """
        features = F.normalize(probe.run(self.features), dim=1)
        n_unlabeled = int((probe.labels < 0).sum())
        n_seen = len(np.unique(probe.labels[probe.labels >= 0]))
        n_filled = min(self.task.n_classes, max(n_seen + n_unlabeled, 1))
        found = kmeans(
            features, n_filled, labels=probe.labels, n_init=self.restarts, seed=probe.seed
        )
        sizes = np.bincount(found.labels, minlength=n_filled)
        sizes[: self.task.n_known] = sizes.max() + 1  # known classes keep their places
        centroids = F.normalize(found.centroids[np.argsort(-sizes, kind="stable")], dim=1)
        self.centroids = F.pad(centroids, (0, 0, 0, self.task.n_classes - n_filled))

    def predictor(self) -> Predictor:
        """By the classifier where it is the method's answer, otherwise by the nearest centroid."""

        def unit_features(tokens: Tensor) -> Tensor:
            return F.normalize(self.features(tokens), dim=1)

        def logits(tokens: Tensor) -> Tensor:
            by_head = self.classify(tokens) if self.headline == "classifier" else None
            if by_head is not None:
                return by_head
            return unit_features(tokens) @ self.centroids.T / CENTROID_TEMPERATURE

        return Predictor(unit_features, logits)
