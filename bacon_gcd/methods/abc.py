"""ABC (arXiv 2110.10368): FixMatch with a second head that large classes may not dominate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from bacon_gcd.config import choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import Ema
from bacon_gcd.methods import fixmatch
from bacon_gcd.methods.base import Method, Probe, TailSource, Task
from bacon_gcd.objectives import balanced_terms, fixmatch_terms
from bacon_gcd.pseudo_labels import balanced_keep_rates


@dataclass(frozen=True)
class ABCSettings:
    """Sizes of novel classes are unknown, so their pseudo-labels are always kept."""

    priors: ClassVar = ("labeled", "oracle")
    prior: Annotated[str, "class sizes behind the keep rates: " + ", ".join(priors)] = "labeled"
    threshold: Annotated[float, "confidence from which a pseudo-label is taught"] = 0.95
    classifier: Annotated[str, "cosine or linear"] = "cosine"
    temperature: Annotated[float, "of the logits: 0.1 for cosine, 1 for linear"] = 0.1
    decay: Annotated[float, "of the slow copy that answers"] = 0.999
    shrink: Annotated[float, "share the live weights lose each step (native: 4e-5)"] = 0.0

    def __post_init__(self) -> None:
        choose("prior", self.prior, self.priors)
        choose("classifier", self.classifier, fixmatch.CLASSIFIERS)


ADAPTED = ABCSettings()
NATIVE_SETTINGS = replace(
    ADAPTED, classifier="linear", temperature=1.0, shrink=fixmatch.NATIVE_SHRINK
)


class ABC(Method):
    """One tail, two heads: the main one learns by FixMatch, the balanced one answers."""

    views = fixmatch.VIEWS
    training_only = ("live",)

    def __init__(
        self,
        task: Task,
        backbone: TailSource,
        settings: ABCSettings = ADAPTED,
        *,
        oracle_counts: Tensor | None = None,
    ) -> None:
        super().__init__(task)
        self.settings = settings
        head = settings.classifier, backbone.feature_dim, task.n_classes
        parts = {
            "tail": backbone.new_tail(),
            "main": fixmatch.new_classifier(*head),
            "balanced": fixmatch.new_classifier(*head),
        }
        self.live = nn.ModuleDict(parts)
        self.slow = Ema(self.live, settings.decay)
        # Without any known class there is nothing to balance: a rate of one for all.
        self.labeled_counts = torch.tensor(task.labeled_counts or (1,), dtype=torch.float32)
        self.counts = self.labeled_counts if oracle_counts is None else oracle_counts
        self.epoch = nn.Buffer(torch.tensor(0))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """FixMatch on the main head; on the balanced one with gates. Both train the tail."""
        s, n_classes = self.settings, self.task.n_classes
        features = self.live["tail"](batch.tokens)
        progress = int(self.epoch) / max(self.task.n_epochs, 1)
        return fixmatch_terms(
            self.live["main"](features) / s.temperature, batch, threshold=s.threshold
        ) | balanced_terms(
            self.live["balanced"](features) / s.temperature,
            batch,
            labeled_rates=balanced_keep_rates(self.labeled_counts, n_classes, progress=1.0),
            rates=balanced_keep_rates(self.counts, n_classes, progress=progress),
            generator=batch.generator(),
            threshold=s.threshold,
        )

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Only the clock of the keep rates."""
        self.epoch.fill_(epoch)

    def after_step(self, batch: Batch) -> None:
        """The slow copy follows."""
        self.slow.update(self.live, shrink=self.settings.shrink)

    def features(self, tokens: Tensor) -> Tensor:
        """Of the slow copy's tail."""
        features: Tensor = self.slow.module.get_submodule("tail")(tokens)
        return features

    def classify(self, tokens: Tensor) -> Tensor:
        """Of the slow copy's balanced head."""
        logits: Tensor = self.slow.module.get_submodule("balanced")(self.features(tokens))
        return logits / self.settings.temperature
