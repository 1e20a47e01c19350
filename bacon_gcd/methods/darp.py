"""DARP (arXiv 2007.08844): FixMatch whose pseudo-labels are moved to given class sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.cluster import kmeans
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.distribution import class_counts_from_clusters
from bacon_gcd.heads import CosineClassifier, Ema
from bacon_gcd.losses import fill_empty
from bacon_gcd.methods.base import Method, Probe, Recipe, TailSource, Task
from bacon_gcd.methods.schedules import early_decay
from bacon_gcd.objectives import fixmatch_terms
from bacon_gcd.pseudo_labels import align, certainty, counts_from_confusion, denoise, rank_within

NATIVE = Recipe(
    optimizer="adam",
    learning_rate=2e-3,
    weight_decay=0.0,
    batch_size=128,
    epochs=500,
    schedule="constant",
    sampler="equal",
)
PRIORS = ("labeled", "clusters", "confusion", "oracle")


@dataclass(frozen=True)
class DARPSettings:
    """Lengths in epochs are of a run of 200: the warm-up is DARP's 200 of 500."""

    prior: Annotated[str, "sizes to align to: " + ", ".join(PRIORS)] = "labeled"
    warmup: Annotated[float, "epochs before pseudo-labels are refined"] = 80
    interval: Annotated[int, "steps between refinements; the authors take 100 on CIFAR-100"] = 10
    alpha: Annotated[float, "candidates per place when noise is removed"] = 2.0
    held_out: Annotated[int, "labeled images per class kept apart, for the prior confusion"] = 10
    threshold: Annotated[float, "confidence from which a pseudo-label is taught"] = 0.95
    classifier: Annotated[str, "cosine or linear"] = "cosine"
    temperature: Annotated[float, "of the logits: 0.1 for cosine, 1 for linear"] = 0.1
    decay: Annotated[float, "of the slow copy that answers"] = 0.999
    shrink: Annotated[float, "share the live weights lose each step (native: 4e-5)"] = 0.0

    def __post_init__(self) -> None:
        choose("prior", self.prior, PRIORS)
        choose("classifier", self.classifier, ("cosine", "linear"))


ADAPTED = DARPSettings()
NATIVE_SETTINGS = replace(ADAPTED, classifier="linear", temperature=1.0, shrink=0.02 * 2e-3)


class Tables(nn.Module):
    """What DARP remembers of every training image."""

    predictions: Tensor
    """(n_images, C) the last weak view's."""
    refined: Tensor
    """(n_images, C) after the last refinement; rows that never took part open no gate."""
    unlabeled: Tensor
    """(n_images,) bool."""
    held_out: Tensor
    """(n_images,) bool: labels that training does not see."""

    def __init__(self, n_images: int, n_classes: int) -> None:
        super().__init__()
        for name in ("predictions", "refined"):
            self.register_buffer(name, torch.full((n_images, n_classes), 1 / n_classes))
        for name in ("unlabeled", "held_out"):
            self.register_buffer(name, torch.zeros(n_images, dtype=torch.bool))


