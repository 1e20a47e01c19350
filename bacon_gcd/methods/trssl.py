"""TRSSL (arXiv 2207.02269): pseudo-labels by Sinkhorn under a class prior, mixed and tempered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.config import UserError, choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import CosineClassifier, Ema
from bacon_gcd.losses import cross_entropy
from bacon_gcd.methods.base import Method, MethodSettings, Probe, Recipe, TailSource, Task
from bacon_gcd.pseudo_labels import (
    draw_mix,
    harden,
    long_tail_prior,
    mixup,
    sinkhorn,
    uncertainty_temperatures,
)

NEEDS_FRESH = "mix 'pixels' needs new views at every step: add --views fresh, or choose mix tokens"
NATIVE = Recipe(weight_decay=1e-4, batch_size=512, schedule="constant", sampler="equal")


@dataclass(frozen=True)
class TRSSLSettings(MethodSettings):
    """As published; a long-tailed prior needs the ratio, which is knowledge of an oracle."""

    prior: Annotated[str, "of the classes: uniform or long-tail"] = "uniform"
    ratio: Annotated[float, "largest over smallest class, for the prior long-tail"] = 100.0
    rounds: Annotated[int, "of Sinkhorn; three are far from its limit"] = 3
    epsilon: Annotated[float, "temperature of Sinkhorn"] = 0.05
    hard: Annotated[float, "novel mass from which a pseudo-label becomes hard"] = 0.5
    uncertainty_views: Annotated[int, "views that tell how unsure an image is"] = 10
    temperature: Annotated[float, "of labeled and of the surest images"] = 0.1
    mixup: Annotated[float, "a of Beta(a, a), the share of a mix; 0: no mixing"] = 0.75
    mix: Annotated[str, "what is mixed: tokens, or pixels, for which --views fresh"] = "tokens"
    decay: Annotated[float, "of the slow copy that answers"] = 0.999
    shrink: Annotated[float, "share the live weights lose each step (native: 2e-5)"] = 0.0

    def __post_init__(self) -> None:
        choose("prior", self.prior, ("uniform", "long-tail"))
        choose("mix", self.mix, ("tokens", "pixels"))

    @property
    def needs_fresh_views(self) -> str | None:
        """Only fresh views have pixels left to mix."""
        return NEEDS_FRESH if self.mixup and self.mix == "pixels" else None


ADAPTED = TRSSLSettings()
NATIVE_SETTINGS = replace(ADAPTED, shrink=2e-5)


class TRSSL(Method):
    """One branch: tail and cosine classifier, and a slow copy of both that answers."""

    clustered_tail = "slow.module.0"
    training_only = ("live",)
    settings: TRSSLSettings

    def __init__(self, task: Task, backbone: TailSource, settings: TRSSLSettings = ADAPTED) -> None:
        super().__init__(task, backbone, settings)
        classifier = CosineClassifier(self.feature_dim, task.n_classes)
        self.live = nn.Sequential(backbone.new_tail(), classifier)
        self.slow = Ema(self.live, settings.decay)
        self.temperatures = nn.Buffer(torch.full((task.n_images,), settings.temperature))

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Labeled images in one view, unlabeled ones in two, mixed with each other."""
        labeled, free = (rows.nonzero().squeeze(1) for rows in (batch.labeled, ~batch.labeled))
        first, second = batch.view(0), batch.view(1)
        known = F.one_hot(batch.labels[labeled], self.task.n_classes).to(first.dtype)
        own = self.temperatures[batch.image_ids]
        # Each view is taught what the other one is taken for.
        rows = torch.cat([labeled, free, free + len(batch.labels)])
        tokens = batch.tokens[rows]
        targets = torch.cat([known, self.pseudo(second[free]), self.pseudo(first[free])])
        temperatures = torch.cat([own[labeled], own[free], own[free]])
        if self.settings.mixup:
            share, order = draw_mix(
                len(rows), generator=batch.generator(), concentration=self.settings.mixup
            )
            tokens = self.mixed(batch, share, rows, rows[order])
            targets, temperatures = mixup(share, order, targets, temperatures)
        logits = self.live(tokens) / temperatures[:, None]
        return {"classify/mixed": cross_entropy(logits, targets)}

    def mixed(self, batch: Batch, share: float, rows: Tensor, partners: Tensor) -> Tensor:
        """(n, ...) tokens: rows mixed with their partners, before the frozen trunk or after it."""
        if self.settings.mix == "tokens":
            return share * batch.tokens[rows] + (1 - share) * batch.tokens[partners]
        if batch.mix_pixels is None:
            raise UserError(NEEDS_FRESH)
        return batch.mix_pixels(share, rows, partners)

    @torch.no_grad()
    def pseudo(self, tokens: Tensor) -> Tensor:
        """(n, C) pseudo-labels: Sinkhorn, then hard where a novel class is sure."""
        s, cosines = self.settings, self.live(tokens)
        prior = cosines.new_ones(self.task.n_classes)
        if s.prior == "long-tail":
            mass = (cosines / s.epsilon).logsumexp(dim=0)  # its order is that of the sums
            prior = long_tail_prior(mass, ratio=s.ratio, n_rows=len(cosines))
        soft = sinkhorn(cosines, prior.to(cosines), epsilon=s.epsilon, rounds=s.rounds)
        return harden(soft, n_known=self.task.n_known, threshold=s.hard)

    def refresh(self, epoch: int, probe: Probe) -> None:
        """From the second epoch on: how much the views of an unlabeled image disagree."""
        unlabeled = torch.from_numpy(probe.labels < 0)
        n_views = min(self.settings.uncertainty_views, probe.n_views)
        if epoch == 0 or not n_views or not unlabeled.any():
            return
        views = [
            probe.run(lambda tokens: self.classify(tokens).softmax(dim=1), view)[unlabeled]
            for view in range(1, n_views + 1)
        ]
        least = self.settings.temperature
        self.temperatures[unlabeled] = uncertainty_temperatures(torch.stack(views), least=least)

    def after_step(self, batch: Batch) -> None:
        """The slow copy follows."""
        self.slow.update(self.live, shrink=self.settings.shrink)

    def classify(self, tokens: Tensor) -> Tensor:
        """Of the slow copy, at the surest temperature."""
        logits: Tensor = self.slow(tokens) / self.settings.temperature
        return logits
