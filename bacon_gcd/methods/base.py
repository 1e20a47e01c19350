"""The contract every method keeps; the training loop knows nothing else about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from bacon_gcd.data.batches import Batch

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Task:
    """What a method may know. No hidden truth: an oracle prior is passed by name."""

    n_classes: int
    n_known: int
    labeled_counts: tuple[int, ...]
    """Labeled images of each known class."""
    n_images: int
    """Training images, labeled and unlabeled."""


class TailSource(Protocol):
    """The part of a backbone a method needs: it asks for as many tails as it has branches."""

    feature_dim: int

    def new_tail(self) -> nn.Module: ...


@dataclass(frozen=True)
class Recipe:
    """How a method is optimized. Milestones and ramps are fractions of the run's length."""

    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-5
    batch_size: int = 256
    epochs: int = 200
    schedule: str = "cosine"
    """cosine (to 1e-3 of the rate, stepped per epoch), step (x 0.1 at milestones) or constant."""
    milestones: tuple[float, ...] = ()
    optimizer: str = "sgd"
    """sgd or adam."""


@dataclass(frozen=True)
class Group:
    """Parameters that share an optimizer. BaCon has one group per branch."""

    name: str
    parameters: list[nn.Parameter]
    decay_vectors: bool = True
    """Whether biases and other 1-d parameters are decayed too."""


class Probe(Protocol):
    """An ordered, gradient-free look at the whole training set, handed to `refresh`."""

    labels: IntArray
    """(N,) what is visible, -1 = unlabeled."""

    def run(self, function: Callable[[Tensor], Tensor], view: int | None = None) -> Tensor:
        """function(tokens) of every training image, in order; the test view unless one is named."""

    @property
    def n_views(self) -> int:
        """How many training views can be named."""


class Predictor(Protocol):
    """Class ids for any image, seen or new: the same ids for ever."""

    def predict(self, tokens: Tensor) -> IntArray: ...

    def probabilities(self, tokens: Tensor) -> FloatArray: ...

    def features(self, tokens: Tensor) -> FloatArray: ...
