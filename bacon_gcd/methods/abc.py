"""ABC (arXiv 2110.10368): FixMatch with a second head that large classes may not dominate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Ema
from bacon_gcd.methods import fixmatch
from bacon_gcd.methods.base import Method, TailSource, Task
from bacon_gcd.objectives import (
    agree_balanced,
    agree_when_confident,
    classify_balanced,
    classify_weak,
)
from bacon_gcd.pseudo_labels import balanced_keep_rates


@dataclass(frozen=True)
class ABCSettings(fixmatch.FixMatchSettings):
    """Sizes of novel classes are unknown, so their pseudo-labels are always kept."""

    prior: Annotated[
        str, "class sizes behind the keep rates: " + ", ".join(fixmatch.FixMatchSettings.priors)
    ] = "labeled"


ADAPTED = ABCSettings()
NATIVE_SETTINGS = fixmatch.as_published(ADAPTED)


class ABC(Method):
    """One tail, two heads: the main one learns by FixMatch, the balanced one answers."""

    views = fixmatch.VIEWS
    clustered_tail = "slow.module.tail"
    training_only = ("live",)
    settings: ABCSettings

    def __init__(self, task: Task, backbone: TailSource, settings: ABCSettings = ADAPTED) -> None:
        super().__init__(task, backbone, settings)
        head = settings.classifier, self.feature_dim, task.n_classes
        parts = {
            "tail": backbone.new_tail(),
            "main": fixmatch.new_classifier(*head),
            "balanced": fixmatch.new_classifier(*head),
        }
        self.live = nn.ModuleDict(parts)
        self.slow = Ema(self.live, settings.decay)
        # Without any known class there is nothing to balance: a rate of one for all.
        labeled = torch.tensor(task.labeled_counts or (1,), dtype=torch.float32)
        self.labeled_counts = nn.Buffer(labeled, persistent=False)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """FixMatch on the main head; on the balanced one with rates. Both train the tail."""
        threshold, temperature = self.settings.threshold, self.settings.temperature
        features = self.live["tail"](batch.tokens)
        main = self.live["main"](features) / temperature
        balanced = self.live["balanced"](features) / temperature
        labeled_rates, rates = self.rates(batch.epoch)
        draws = batch.generator()
        return {
            "classify/supervised": classify_weak(main, batch),
            "classify/confident": agree_when_confident(main, batch, threshold=threshold),
            "balanced/supervised": classify_balanced(
                balanced, batch, rates=labeled_rates, generator=draws
            ),
            "balanced/confident": agree_balanced(
                balanced, batch, rates=rates, generator=draws, threshold=threshold
            ),
        }

    def rates(self, epoch: int) -> tuple[Tensor, Tensor]:
        """(C,) shares that take part: of labels, and of pseudo-labels, falling during the run."""
        n_classes, progress = self.task.n_classes, epoch / max(self.task.n_epochs, 1)
        counts = self.labeled_counts if self.oracle_counts is None else self.oracle_counts
        return (
            balanced_keep_rates(self.labeled_counts, n_classes, progress=1.0),
            balanced_keep_rates(counts, n_classes, progress=progress),
        )

    def after_step(self, batch: Batch) -> None:
        """The slow copy follows."""
        self.slow.update(self.live, shrink=self.settings.shrink)

    def classify(self, tokens: Tensor) -> Tensor:
        """Of the slow copy's balanced head."""
        logits: Tensor = self.slow.module.get_submodule("balanced")(self.features(tokens))
        return logits / self.settings.temperature
