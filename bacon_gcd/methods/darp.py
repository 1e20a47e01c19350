"""DARP (arXiv 2007.08844): FixMatch whose pseudo-labels are moved to given class sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from bacon_gcd.alignment import align, certainty, denoise
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Ema
from bacon_gcd.methods import fixmatch
from bacon_gcd.methods.base import Method, Probe, TailSource, Task
from bacon_gcd.methods.target_sizes import SOURCES, TargetSizes
from bacon_gcd.objectives import agree_when_confident, classify_weak
from bacon_gcd.pseudo_labels import rank_within


@dataclass(frozen=True)
class DARPSettings(fixmatch.FixMatchSettings):
    """Lengths in epochs are of a run of 200: the warm-up is DARP's 200 of 500."""

    priors: ClassVar[tuple[str, ...]] = SOURCES
    prior: Annotated[str, "sizes to align to: " + ", ".join(SOURCES)] = "labeled"
    warmup: Annotated[float, "epochs before pseudo-labels are refined"] = 80
    interval: Annotated[int, "steps between refinements; the authors take 100 on CIFAR-100"] = 10
    alpha: Annotated[float, "candidates per image of a class when noise is removed"] = 2.0
    held_out: Annotated[int, "labeled images per class kept apart, for the prior confusion"] = 10


ADAPTED = DARPSettings()
NATIVE_SETTINGS = fixmatch.as_published(ADAPTED)


class DARP(Method):
    """One branch: tail and classifier, a slow copy that answers, and tables of predictions."""

    views = fixmatch.VIEWS
    clustered_tail = "slow.module.0"
    training_only = ("live", "sizes", "predictions", "refined", "unlabeled")
    settings: DARPSettings

    def __init__(self, task: Task, backbone: TailSource, settings: DARPSettings = ADAPTED) -> None:
        super().__init__(task, backbone, settings)
        tail = backbone.new_tail()
        head = fixmatch.new_classifier(settings.classifier, self.feature_dim, task.n_classes)
        self.live = nn.Sequential(tail, head)
        self.slow = Ema(self.live, settings.decay)
        self.sizes = TargetSizes(task, settings.prior, most_held_out=settings.held_out)
        # (n_images, C) of the last weak view, and after the last refinement; rows that never took
        # part in one are below every threshold.
        unsure = torch.full((task.n_images, task.n_classes), 1 / task.n_classes)
        self.predictions, self.refined = nn.Buffer(unsure), nn.Buffer(unsure.clone())
        self.unlabeled = nn.Buffer(torch.zeros(task.n_images).bool())

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """FixMatch; after the warm-up its pseudo-labels are refined ones."""
        hidden = self.sizes.held_out[batch.image_ids]
        batch = replace(batch, labels=batch.labels.masked_fill(hidden, -1))
        logits = self.live(batch.tokens) / self.settings.temperature
        weak = logits.detach()[: len(batch.labels)].softmax(dim=1)
        pseudo = self.pseudo(weak, batch)
        threshold = self.settings.threshold
        return {
            "classify/supervised": classify_weak(logits, batch),
            "classify/confident": agree_when_confident(
                logits, batch, pseudo=pseudo, threshold=threshold
            ),
        }

    @torch.no_grad()
    def pseudo(self, weak: Tensor, batch: Batch) -> Tensor:
        """(B, C) what the weak views are taken for; the table keeps what they say themselves."""
        last = rank_within(batch.image_ids.flip(0)).flip(0) == 0  # of an image drawn twice
        self.predictions[batch.image_ids[last]] = weak[last].to(self.predictions)
        if self.warming_up(batch.epoch):
            return weak
        if batch.step % self.settings.interval == 0:
            self.refine()
        return self.refined[batch.image_ids]

    def refine(self) -> None:
        """Denoise, then align: the unlabeled rows of the table get the target class sizes."""
        rows, counts = self.unlabeled, self.sizes.counts
        clean = denoise(self.predictions[rows], counts, alpha=self.settings.alpha)
        self.refined[rows] = align(clean, counts, certainty(clean)).to(self.refined)

    def warming_up(self, epoch: int) -> bool:
        """Whether pseudo-labels are still plain FixMatch ones."""
        return epoch < self.task.scaled(self.settings.warmup)

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Which images are unlabeled, and the class sizes to align to."""
        self.unlabeled.copy_(torch.from_numpy(probe.labels < 0))
        self.sizes.refresh(self, probe, learning=self.warming_up(epoch))

    def after_step(self, batch: Batch) -> None:
        """The slow copy follows."""
        self.slow.update(self.live, shrink=self.settings.shrink)

    def classify(self, tokens: Tensor) -> Tensor:
        """Of the slow copy."""
        logits: Tensor = self.slow(tokens) / self.settings.temperature
        return logits
