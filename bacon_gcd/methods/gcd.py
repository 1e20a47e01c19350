"""GCD (arXiv 2201.02609): two contrasts train the features, k-means finds the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from bacon_gcd.config import choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Projector
from bacon_gcd.methods.base import Method, Recipe, TailSource, Task
from bacon_gcd.objectives import contrast_within, contrastive_terms, each_view

NATIVE = Recipe(batch_size=128)


@dataclass(frozen=True)
class GCDSettings:
    """As published; lambda is the share of the labeled contrast."""

    supervised_share: Annotated[float, "lambda: of the labeled contrast; 1 - lambda else"] = 0.35
    unsupervised_temperature: Annotated[float, "of the contrast of images"] = 1.0
    supervised_temperature: Annotated[float, "of the contrast of labels"] = 0.07
    unlabeled_only: Annotated[bool, "the contrast of images leaves labeled ones out"] = False
    projector_width: Annotated[int, "last layer of the projector; 0 leaves it out"] = 65536
    clustering: Annotated[str, "for the score: test images, or joint with training ones"] = "test"

    def __post_init__(self) -> None:
        choose("clustering", self.clustering, ("test", "joint"))


ADAPTED = GCDSettings()


class GCD(Method):
    """One branch: tail and projector; no classifier."""

    def __init__(self, task: Task, backbone: TailSource, settings: GCDSettings = ADAPTED) -> None:
        super().__init__(task)
        self.settings = settings
        self.headline = "joint_kmeans" if settings.clustering == "joint" else "test_kmeans"
        self.tail = backbone.new_tail()
        self.projector = Projector(backbone.feature_dim, width=settings.projector_width or None)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Same image over all rows, same label over labeled rows."""
        s = self.settings
        similarity = self.projector.cosines(self.tail(batch.tokens))
        terms = contrastive_terms(
            similarity,
            batch,
            unsupervised_weight=1 - s.supervised_share,
            supervised_weight=s.supervised_share,
            unsupervised_temperature=s.unsupervised_temperature,
            supervised_temperature=s.supervised_temperature,
        )
        if s.unlabeled_only:
            images = torch.arange(len(batch.labels), device=similarity.device)
            terms["contrast/unsupervised"] = (1 - s.supervised_share) * contrast_within(
                similarity,
                each_view(images, similarity),
                each_view(~batch.labeled, similarity),
                temperature=s.unsupervised_temperature,
            )
        return terms

    def features(self, tokens: Tensor) -> Tensor:
        """Of the tail: the projection is for training only."""
        features: Tensor = self.tail(tokens)
        return features
