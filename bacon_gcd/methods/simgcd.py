"""SimGCD (arXiv 2211.11727): a cosine classifier taught by its own sharper view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import CosineClassifier, Projector
from bacon_gcd.losses import self_distillation
from bacon_gcd.methods.base import Group, Method, MethodSettings, Recipe, TailSource, Task
from bacon_gcd.methods.schedules import ramp
from bacon_gcd.objectives import Prior, classify_labels, contrast_images, contrast_labels

NATIVE = Recipe(batch_size=128)
NATIVE_CIFAR100 = {"entropy_weight": 4.0}  # of the authors' script


@dataclass(frozen=True)
class SimGCDSettings(MethodSettings):
    """As published."""

    supervised_share: Annotated[float, "alpha: weight of what labels teach, 1 - alpha else"] = 0.35
    entropy_weight: Annotated[float, "epsilon: 1; the authors take 4 on CIFAR-100, 2 on CUB"] = 1.0
    temperature: Annotated[float, "of the learning side"] = 0.1
    teacher_start: Annotated[float, "teacher temperature at the first epoch"] = 0.07
    teacher_end: Annotated[float, "teacher temperature after the ramp"] = 0.04
    teacher_ramp: Annotated[float, "epochs of the teacher's ramp, at most the run's"] = 30
    unsupervised_temperature: Annotated[float, "of the contrast of images"] = 1.0
    supervised_temperature: Annotated[float, "of the contrast of labels"] = 0.07


ADAPTED = SimGCDSettings()


class SimGCD(Method):
    """One branch: projector and classifier side by side on the tail's features."""

    settings: SimGCDSettings

    def __init__(
        self, task: Task, backbone: TailSource, settings: SimGCDSettings = ADAPTED
    ) -> None:
        super().__init__(task, backbone, settings)
        self.tail = backbone.new_tail()
        self.classifier = CosineClassifier(self.feature_dim, task.n_classes)
        self.projector = Projector(self.feature_dim, width=None)

    def groups(self) -> list[Group]:
        """Biases and other vectors are not decayed."""
        trained = [p for p in self.parameters() if p.requires_grad]
        return [Group("all", trained, decay_vectors=False)]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """a labels + (1 - a)(distill + e reg), and GCD's two contrasts in the same shares."""
        s, share = self.settings, self.settings.supervised_share
        features = self.tail(batch.tokens)
        cosines = self.classifier(features)
        distill = self_distillation(
            cosines,
            teacher_temperature=self.teacher_temperature(batch.epoch),
            student_temperature=s.temperature,
        )
        supervised = classify_labels(cosines, batch, temperature=s.temperature)
        uniform = Prior.uniform(self.task.n_classes)
        entropy = uniform.penalty(cosines, temperature=s.temperature)
        similarity = self.projector.cosines(features)
        same_image = contrast_images(similarity, batch, temperature=s.unsupervised_temperature)
        same_label = contrast_labels(similarity, batch, temperature=s.supervised_temperature)
        return {
            "classify/supervised": share * supervised,
            "classify/distill": (1 - share) * distill,
            "classify/prior": (1 - share) * s.entropy_weight * entropy,
            "contrast/unsupervised": (1 - share) * same_image,
            "contrast/supervised": share * same_label,
        }

    def teacher_temperature(self, epoch: int) -> float:
        """Falls over the ramp: sharper and sharper."""
        s, epochs = self.settings, self.task.capped(self.settings.teacher_ramp)
        return ramp(s.teacher_start, s.teacher_end, epoch=epoch, epochs=epochs)

    def classify(self, tokens: Tensor) -> Tensor:
        """Cosines at the student's temperature."""
        logits: Tensor = self.classifier(self.tail(tokens)) / self.settings.temperature
        return logits
