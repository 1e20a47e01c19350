"""GCD (arXiv 2201.02609): two contrasts train the features, k-means finds the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from bacon_gcd.config import choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Projector
from bacon_gcd.methods.base import Method, MethodSettings, Recipe, TailSource, Task
from bacon_gcd.objectives import contrast_images, contrast_labels

NATIVE = Recipe(batch_size=128)


@dataclass(frozen=True)
class GCDSettings(MethodSettings):
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

    has_classifier = False
    answers_by = "centroids"
    settings: GCDSettings

    def __init__(self, task: Task, backbone: TailSource, settings: GCDSettings = ADAPTED) -> None:
        super().__init__(task, backbone, settings)
        self.headline = "joint_kmeans" if settings.clustering == "joint" else "test_kmeans"
        self.tail = backbone.new_tail()
        self.projector = Projector(self.feature_dim, width=settings.projector_width or None)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """(1 - lambda) same image over all rows + lambda same label over labeled rows."""
        s, share = self.settings, self.settings.supervised_share
        similarity = self.projector.cosines(self.tail(batch.tokens))
        same_image = contrast_images(
            similarity,
            batch,
            temperature=s.unsupervised_temperature,
            rows=~batch.labeled if s.unlabeled_only else None,
        )
        same_label = contrast_labels(similarity, batch, temperature=s.supervised_temperature)
        return {
            "contrast/unsupervised": (1 - share) * same_image,
            "contrast/supervised": share * same_label,
        }
