"""ORCA (arXiv 2102.03526): partners agree; a margin slows known classes while novel ones form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import CosineClassifier
from bacon_gcd.methods.base import Method, MethodSettings, Probe, Recipe, TailSource, Task
from bacon_gcd.objectives import Prior, agree_with_partners, classify_with_margin
from bacon_gcd.pseudo_labels import uncertainty_margin

NATIVE = Recipe(
    weight_decay=5e-4,
    batch_size=512,
    schedule="step",
    milestones=(0.7, 0.9),
    sampler="proportional",
)

NATIVE_IMAGENET = {"weight_decay": 1e-4, "epochs": 90, "milestones": (1 / 3, 2 / 3)}


@dataclass(frozen=True)
class ORCASettings(MethodSettings):
    """As published: the three terms weigh the same."""

    temperature: Annotated[float, "of the cosines; ORCA's factor 10"] = 0.1
    margin_cap: Annotated[float, "largest margin, in cosine units; 0 switches it off"] = 0.5
    supervised_weight: Annotated[float, "of the labels with the margin"] = 1.0
    pairs_weight: Annotated[float, "of the partners' agreement"] = 1.0
    entropy_weight: Annotated[float, "of the mean prediction's entropy"] = 1.0


ADAPTED = ORCASettings()


class ORCA(Method):
    """One branch: tail and cosine classifier."""

    settings: ORCASettings

    def __init__(self, task: Task, backbone: TailSource, settings: ORCASettings = ADAPTED) -> None:
        super().__init__(task, backbone, settings)
        self.tail = backbone.new_tail()
        self.classifier = CosineClassifier(self.feature_dim, task.n_classes)
        self.margin = nn.Buffer(torch.tensor(settings.margin_cap))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Labels with the margin, view 1 against the partner's view 2, entropy of view 1."""
        s = self.settings
        features = self.tail(batch.tokens)
        cosines = self.classifier(features)
        first, second = cosines.chunk(2)
        pairs = agree_with_partners(first, second, features, batch, temperature=s.temperature)
        supervised = classify_with_margin(
            first, batch, margin=float(self.margin), temperature=s.temperature
        )
        uniform = Prior.uniform(self.task.n_classes)
        entropy = uniform.penalty(cosines[: len(first)], temperature=s.temperature)
        return {
            "classify/supervised": s.supervised_weight * supervised,
            "classify/pairs": s.pairs_weight * pairs,
            "classify/prior": s.entropy_weight * entropy,
        }

    def refresh(self, epoch: int, probe: Probe) -> None:
        """The margin is what confidence lacks on unlabeled images."""
        unlabeled = torch.from_numpy(probe.labels < 0)
        probabilities = probe.run(lambda tokens: self.classify(tokens).softmax(dim=1))
        margin = uncertainty_margin(probabilities[unlabeled], cap=self.settings.margin_cap)
        self.margin.fill_(margin)

    def classify(self, tokens: Tensor) -> Tensor:
        """10 x cosine."""
        logits: Tensor = self.classifier(self.tail(tokens)) / self.settings.temperature
        return logits
