"""What several methods share: functions from outputs, batch and prior to named, weighted terms.

Outputs are view-major (view 1 of all B images, then view 2, ...), as in `Batch`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bacon_gcd.data.batches import Batch
from bacon_gcd.losses import (
    add_margin,
    contrast,
    cross_entropy,
    known_prior_penalty,
    pair_agreement,
    prior_penalty,
    self_distillation,
)
from bacon_gcd.pseudo_labels import confident, draw_gate, partners

Terms = dict[str, Tensor]


@dataclass(frozen=True)
class Prior:
    """What the mean prediction is held to. SimGCD and ORCA: uniform; BaCon: its estimate."""

    class_counts: Tensor
    """(C,) class sizes; (K,) labeled sizes if `known_only`."""
    power: float = 1.0
    form: str = "released"
    known_only: bool = False
    """Only the known classes' share is held, to the labeled sizes."""

    @classmethod
    def uniform(cls, n_classes: int) -> Prior:
        """All classes alike: the penalty is log C - H(mean prediction)."""
        return cls(torch.ones(n_classes))

    def penalty(self, cosines: Tensor, *, temperature: float) -> Tensor:
        """BaCon Eq. (2) in the chosen form, over all rows given."""
        hold = known_prior_penalty if self.known_only else prior_penalty
        return hold(
            cosines,
            self.class_counts.to(cosines.device),
            power=self.power,
            form=self.form,
            temperature=temperature,
        )


def contrast_within(
    similarity: Tensor, groups: Tensor, rows: Tensor | None = None, *, temperature: float
) -> Tensor:
    """Contrast among chosen rows only; rows of the same group are positives. BaCon Eq. (1).

    Args:
        similarity: (N, N) cosines.
        groups: (N,) image, class or pseudo-label ids.
        rows: (N,) bool; all if not given. Other rows are not in the denominator either.
        temperature: tau.
    """
    if rows is not None:
        similarity, groups = among(similarity, rows), groups[rows]
    return contrast(similarity, groups[:, None] == groups, temperature=temperature)


def contrastive_terms(
    similarity: Tensor,
    batch: Batch,
    *,
    unsupervised_weight: float = 0.65,
    supervised_weight: float = 0.35,
    unsupervised_temperature: float = 1.0,
    supervised_temperature: float = 0.07,
) -> Terms:
    """Same image over all rows, same label over labeled rows. BaCon Eq. (7); GCD, SimGCD.

    Args:
        similarity: (V*B, V*B) cosines of the projections.
        batch: labels say which rows are labeled.
        unsupervised_weight: 1 - lambda.
        supervised_weight: lambda; BaCon halves it after warm-up, for the soft term.
        unsupervised_temperature: 1.0. The paper has this one for all; the code 0.07 for labels.
        supervised_temperature: 0.07.
    """
    # The image's place in the batch, not its id: an image drawn twice is two images, as in GCD.
    images = torch.arange(len(batch.labels), device=similarity.device)
    unsupervised = contrast_within(
        similarity, each_view(images, similarity), temperature=unsupervised_temperature
    )
    supervised = contrast_within(
        similarity,
        each_view(batch.labels, similarity),
        each_view(batch.labeled, similarity),
        temperature=supervised_temperature,
    )
    return {
        "contrast/unsupervised": unsupervised_weight * unsupervised,
        "contrast/supervised": supervised_weight * supervised,
    }


def advice_terms(
    similarity: Tensor,
    positiveness: Tensor,
    kept: Tensor,
    *,
    weight: float = 0.175,
    temperature: float = 0.07,
) -> Terms:
    """Soft contrast among labeled and kept unlabeled images. BaCon Eq. (6).

    Args:
        similarity: (V*B, V*B) cosines of the projections.
        positiveness: (n, n) of the n kept images, in batch order; its diagonal is the weight of
            the image's other views.
        kept: (B,) bool, n of them true: labeled images and sampled unlabeled ones.
        weight: gamma_2.
        temperature: tau.
    """
    n_views = len(similarity) // max(len(kept), 1)
    positives = positiveness.repeat(n_views, n_views)
    chosen = among(similarity, each_view(kept, similarity))
    return {"contrast/advice": weight * contrast(chosen, positives, temperature=temperature)}


def self_distillation_terms(
    cosines: Tensor,
    batch: Batch,
    prior: Prior,
    *,
    teacher_temperature: float,
    student_temperature: float = 0.1,
    supervised_weight: float = 0.35,
    distill_weight: float = 0.65,
    prior_weight: float = 0.65,
) -> Terms:
    """Labels, the other view, the prior: L_s, L_u, L_reg of BaCon-S, Eq. (3); SimGCD.

    Args:
        cosines: (2B, C) of the classifier.
        batch: labels.
        prior: what the mean over both views is held to.
        teacher_temperature: T_t of this epoch.
        student_temperature: of everything else.
        supervised_weight: w.
        distill_weight: 1 - w.
        prior_weight: 1 - w, times epsilon in SimGCD.
    """
    labels = each_view(batch.labels, cosines)
    distill = self_distillation(
        cosines, teacher_temperature=teacher_temperature, student_temperature=student_temperature
    )
    return {
        "classify/supervised": supervised_weight
        * cross_entropy(cosines / student_temperature, labels),
        "classify/distill": distill_weight * distill,
        "classify/prior": prior_weight * prior.penalty(cosines, temperature=student_temperature),
    }


