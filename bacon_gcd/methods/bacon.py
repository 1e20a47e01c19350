"""BaCon (arXiv 2310.01376): two branches on the same frozen tokens, each advising the other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bacon_gcd.classes.placed import Placed, in_correspondence, place_classes
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.batches import Batch
from bacon_gcd.heads import CosineClassifier, NoProjector, Projector
from bacon_gcd.losses import self_distillation
from bacon_gcd.methods.base import Group, Method, MethodSettings, Probe, TailSource, Task
from bacon_gcd.methods.class_sizes import clustered_counts
from bacon_gcd.methods.schedules import ramp
from bacon_gcd.objectives import (
    Prior,
    agree_with_partners,
    classify_labels,
    classify_with_margin,
    contrast_images,
    contrast_labels,
    contrast_softly,
)
from bacon_gcd.pseudo_labels import (
    debias,
    draw_counts,
    hard_positiveness,
    keep_rates,
    pick_confident,
    positiveness,
)

SOURCES = ("clusters", "classes")
UNTRAINED = "untrained"
Features = Callable[[Tensor], Tensor]
"""Tokens to features: a tail."""
# An estimate needs no measure of its own reliability, which costs more than the estimate.
QUICK_RULES = replace(RULES, whole_folds=0, halves=0)


@dataclass(frozen=True)
class BaConSettings(MethodSettings):
    """Every switch of the paper and its ablations."""

    priors: ClassVar = ("contrastive", "classifier", "labeled", "balanced", "oracle")
    style: Annotated[str, "classifier branch: S like SimGCD, O like ORCA"] = "S"
    prior: Annotated[str, "where class counts come from: " + ", ".join(priors)] = "contrastive"
    counts_by: Annotated[str, "class counts: sizes of clusters, or of classes that are found"] = (
        "clusters"
    )
    start_heads: Annotated[str, "classifier rows that start at found classes: none, novel, all"] = (
        "none"
    )
    centroids_by: Annotated[
        str, "centroids that answer: of clusters (k-means), classes, or classes found untrained"
    ] = "clusters"
    trained_share: Annotated[float, "of the trained tail in the one that answers, 0 to 1"] = 1.0
    interval: Annotated[float, "r: epochs of 200 between two estimates of the class counts"] = 10
    restarts: Annotated[int, "k-means restarts of an estimate"] = 1
    rank_match: Annotated[bool, "give cluster sizes to known classes by rank of labels"] = True
    match_cost: Annotated[str, "align clusters by labeled share of the cluster, or count"] = "share"
    power: Annotated[float, "p: smoothing of the prior, Eq. (2)"] = 1.1
    prior_form: Annotated[str, "Eq. (2) as released or as in the paper"] = "released"
    classifier_scale: Annotated[float, "overall weight of Eq. (3)"] = 0.35
    eta_1: Annotated[float, "weight of the unsupervised term in Eq. (3)"] = 0.65 / 0.35
    eta_2: Annotated[float, "weight of the prior term in Eq. (3)"] = 0.65 / 0.35
    temperature: Annotated[float, "of the classifier's cosines"] = 0.1
    teacher_start: Annotated[float, "teacher temperature at the first epoch"] = 0.07
    teacher_end: Annotated[float, "teacher temperature after the ramp"] = 0.04
    teacher_ramp: Annotated[float, "epochs of the teacher's ramp, at most the run's"] = 30
    contrastive_scale: Annotated[float, "overall weight of Eq. (7)"] = 0.65
    gamma_1: Annotated[float, "weight of the supervised contrast in Eq. (7)"] = 0.175 / 0.65
    gamma_2: Annotated[float, "weight of the soft contrast in Eq. (7)"] = 0.175 / 0.65
    warmup: Annotated[float, "epochs before the soft contrast starts, Algorithm 1"] = 1
    warmup_full: Annotated[bool, "in warm-up the supervised contrast has gamma_1+gamma_2"] = True
    unsupervised_temperature: Annotated[float, "of the unsupervised contrast"] = 1.0
    supervised_temperature: Annotated[float, "of the supervised contrast"] = 0.07
    soft_temperature: Annotated[float, "of the soft contrast"] = 0.07
    debias: Annotated[float, "k: strength of Eq. (4); 0 switches it off"] = 0.5
    sampling: Annotated[bool, "keep pseudo-labels by Eq. (5), or keep all"] = True
    alpha: Annotated[float, "keep-rate power of classes labeled in the batch, Eq. (5)"] = 0.0
    beta: Annotated[float, "keep-rate power of the other classes, Eq. (5)"] = 0.5
    counts: Annotated[str, "kept per class: random (binomial) or expected"] = "random"
    advice: Annotated[str, "pair weights of Eq. (6): soft, hard or none"] = "soft"
    similarity: Annotated[str, "positiveness by dot, cosine, l1 or l2"] = "dot"
    labeled_targets: Annotated[str, "labeled images enter as predicted or onehot"] = "predicted"
    same_image_one: Annotated[bool, "two views of an image have positiveness 1"] = True
    contrasted: Annotated[str, "what is contrasted: projections, or the features themselves"] = (
        "projections"
    )
    projector_width: Annotated[int, "last layer of the projector; 0 leaves it out"] = 65536

    def __post_init__(self) -> None:
        choose("style", self.style, ("S", "O"))
        choose("prior", self.prior, self.priors)
        choose("counts_by", self.counts_by, SOURCES)
        choose("start_heads", self.start_heads, ("none", "novel", "all"))
        choose("centroids_by", self.centroids_by, (*SOURCES, UNTRAINED))
        choose("contrasted", self.contrasted, ("projections", "features"))
        choose("counts", self.counts, ("random", "expected"))
        choose("advice", self.advice, ("soft", "hard", "none"))
        choose("labeled_targets", self.labeled_targets, ("predicted", "onehot"))
        if not 0 <= self.trained_share <= 1:
            raise UserError(f"trained_share {self.trained_share}: give a number from 0 to 1")

    @property
    def needs_oracle(self) -> bool:
        """Whether the true class counts must be handed to the method."""
        return self.prior == "oracle"


UNSUPERVISED = {"S": "distill", "O": "pairs"}  # how the log calls L_u of Eq. (3)

# What the authors' code does, and what the text says: docs/paper-vs-code.md has every difference.
RELEASED = BaConSettings()
PAPER = replace(
    RELEASED,
    power=0.5,
    prior_form="paper",
    alpha=0.8,
    counts="expected",
    same_image_one=False,
    unsupervised_temperature=1.0,
    supervised_temperature=1.0,
    soft_temperature=1.0,
    rank_match=False,
    match_cost="count",
    warmup_full=False,
)
# Ours. What it gains and what did not help: docs/methods/bacon.md and docs/results.md.
RECOMMENDED = replace(RELEASED, centroids_by=UNTRAINED, trained_share=0.5)


def orca_style(settings: BaConSettings) -> BaConSettings:
    """BaCon-O of a preset. Reconstructed from §4.1 and ORCA: the authors released S only."""
    return replace(settings, style="O", classifier_scale=1.0, eta_1=1.0, eta_2=1.0)


class Advice(NamedTuple):
    """What the classifier branch tells the contrastive branch about a batch."""

    positiveness: Tensor
    """(n, n) pair weights of the kept images."""
    kept: Tensor
    """(B,) bool: labeled images and sampled unlabeled ones."""


class BaCon(Method):
    """Two branches on the same frozen tokens; each gives the other what it knows best."""

    answers_by = "centroids"
    clustered_tail = "contrast_tail"  # Algorithm 2
    headline = "test_kmeans"
    settings: BaConSettings
    class_counts: Tensor

    def __init__(
        self, task: Task, backbone: TailSource, settings: BaConSettings = RELEASED
    ) -> None:
        super().__init__(task, backbone, settings)
        self.classify_tail, self.contrast_tail = backbone.new_tail(), backbone.new_tail()
        self.classifier = CosineClassifier(self.feature_dim, task.n_classes)
        self.projector: Projector | NoProjector = NoProjector()
        if settings.contrasted == "projections":
            self.projector = Projector(self.feature_dim, width=settings.projector_width or None)
        self.uncertainty = nn.Buffer(torch.tensor(0.5))
        self.class_counts = torch.ones(task.n_classes)
        if settings.centroids_by != "clusters":
            self.headline = "placed"
        if settings.trained_share < 1 or settings.centroids_by == UNTRAINED:
            self.training_only = (*self.training_only, "start_tail")
            self.start_tail = backbone.new_tail().requires_grad_(requires_grad=False)
        if settings.trained_share < 1:
            self.clustered_tail = "answer_tail"
            self.answer_tail = copy.deepcopy(self.start_tail)

    def groups(self) -> list[Group]:
        """One optimizer per branch; only the contrastive one decays vectors, as released."""
        classify = [*self.classify_tail.parameters(), *self.classifier.parameters()]
        contrastive = [*self.contrast_tail.parameters(), *self.projector.parameters()]
        return [
            Group("classify", [p for p in classify if p.requires_grad], decay_vectors=False),
            Group("contrast", [p for p in contrastive if p.requires_grad], decay_vectors=True),
        ]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of Eq. (3) and of Eq. (7), weighted; the branches share no parameter."""
        s = self.settings
        gamma_1, gamma_2 = self.gammas(batch.epoch)
        features = self.classify_tail(batch.tokens)
        cosines = self.classifier(features)
        similarity = self.projector.cosines(self.contrast_tail(batch.tokens))

        # Eq. (3): L_s + eta_1 L_u + eta_2 L_reg. The contrastive branch gives L_reg its class
        # counts.
        unsupervised, supervised = self.classify_losses(cosines, features, batch)
        penalty = self.prior.penalty(cosines, temperature=s.temperature)
        classify = {
            "classify/supervised": s.classifier_scale * supervised,
            f"classify/{UNSUPERVISED[s.style]}": s.classifier_scale * s.eta_1 * unsupervised,
            "classify/prior": s.classifier_scale * s.eta_2 * penalty,
        }

        # Eq. (7): L_u + gamma_1 L_s + gamma_2 L_soft. The classifier branch gives L_soft its
        # pseudo-labels.
        same_image = contrast_images(similarity, batch, temperature=s.unsupervised_temperature)
        same_label = contrast_labels(similarity, batch, temperature=s.supervised_temperature)
        contrast = {
            "contrast/unsupervised": s.contrastive_scale * same_image,
            "contrast/supervised": s.contrastive_scale * gamma_1 * same_label,
        }
        if gamma_2:
            advice = self.advise(cosines.detach(), batch)
            soft = contrast_softly(similarity, *advice, temperature=s.soft_temperature)
            contrast["contrast/advice"] = s.contrastive_scale * gamma_2 * soft
        return classify | contrast

    def classify_losses(
        self, cosines: Tensor, features: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """L_u and L_s of Eq. (3), in SimGCD's or ORCA's style (§4.1)."""
        at = {"temperature": self.settings.temperature}
        if self.settings.style == "S":
            unsupervised = self_distillation(
                cosines,
                teacher_temperature=self.teacher_temperature(batch.epoch),
                student_temperature=self.settings.temperature,
            )
            return unsupervised, classify_labels(cosines, batch, **at)
        first, second = cosines.chunk(2)
        unsupervised = agree_with_partners(first, second, features, batch, **at)
        return unsupervised, classify_with_margin(
            first, batch, margin=float(self.uncertainty), **at
        )

    def gammas(self, epoch: int) -> tuple[float, float]:
        """gamma_1 and gamma_2 of Eq. (7); in warm-up there is no soft contrast (Algorithm 1)."""
        s = self.settings
        if s.warmup > 0 and epoch < self.task.capped(s.warmup):
            return s.gamma_1 + s.gamma_2 * s.warmup_full, 0.0
        return s.gamma_1, 0.0 if s.advice == "none" else s.gamma_2

    @property
    def prior(self) -> Prior:
        """The class sizes of Eq. (2)."""
        s = self.settings
        only_known = s.prior == "labeled"
        counts = self.class_counts[: self.task.n_known] if only_known else self.class_counts
        return Prior(counts, power=s.power, form=s.prior_form, known_only=only_known)

    def advise(self, cosines: Tensor, batch: Batch) -> Advice:
        """Debiased pseudo-labels, Eq. (4), which images keep them, Eq. (5), and their agreement."""
        s = self.settings
        first, second = debias(cosines / s.temperature, self.class_counts, strength=s.debias).chunk(
            2
        )
        probabilities = (first + second) / 2  # the paper does not say; the released code averages
        kept = batch.labeled | self.sample(probabilities, batch)
        if s.labeled_targets == "onehot":
            known = F.one_hot(batch.labels.clamp(min=0), self.task.n_classes).to(probabilities)
            probabilities = torch.where(batch.labeled[:, None], known, probabilities)
        if s.advice == "hard":
            return Advice(hard_positiveness(probabilities[kept]), kept)
        same = 1.0 if s.same_image_one else None
        agreement = positiveness(probabilities[kept], similarity=s.similarity, same_image=same)
        return Advice(agreement, kept)

    def sample(self, probabilities: Tensor, batch: Batch) -> Tensor:
        """(B,) bool: unlabeled images that keep their pseudo-label, the most confident first."""
        s, unlabeled = self.settings, ~batch.labeled
        if not s.sampling:
            return unlabeled
        present = batch.present_classes(self.task.n_classes)
        rates = keep_rates(self.class_counts, present, alpha=s.alpha, beta=s.beta)
        generator = batch.generator() if s.counts == "random" else None
        counts = draw_counts(probabilities, rates, among=unlabeled, generator=generator)
        return pick_confident(probabilities, counts, among=unlabeled)

    def teacher_temperature(self, epoch: int) -> float:
        """Linear from start to end over the ramp, both ends included; then constant."""
        s = self.settings
        epochs = self.task.capped(s.teacher_ramp)
        return ramp(s.teacher_start, s.teacher_end, epoch=epoch, epochs=epochs)

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        """Keep the tail that answers between the untrained and the trained one. WiSE-FT."""
        if self.settings.trained_share < 1:
            tails = (self.answer_tail, self.start_tail, self.contrast_tail)
            for answer, start, trained in zip(*(t.parameters() for t in tails), strict=True):
                answer.copy_(torch.lerp(start, trained, self.settings.trained_share))

    def refresh(self, epoch: int, probe: Probe) -> None:
        """Re-estimate the class counts every r epochs (§4.1); O also measures its uncertainty."""
        if epoch % self.task.scaled(self.settings.interval) == 0:
            if epoch == 0 and self.settings.start_heads != "none":
                self.start_classifier(probe)
            self.class_counts.copy_(self.estimate(probe))
        if self.settings.style == "O":
            unlabeled = torch.from_numpy(probe.labels < 0)
            sure = probe.run(lambda t: self.classify(t).softmax(dim=1).amax(dim=1))
            mean = sure[unlabeled].mean() if unlabeled.any() else sure.mean()
            self.uncertainty.copy_((1 - mean).clamp(max=0.5))

    def place_classes(self, tail: Features, probe: Probe, rules: Rules = QUICK_RULES) -> Placed:
        """Find classes and keep their centroids; a novel one continues one of the last time. Ours.

        So class c has the same row of the classifier from estimate to estimate.
        """
        placed = place_classes(
            F.normalize(probe.run(tail), dim=1),
            probe.labels,
            n_classes=self.task.n_classes,
            n_known=self.task.n_known,
            seed=probe.seed,
            rules=rules,
        )
        if len(self.centroids):
            placed = in_correspondence(placed, self.centroids, n_known=self.task.n_known)
        self.set_centroids(placed.centroids, temperature=placed.temperature)
        return placed

    @torch.no_grad()
    def start_classifier(self, probe: Probe) -> None:
        """Turn rows of the classifier to the centroids of found classes, at their own length."""
        centroids = self.place_classes(self.classify_tail, probe).centroids
        chosen = centroids.any(dim=1)
        if self.settings.start_heads == "novel":
            chosen[: self.task.n_known] = False
        weight = self.classifier.weight
        weight[chosen] = centroids[chosen] * weight[chosen].norm(dim=1, keepdim=True)

    def class_features(self, tokens: Tensor) -> Tensor:
        """Those of the untrained tail, if settings ask for them. Ours.

        Training on labels of known classes blurs what tells new ones apart. So classes are found
        without it, and images are sorted into them with it.
        """
        untrained = self.settings.centroids_by == UNTRAINED
        found: Tensor = self.start_tail(tokens) if untrained else self.features(tokens)
        return found

    def place_centroids(self, probe: Probe) -> None:
        """Centroids of the classes that are found, or of clusters as in every method."""
        if self.settings.centroids_by == "clusters":
            super().place_centroids(probe)
            return
        placed = self.place_classes(self.class_features, probe, RULES)
        features = F.normalize(probe.run(self.features), dim=1)
        placed = placed.seen_in(features, probe.labels)
        self.set_centroids(placed.centroids, temperature=placed.temperature)

    def estimate(self, probe: Probe) -> Tensor:
        """(C,) class counts from the source the settings name."""
        s, task = self.settings, self.task
        if self.oracle_counts is not None:
            return self.oracle_counts
        if s.prior == "balanced":
            return torch.full_like(self.class_counts, task.n_images / task.n_classes)
        if s.prior == "labeled":  # only known classes are penalized; novel ones count as average
            known = self.class_counts.new_tensor(task.labeled_counts)
            return torch.cat([known, known.mean().expand(task.n_classes - task.n_known)])
        tail = self.features if s.prior == "contrastive" else self.classify_tail
        if s.counts_by == "classes":
            return self.place_classes(tail, probe).counts
        return self.clustered_counts(tail, probe)

    def clustered_counts(self, tail: Features, probe: Probe) -> Tensor:
        """k-means on all training images, clusters aligned to classes (§4.1)."""
        s = self.settings
        return clustered_counts(
            probe.run(tail),
            probe.labels,
            n_classes=self.task.n_classes,
            n_known=self.task.n_known,
            rank_match=s.rank_match,
            cost=s.match_cost,
            restarts=s.restarts,
        )

    def classify(self, tokens: Tensor) -> Tensor:
        """Logits of the pseudo-labeling branch."""
        logits: Tensor = self.classifier(self.classify_tail(tokens)) / self.settings.temperature
        return logits
