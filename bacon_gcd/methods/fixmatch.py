"""What ABC and DARP take from FixMatch, which both extend: views, recipe, settings, classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeVar

from torch import nn

from bacon_gcd.config import choose
from bacon_gcd.heads import CosineClassifier
from bacon_gcd.methods.base import MethodSettings, Recipe

VIEWS = ("weak", "strong", "strong")
CLASSIFIERS = ("cosine", "linear")
NATIVE = Recipe(
    optimizer="adam",
    learning_rate=2e-3,
    weight_decay=0.0,
    batch_size=128,
    epochs=500,
    schedule="constant",
    sampler="equal",
)
NATIVE_SHRINK = 0.02 * NATIVE.learning_rate
"""Weight decay of the originals: what every live weight loses at each step."""


@dataclass(frozen=True)
class FixMatchSettings(MethodSettings):
    """Of both methods; each has its own sources of class sizes."""

    priors: ClassVar[tuple[str, ...]] = ("labeled", "oracle")
    prior: Annotated[str, "class sizes: " + ", ".join(priors)] = "labeled"
    threshold: Annotated[float, "confidence from which a pseudo-label is taught"] = 0.95
    classifier: Annotated[str, "cosine or linear"] = "cosine"
    temperature: Annotated[float, "of the logits: 0.1 for cosine, 1 for linear"] = 0.1
    decay: Annotated[float, "of the slow copy that answers"] = 0.999
    shrink: Annotated[float, "share the live weights lose each step (native: 4e-5)"] = 0.0

    def __post_init__(self) -> None:
        choose("prior", self.prior, self.priors)
        choose("classifier", self.classifier, CLASSIFIERS)

    @property
    def needs_oracle(self) -> bool:
        """Whether the true class counts must be handed to the method."""
        return self.prior == "oracle"


Settings = TypeVar("Settings", bound=FixMatchSettings)


def as_published(settings: Settings) -> Settings:
    """The same with the originals' classifier and weight decay."""
    return replace(settings, classifier="linear", temperature=1.0, shrink=NATIVE_SHRINK)


def new_classifier(kind: str, dim: int, n_classes: int) -> nn.Module:
    """Features to C logits; cosines as in the other methods, or the originals' linear layer."""
    return (CosineClassifier if kind == "cosine" else nn.Linear)(dim, n_classes)
