"""The contract of a method: what it is given, and all that the rest of the package relies on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.classes.placed import nearest_class
from bacon_gcd.classes.reliability import CENTROID_TEMPERATURE
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
    """Length of the run."""

    @classmethod
    def from_labels(cls, labels: IntArray, *, n_classes: int, n_known: int, n_epochs: int) -> Task:
        """The task that (N,) visible labels describe, -1 = unlabeled."""
        counts = np.bincount(labels[labels >= 0], minlength=n_known)
        return cls(n_classes, n_known, tuple(counts.tolist()), len(labels), n_epochs)

    def scaled(self, epochs_of_200: float) -> int:
        """Epochs of this run that correspond to a length stated for 200 epochs, at least one.

        For schedules that are a share of the run; docs/methods/README.md says which those are.
        """
        return max(1, round(epochs_of_200 * self.n_epochs / REFERENCE_EPOCHS))

    def capped(self, epochs: float) -> int:
        """A length in epochs as it is stated, at least one and at most the run's.

        For schedules that need a number of steps, however long the run.
        """
        return max(1, min(round(epochs), self.n_epochs))


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
class MethodSettings:
    """What the settings of every method can be asked; a method adds its own fields."""

    priors: ClassVar[tuple[str, ...]] = ()
    """Choices of `prior`, for methods that have one."""

    @property
    def needs_oracle(self) -> bool:
        """Whether the true class counts must be handed to the method."""
        return False

    @property
    def needs_fresh_views(self) -> str | None:
        """Why stored views will not do and what to choose instead; None where they will."""
        return None


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
    """Class ids for any image, seen in training or new."""

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
    """One method: its branches as submodules, everything learned or estimated as state.

    What is declared here is all that the training loop, the model folder, the benchmark and the
    discovery rely on.
    """

    views: ClassVar[tuple[str, ...]] = ("weak", "weak")
    """Kinds of the views that a batch holds of each image."""
    has_classifier: ClassVar[bool] = True
    """Whether `classify` can be called."""
    answers_by: ClassVar[Literal["classifier", "centroids"]] = "classifier"
    """What decides the class of a new image."""
    clustered_tail: str = "tail"
    """The submodule that gives `features`."""
    training_only: tuple[str, ...] = ("projector",)
    """Submodules and buffers that a kept model does without."""
    headline: str = "classifier"
    """The block of result.json that corresponds to the paper's number for this method."""
    restarts: int = 10
    """Of the k-means that finds the centroids."""
    settings: MethodSettings
    class_counts: Tensor | None
    """(C,) estimated class sizes; None for a method that estimates none."""
    oracle_counts: Tensor | None
    """(C,) true class sizes, where settings ask for them; not part of the saved state."""

    def __init__(self, task: Task, backbone: TailSource, settings: MethodSettings) -> None:
        super().__init__()
        self.task, self.settings = task, settings
        self.feature_dim = backbone.feature_dim
        self.register_buffer("class_counts", None)
        self.register_buffer("oracle_counts", None, persistent=False)
        # One unit vector per class in feature space, set after training; see `set_centroids`.
        self.centroids: Tensor = nn.Buffer(torch.empty(0, 0))
        self.temperature: Tensor = nn.Buffer(torch.tensor(CENTROID_TEMPERATURE))

    @abstractmethod
    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Named, weighted terms of one step; the loop adds them, the log shows each."""

    def features(self, tokens: Tensor) -> Tensor:
        """(N, D) features of the tail that is clustered."""
        features: Tensor = self.get_submodule(self.clustered_tail)(tokens)
        return features

    def class_features(self, tokens: Tensor) -> Tensor:
        """(N, D) features on which classes are found; those that answer, if none else are."""
        return self.features(tokens)

    def classify(self, tokens: Tensor) -> Tensor:
        """(N, C) logits of the trained classifier, for methods that have one."""
        raise NotImplementedError(f"{type(self).__name__} has no classifier")

    def groups(self) -> list[Group]:
        """Which parameters each optimizer gets."""
        return [Group("all", [p for p in self.parameters() if p.requires_grad])]

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Before each epoch: priors, uncertainties, tables."""

    def after_step(self, batch: Batch) -> None:
        """After the optimizer's step: prototypes, moving averages."""

    def place_centroids(self, probe: Probe) -> None:
        """Find one centroid per class after training: k-means that keeps labeled images in theirs.

        Novel classes are in order of size, as in the estimated class counts. Each needs an
        unlabeled image; where there are too few, the last ones stay empty, with a centroid at the
        origin.
        """
        features = F.normalize(probe.run(self.features), dim=1)
        n_unlabeled = int((probe.labels < 0).sum())
        n_seen = len(np.unique(probe.labels[probe.labels >= 0]))
        n_filled = min(self.task.n_classes, max(n_seen + n_unlabeled, 1))
        found = kmeans(
            features, n_filled, labels=probe.labels, n_init=self.restarts, seed=probe.seed
        )
        sizes = np.bincount(found.labels, minlength=n_filled)
        sizes[: self.task.n_known] = sizes.max() + 1  # known classes keep their ids
        centroids = F.normalize(found.centroids[np.argsort(-sizes, kind="stable")], dim=1)
        self.set_centroids(F.pad(centroids, (0, 0, 0, self.task.n_classes - n_filled)))

    def set_centroids(
        self, centroids: Tensor, *, temperature: float = CENTROID_TEMPERATURE
    ) -> None:
        """Keep the classes' centroids and the temperature of their cosines with the model.

        Args:
            centroids: (C, D) unit rows; a row of zeros is a class without images.
            temperature: of the softmax over cosines.
        """
        self.centroids = centroids.to(self.temperature)
        self.temperature.fill_(temperature)

    def nearest_class(self, features: Tensor) -> IntArray:
        """(N,) class of the nearest centroid of (N, D) unit features; never an empty class."""
        return nearest_class(features, self.centroids)

    def predictor(self) -> Predictor:
        """How new images are answered: by the classifier or by the nearest centroid."""

        def unit_features(tokens: Tensor) -> Tensor:
            return F.normalize(self.features(tokens), dim=1)

        def by_centroids(tokens: Tensor) -> Tensor:
            cosines = unit_features(tokens) @ self.centroids.T
            # A class at the origin has cosine 0, which would beat every negative one.
            empty = ~self.centroids.any(dim=1)
            return (cosines / self.temperature).masked_fill(empty, -torch.inf)

        by_classifier = self.answers_by == "classifier"
        return Predictor(unit_features, self.classify if by_classifier else by_centroids)
