"""SimGCD (arXiv 2211.11727): a cosine classifier taught by its own sharper view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import CosineClassifier, Projector
from bacon_gcd.methods.base import Group, Method, Probe, Recipe, TailSource, Task
from bacon_gcd.methods.schedules import ramp
from bacon_gcd.objectives import Prior, contrastive_terms, self_distillation_terms

NATIVE = Recipe(batch_size=128)


@dataclass(frozen=True)
class SimGCDSettings:
    """As published; lengths in epochs are of a run of 200."""

    supervised_share: Annotated[float, "alpha: weight of what labels teach, 1 - alpha else"] = 0.35
    entropy_weight: Annotated[float, "epsilon: 1; the authors take 4 on CIFAR-100, 2 on CUB"] = 1.0
    temperature: Annotated[float, "of the learning side"] = 0.1
    teacher_start: Annotated[float, "teacher temperature at the first epoch"] = 0.07
    teacher_end: Annotated[float, "teacher temperature after the ramp"] = 0.04
    teacher_ramp: Annotated[float, "epochs of the teacher's ramp"] = 30
    unsupervised_temperature: Annotated[float, "of the contrast of images"] = 1.0
    supervised_temperature: Annotated[float, "of the contrast of labels"] = 0.07


ADAPTED = SimGCDSettings()


class SimGCD(Method):
    """One branch: projector and classifier side by side on the tail's features."""

    def __init__(
        self, task: Task, backbone: TailSource, settings: SimGCDSettings = ADAPTED
    ) -> None:
        super().__init__(task)
        self.settings = settings
        self.tail = backbone.new_tail()
        self.classifier = CosineClassifier(backbone.feature_dim, task.n_classes)
        self.projector = Projector(backbone.feature_dim, width=None)
        self.epoch = nn.Buffer(torch.tensor(0))

    def groups(self) -> list[Group]:
        """Biases and other vectors are not decayed."""
        trained = [p for p in self.parameters() if p.requires_grad]
        return [Group("all", trained, decay_vectors=False)]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """(1 - a)(distill + e reg) + a labels, and GCD's two contrasts in the same shares."""
        s, share = self.settings, self.settings.supervised_share
        features = self.tail(batch.tokens)
        classify = self_distillation_terms(
            self.classifier(features),
            batch,
            Prior.uniform(self.task.n_classes),
            teacher_temperature=self.teacher_temperature,
            student_temperature=s.temperature,
            supervised_weight=share,
            distill_weight=1 - share,
            prior_weight=(1 - share) * s.entropy_weight,
        )
        return classify | contrastive_terms(
            self.projector.cosines(features),
            batch,
            unsupervised_weight=1 - share,
            supervised_weight=share,
            unsupervised_temperature=s.unsupervised_temperature,
            supervised_temperature=s.supervised_temperature,
        )

    @property
    def teacher_temperature(self) -> float:
        """Of this epoch: sharper and sharper."""
        s, epochs = self.settings, self.task.scaled(self.settings.teacher_ramp)
        return ramp(s.teacher_start, s.teacher_end, epoch=int(self.epoch), epochs=epochs)

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Only the clock of the teacher's ramp."""
        self.epoch.fill_(epoch)

    def features(self, tokens: Tensor) -> Tensor:
        """Of the tail."""
        features: Tensor = self.tail(tokens)
        return features

    def classify(self, tokens: Tensor) -> Tensor:
        """Cosines at the student's temperature."""
        logits: Tensor = self.classifier(self.tail(tokens)) / self.settings.temperature
        return logits
