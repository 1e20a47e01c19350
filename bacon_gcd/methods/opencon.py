"""OpenCon (arXiv 2208.02764): three contrasts, with prototypes that say who belongs where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Prototypes, SmallProjector
from bacon_gcd.losses import prior_kl
from bacon_gcd.methods.base import Method, MethodSettings, Recipe, TailSource, Task
from bacon_gcd.methods.schedules import ramp
from bacon_gcd.objectives import contrast_images, contrast_labels, contrast_within, each_view
from bacon_gcd.pseudo_labels import below_quantile, novel_heavy_prior, standardize

NATIVE = Recipe(
    learning_rate=0.02,
    weight_decay=5e-4,
    batch_size=512,
    schedule="step",
    milestones=(0.5, 0.75),
    sampler="proportional",
)

# Settings and recipe that the authors take otherwise on ImageNet-100.
NATIVE_IMAGENET = ({"unlabeled_temperature": 0.6}, {"learning_rate": 0.01})


@dataclass(frozen=True)
class OpenConSettings(MethodSettings):
    """As published for CIFAR; lengths in epochs are of a run of 200."""

    unlabeled_weight: Annotated[float, "of the contrast of unlabeled images"] = 1.0
    unlabeled_temperature: Annotated[float, "0.4; 0.6 on ImageNet"] = 0.4
    labeled_weight: Annotated[float, "of the contrast of labels"] = 0.2
    labeled_temperature: Annotated[float, "of the contrast of labels"] = 0.1
    novel_weight: Annotated[float, "of the contrast of pseudo-labels, after its ramp"] = 0.1
    novel_temperature: Annotated[float, "of the contrast of pseudo-labels"] = 0.7
    novel_ramp: Annotated[float, "epochs until the novel contrast has its weight"] = 100
    novel_quantile: Annotated[float, "novel scores below this quantile of labeled rows"] = 0.3
    prior_weight: Annotated[float, "of the divergence from the prior"] = 0.05
    labeled_share: Annotated[float, "of the known classes' images, for the prior"] = 0.5
    temperature: Annotated[float, "of the prototypes' cosines; OpenCon's factor 10"] = 0.1
    momentum: Annotated[float, "how much of a prototype stays at each member"] = 0.9
    projection: Annotated[int, "length of the projected vectors"] = 128


ADAPTED = OpenConSettings()


class OpenCon(Method):
    """One branch: tail and projector, with prototypes in the projected space."""

    training_only = ()  # the projector answers, too
    settings: OpenConSettings

    def __init__(
        self, task: Task, backbone: TailSource, settings: OpenConSettings = ADAPTED
    ) -> None:
        super().__init__(task, backbone, settings)
        s = settings
        self.tail = backbone.new_tail()
        self.projector = SmallProjector(self.feature_dim, s.projection)
        # Drawn like the layers' first weights: from the generator the caller has seeded.
        start = torch.default_generator
        self.prototypes = Prototypes(task.n_classes, s.projection, s.momentum, generator=start)
        self.members: tuple[Tensor, Tensor] | None = None

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Three contrasts, each among its own rows only, and the prior of the unlabeled rows."""
        s = self.settings
        z = self.projector(self.tail(batch.tokens))
        first = z[: len(batch.labels)]
        scores = self.prototypes.scores(first) / s.temperature
        groups, novel = self.assign(scores.detach(), batch)
        moved = batch.labeled | (groups >= self.task.n_known)
        self.members = first.detach()[moved], groups[moved]  # as they are before the step

        similarity, free = z @ z.T, ~batch.labeled
        unlabeled = contrast_images(
            similarity, batch, temperature=s.unlabeled_temperature, rows=free
        )
        labeled = contrast_labels(similarity, batch, temperature=s.labeled_temperature)
        pseudo = contrast_within(
            similarity, each_view(groups, z), each_view(novel, z), temperature=s.novel_temperature
        )
        spread = prior_kl(scores[free].softmax(dim=1), self.prior().to(z), floor=1e-5)
        return {
            "contrast/unlabeled": s.unlabeled_weight * unlabeled,
            "contrast/labeled": s.labeled_weight * labeled,
            "contrast/novel": self.novel_weight(batch.epoch) * pseudo,
            "classify/prior": s.prior_weight * spread,
        }

    def prior(self) -> Tensor:
        """(C,) shares of the classes among unlabeled images: known ones less their labels."""
        share = self.settings.labeled_share
        return novel_heavy_prior(self.task.n_classes, self.task.n_known, labeled_share=share)

    def assign(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B,) label or pseudo-label, and (B,) bool: unlabeled rows that look novel.

        Pseudo-labels range over all classes, as in the authors' code; the paper gives novel rows
        novel classes only.
        """
        scores = standardize(scores)
        groups = scores.argmax(dim=1).where(~batch.labeled, batch.labels)
        knownness = scores[:, : max(self.task.n_known, 1)].amax(dim=1)
        low = below_quantile(
            knownness, knownness[batch.labeled], quantile=self.settings.novel_quantile
        )
        return groups, low & ~batch.labeled

    def novel_weight(self, epoch: int) -> float:
        """Of an epoch: pseudo-labels count more as they become better."""
        epochs = self.task.scaled(self.settings.novel_ramp) + 1  # full weight after the ramp
        return ramp(0.0, self.settings.novel_weight, epoch=epoch, epochs=epochs)

    def after_step(self, batch: Batch) -> None:
        """Prototypes move towards labeled rows and rows taken for novel."""
        if self.members is not None:
            self.prototypes.update(*self.members, generator=batch.generator())
            self.members = None

    def classify(self, tokens: Tensor) -> Tensor:
        """Cosines with the prototypes, times 10 as in training."""
        z = self.projector(self.tail(tokens))
        return self.prototypes.scores(z) / self.settings.temperature