class DARP(Method):
    """One branch: tail and classifier, a slow copy that answers, and a table of predictions."""

    views: ClassVar[tuple[str, ...]] = ("weak", "strong", "strong")
    training_only: ClassVar[tuple[str, ...]] = ("live", "tables")

    def __init__(
        self,
        task: Task,
        backbone: TailSource,
        settings: DARPSettings = ADAPTED,
        *,
        oracle_counts: Tensor | None = None,
    ) -> None:
        super().__init__(task)
        if settings.prior == "oracle" and oracle_counts is None:
            raise UserError("prior 'oracle' needs the true class counts, which are not known here")
        self.settings, self.oracle_counts = settings, oracle_counts
        head = CosineClassifier if settings.classifier == "cosine" else nn.Linear
        self.live = nn.Sequential(backbone.new_tail(), head(backbone.feature_dim, task.n_classes))
        self.slow = Ema(self.live, settings.decay)
        self.tables = Tables(task.n_images, task.n_classes)
        for name in ("epoch", "epoch_steps", "steps", "n_estimates"):
            self.register_buffer(name, torch.tensor(0))
        # What the alignment aims at; the mean of the accepted estimates of the known classes.
        self.register_buffer("unlabeled_counts", torch.ones(task.n_classes))
        self.register_buffer("known_estimate", torch.zeros(task.n_known))
        self.epoch: Tensor
        self.epoch_steps: Tensor
        self.steps: Tensor
        self.n_estimates: Tensor
        self.unlabeled_counts: Tensor
        self.known_estimate: Tensor

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """FixMatch; after the warm-up its pseudo-labels are refined ones."""
        hidden = self.tables.held_out[batch.image_ids]
        batch = replace(batch, labels=batch.labels.masked_fill(hidden, -1))
        logits = self.live(batch.tokens) / self.settings.temperature
        weak = logits.detach()[: len(batch.labels)].softmax(dim=1)
        pseudo = self.refined(weak, batch)
        return fixmatch_terms(logits, batch, pseudo=pseudo, threshold=self.settings.threshold)

    @torch.no_grad()
    def refined(self, weak: Tensor, batch: Batch) -> Tensor:
        """(B, C) what the weak views are taken for; the table keeps what they say themselves."""
        turns = rank_within(batch.image_ids)
        for turn in range(int(turns.max()) + 1):  # of an image drawn twice the last one stays
            rows = turns == turn
            self.tables.predictions[batch.image_ids[rows]] = weak[rows].float()
        if self.warming_up:
            return weak
        if int(self.epoch_steps) % self.settings.interval == 0:
            self.refine()
        self.epoch_steps += 1
        return self.tables.refined[batch.image_ids]

    def refine(self) -> None:
        """Denoise, then align: the unlabeled rows of the table get the target class sizes."""
        rows, counts = self.tables.unlabeled, self.unlabeled_counts
        clean = denoise(self.tables.predictions[rows], counts, alpha=self.settings.alpha)
        self.tables.refined[rows] = align(clean, counts, certainty(clean)).to(clean)

    @property
    def warming_up(self) -> bool:
        """Whether pseudo-labels are still plain FixMatch ones."""
        return int(self.epoch) < self.task.scaled(self.settings.warmup)

    def refresh(self, epoch: int, probe: Probe) -> None:
        """The clock, who is unlabeled, and the class sizes to align to."""
        self.epoch.fill_(epoch)
        self.epoch_steps.zero_()
        labels = torch.from_numpy(probe.labels)
        self.tables.unlabeled.copy_(labels < 0)
        if self.settings.prior == "confusion":
            self.tables.held_out.copy_(held_out(labels, most=self.settings.held_out))
            if self.warming_up:
                self.learn_confusions(labels, probe)
        self.unlabeled_counts.copy_(self.target(probe))

    def target(self, probe: Probe) -> Tensor:
        """(C,) unlabeled images per class, from the source the settings name."""
        prior, n_unlabeled = self.settings.prior, int(self.tables.unlabeled.sum())
        labeled = torch.tensor(self.task.labeled_counts, dtype=torch.float32)
        if prior == "oracle" and self.oracle_counts is not None:
            return without_labeled(self.oracle_counts, labeled, n_unlabeled)
        if prior == "clusters":
            return without_labeled(self.clustered_counts(probe), labeled, n_unlabeled)
        known = self.known_estimate if self.n_estimates > 0 else labeled
        return spread_counts(known, self.task.n_classes, n_unlabeled)

    def clustered_counts(self, probe: Probe) -> Tensor:
        """(C,) class sizes as BaCon estimates them (§4.1), from this method's own features."""
        features = F.normalize(probe.run(self.features), dim=1)
        n_classes, n_known = self.task.n_classes, self.task.n_known
        found = kmeans(features, n_classes, n_init=1, seed=0)
        return class_counts_from_clusters(
            found.labels, probe.labels, n_classes=n_classes, n_known=n_known, rank_match=False
        )

    def learn_confusions(self, labels: Tensor, probe: Probe) -> None:
        """Add this epoch's estimate of the known classes, if it can be trusted, to the mean."""
        known = probe.run(lambda tokens: self.classify(tokens)[:, : self.task.n_known].softmax(1))
        kept, free = self.tables.held_out, self.tables.unlabeled
        found = counts_from_confusion(known[kept], labels[kept], known[free])
        if found is not None:
            self.n_estimates += 1
            self.known_estimate += (found.float() - self.known_estimate) / self.n_estimates

    def after_step(self, batch: Batch) -> None:
        """The slow copy follows."""
        self.steps += 1
        self.slow.decay = early_decay(int(self.steps), final=self.settings.decay)
        self.slow.update(self.live, shrink=self.settings.shrink)

    def features(self, tokens: Tensor) -> Tensor:
        """Of the slow copy's tail."""
        features: Tensor = self.slow.module.get_submodule("0")(tokens)
        return features

    def classify(self, tokens: Tensor) -> Tensor:
        """Of the slow copy."""
        logits: Tensor = self.slow(tokens) / self.settings.temperature
        return logits


def spread_counts(known: Tensor, n_classes: int, n_images: int) -> Tensor:
    """(C,) sizes: each class an equal share, known ones sharing theirs as `known` says. Ours."""
    shape = fill_empty(known)
    sizes = torch.ones(n_classes)
    sizes[: len(known)] = shape / shape.sum() * len(known)
    return sizes / n_classes * n_images


def without_labeled(counts: Tensor, labeled: Tensor, n_unlabeled: int) -> Tensor:
    """(C,) unlabeled images per class: all images less the labeled ones, at least none. Ours."""
    left = counts.float().clone()
    left[: len(labeled)] -= labeled
    left = left.clamp_min(0.0)
    return left * (n_unlabeled / left.sum().clamp_min(1.0))


def held_out(labels: Tensor, *, most: int) -> Tensor:
    """(N,) bool: the first labeled images of each class, `most` of them but at most half. DARP."""
    labeled = labels >= 0
    sizes = torch.bincount(labels[labeled], minlength=1)
    room = (sizes // 2).clamp_max(most)[labels.clamp_min(0)]
    return labeled & (rank_within(labels) < room)
