"""k-means on frozen features: needs no training, and is what every trained method should beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.cluster import kmeans
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods.base import IntArray, Method, MethodSettings, Probe, Recipe, TailSource, Task
from bacon_gcd.metrics import name_clusters


@dataclass(frozen=True)
class KMeansSettings(MethodSettings):
    """Labels name the clusters of plain k-means; in anchored k-means they fix known classes."""

    anchored: Annotated[bool, "labeled images stay in their class (semi-supervised)"] = False
    restarts: Annotated[int, "k-means restarts; the tightest clusters are kept"] = 10


NO_TRAINING = Recipe(epochs=0)
PLAIN = KMeansSettings()
ANCHORED = KMeansSettings(anchored=True)


class KMeans(Method):
    """Clusters of the backbone's own features, without training."""

    has_classifier = False
    answers_by = "centroids"
    settings: KMeansSettings

    def __init__(self, task: Task, backbone: TailSource, settings: KMeansSettings = PLAIN) -> None:
        super().__init__(task, backbone, settings)
        self.restarts = settings.restarts
        self.headline = "inductive" if settings.anchored else "test_kmeans"
        self.tail = backbone.new_tail().requires_grad_(False)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """None: there is nothing to learn."""
        return {}

    def place_centroids(self, probe: Probe) -> None:
        """Anchored: as of every method. Plain: known classes get the cluster of most labels."""
        if self.settings.anchored:
            super().place_centroids(probe)
            return
        n_classes, n_known = self.task.n_classes, self.task.n_known
        features = F.normalize(probe.run(self.features), dim=1)
        n_filled = min(n_classes, len(features))
        found = kmeans(features, n_filled, n_init=self.restarts, seed=probe.seed)
        names = name_clusters(found.labels, probe.labels, n_clusters=n_filled, n_known=n_known)
        centroids = torch.zeros(n_classes, features.shape[1], device=features.device)
        slots = class_slots(names, n_known=n_known, n_classes=n_classes)
        centroids[slots] = F.normalize(found.centroids.float(), dim=1)
        self.set_centroids(centroids)


def class_slots(names: IntArray, *, n_known: int, n_classes: int) -> IntArray:
    """Class id of each cluster: its name if it has one, else the next free id, novel ones first."""
    free = [c for c in [*range(n_known, n_classes), *range(n_known)] if c not in names]
    slots = names.copy()
    slots[names < 0] = np.array(free[: int((names < 0).sum())], dtype=np.int64)
    return slots