def pairwise_terms(
    cosines: Tensor,
    features: Tensor,
    batch: Batch,
    prior: Prior,
    *,
    margin: float,
    generator: Generator,
    temperature: float = 0.1,
    supervised_weight: float = 1.0,
    pairs_weight: float = 1.0,
    prior_weight: float = 1.0,
    prior_views: int = 2,
) -> Terms:
    """Labels with a margin, partners, the prior: L_s, L_u, L_reg of BaCon-O, Eq. (3); ORCA.

    Args:
        cosines: (2B, C) of the classifier.
        features: (B or 2B, D) of the backbone; only view 1 is used, without gradient.
        batch: labels.
        prior: what the mean prediction is held to.
        margin: in cosine units, the uncertainty capped at 0.5 (`uncertainty_margin`).
        generator: picks the partners of labeled images.
        temperature: ORCA's factor 10 is 1 / 0.1.
        supervised_weight: of the labels, view 1 only.
        pairs_weight: of the partners, view 1 against view 2.
        prior_weight: of the penalty.
        prior_views: 1 (ORCA: view 1) or 2 (BaCon: both).
    """
    n_images = len(batch.labels)
    first, second = cosines.chunk(2)
    slowed = add_margin(first, batch.labels, margin)
    partner = partners(features[:n_images], batch.labels, generator=generator)
    agreement = pair_agreement(
        (first / temperature).softmax(dim=1), (second / temperature).softmax(dim=1)[partner]
    )
    held = cosines[: prior_views * n_images]
    return {
        "classify/supervised": supervised_weight
        * cross_entropy(slowed / temperature, batch.labels),
        "classify/pairs": pairs_weight * agreement,
        "classify/prior": prior_weight * prior.penalty(held, temperature=temperature),
    }


def fixmatch_terms(
    logits: Tensor,
    batch: Batch,
    *,
    pseudo: Tensor | None = None,
    threshold: float = 0.95,
    supervised_weight: float = 1.0,
    confident_weight: float = 1.0,
) -> Terms:
    """Labels on weak views; strong views learn what their weak view is sure of. FixMatch.

    Args:
        logits: (V*B, C), divided by their temperature; view 1 is weak, the others strong.
        batch: labels.
        pseudo: (B, C) probabilities of the weak views; DARP hands refined ones.
        threshold: least confidence that opens the gate; closed rows still count in the mean.
        supervised_weight: of the labels.
        confident_weight: of the pseudo-labels.
    """
    weak, strong = _weak_and_strong(logits, batch)
    predicted, gate = confident(
        weak.softmax(dim=1) if pseudo is None else pseudo, threshold=threshold
    )
    targets = each_view(predicted.where(~batch.labeled, -1), strong)
    agreement = cross_entropy(strong, targets, gate=each_view(gate, strong))
    return {
        "classify/supervised": supervised_weight * cross_entropy(weak, batch.labels),
        "classify/confident": confident_weight * agreement,
    }


def balanced_terms(
    logits: Tensor,
    batch: Batch,
    *,
    labeled_rates: Tensor,
    rates: Tensor,
    generator: Generator,
    threshold: float = 0.95,
) -> Terms:
    """The balanced head: rows of large classes are left out at random. ABC.

    Args:
        logits: (V*B, C) of the balanced head, divided by their temperature; view 1 is weak.
        batch: labels.
        labeled_rates: (C,) N_min / N_c, for labeled images.
        rates: (C,) for unlabeled images, falling during training (`balanced_keep_rates`).
        generator: draws the gates, one per image, shared by its views.
        threshold: least confidence.
    """
    weak, strong = _weak_and_strong(logits, batch)
    soft = weak.detach().softmax(dim=1)
    predicted, sure = confident(soft, threshold=threshold)
    labeled_gate = draw_gate(batch.labels.clamp_min(0), labeled_rates, generator=generator)
    gate = sure * draw_gate(predicted, rates, generator=generator)
    rows = each_view(~batch.labeled, strong)
    agreement = cross_entropy(
        strong[rows], each_view(soft, strong)[rows], gate=each_view(gate, strong)[rows]
    )
    n_strong = len(strong) // max(len(batch.labels), 1)
    return {
        "balanced/supervised": cross_entropy(weak, batch.labels, gate=labeled_gate),
        "balanced/confident": n_strong
        * agreement,  # ABC adds the strong views, it does not average
    }


def each_view(values: Tensor, outputs: Tensor) -> Tensor:
    """(B, ...) values of the images, repeated for each view that `outputs` has. Ours."""
    n_views = len(outputs) // max(len(values), 1)
    return values.repeat(n_views, *[1] * (values.ndim - 1))


def among(similarity: Tensor, rows: Tensor) -> Tensor:
    """(n, n) part of the (N, N) matrix that belongs to the chosen rows, (N,) bool. Ours."""
    index = rows.nonzero().squeeze(1)
    return similarity.index_select(0, index).index_select(1, index)


def _weak_and_strong(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    return logits[: len(batch.labels)], logits[len(batch.labels) :]
