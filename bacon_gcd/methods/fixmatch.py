"""What ABC and DARP take from FixMatch, which both extend: views, recipe, kind of classifier."""

from __future__ import annotations

from torch import nn

from bacon_gcd.heads import CosineClassifier
from bacon_gcd.methods.base import Recipe

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


def new_classifier(kind: str, dim: int, n_classes: int) -> nn.Module:
    """Features to C logits; cosines as in the other methods, or the originals' linear layer."""
    return (CosineClassifier if kind == "cosine" else nn.Linear)(dim, n_classes)
