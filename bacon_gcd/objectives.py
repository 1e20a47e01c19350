"""Losses of outputs and a batch that several methods share. Weights stand in the methods.

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
)
from bacon_gcd.pseudo_labels import confident, draw_gate, partners


@dataclass(frozen=True)
class Prior:
    """Class sizes the mean prediction should have. SimGCD, ORCA: all equal; BaCon: estimated."""

    class_counts: Tensor
    """(C,) class sizes; (K,) labeled sizes if `known_only`."""
    power: float = 1.0
    form: str = "released"
    known_only: bool = False
    """Only known classes are penalized, by their labeled sizes; novel ones are free."""

    @classmethod
    def uniform(cls, n_classes: int) -> Prior:
        """All classes alike: the penalty is log C - H(mean prediction)."""
        return cls(torch.ones(n_classes, device="cpu"))

    def penalty(self, cosines: Tensor, *, temperature: float) -> Tensor:
        """BaCon Eq. (2) in the chosen form, over all rows given."""
        penalty = known_prior_penalty if self.known_only else prior_penalty
        return penalty(
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


def contrast_images(
    similarity: Tensor, batch: Batch, *, temperature: float, rows: Tensor | None = None
) -> Tensor:
    """Pull the views of one image together: the unsupervised contrast. BaCon Eq. (7); GCD.

    Args:
        similarity: (V*B, V*B) cosines of the projections.
        batch: its B images.
        temperature: tau.
        rows: (B,) bool, images that take part; all if not given.
    """
    # The image's position in the batch, not its id: an image drawn twice is two images, as in GCD.
    images = torch.arange(len(batch.labels), device=similarity.device)
    chosen = None if rows is None else each_view(rows, similarity)
    return contrast_within(
        similarity, each_view(images, similarity), chosen, temperature=temperature
    )


def contrast_labels(similarity: Tensor, batch: Batch, *, temperature: float) -> Tensor:
    """Pull labeled images of one class together: the supervised contrast. BaCon Eq. (7); GCD.

    Args:
        similarity: (V*B, V*B) cosines of the projections.
        batch: labels say which images take part.
        temperature: tau.
    """
    return contrast_within(
        similarity,
        each_view(batch.labels, similarity),
        each_view(batch.labeled, similarity),
        temperature=temperature,
    )


def contrast_softly(
    similarity: Tensor, positiveness: Tensor, kept: Tensor, *, temperature: float
) -> Tensor:
    """Pull labeled and kept unlabeled images together by their positiveness. BaCon Eq. (6).

    Args:
        similarity: (V*B, V*B) cosines of the projections.
        positiveness: (n, n) of the n kept images, in batch order; its diagonal is the weight of
            the image's other views.
        kept: (B,) bool, n of them true: labeled images and sampled unlabeled ones.
        temperature: tau.
    """
    n_views = len(similarity) // max(len(kept), 1)
    positives = positiveness.repeat(n_views, n_views)
    chosen = among(similarity, each_view(kept, similarity))
    return contrast(chosen, positives, temperature=temperature)


def classify_labels(cosines: Tensor, batch: Batch, *, temperature: float) -> Tensor:
    """Learn the labels in all views: L_s of BaCon-S, Eq. (3); SimGCD.

    Args:
        cosines: (V*B, C) of the classifier.
        batch: labels.
        temperature: of the cosines.
    """
    return cross_entropy(cosines / temperature, each_view(batch.labels, cosines))


def classify_with_margin(
    first: Tensor, batch: Batch, *, margin: float, temperature: float
) -> Tensor:
    """Learn the labels in view 1, slowed by a margin: L_s of BaCon-O, Eq. (3); ORCA.

    Args:
        first: (B, C) cosines of view 1.
        batch: labels.
        margin: in cosine units, the uncertainty capped at 0.5 (`uncertainty_margin`).
        temperature: ORCA's factor 10 is 1 / 0.1.
    """
    slowed = add_margin(first, batch.labels, margin)
    return cross_entropy(slowed / temperature, batch.labels)


def agree_with_partners(
    first: Tensor, second: Tensor, features: Tensor, batch: Batch, *, temperature: float
) -> Tensor:
    """View 1 agrees with view 2 of the nearest image: L_u of BaCon-O, Eq. (3); ORCA.

    Args:
        first: (B, C) cosines of view 1.
        second: (B, C) cosines of view 2.
        features: (B or 2B, D) of the backbone; only view 1 is used, without gradient.
        batch: a labeled image gets a random partner of the same class.
        temperature: of the cosines.
    """
    nearest = partners(features[: len(first)], batch.labels, generator=batch.generator())
    return pair_agreement(
        (first / temperature).softmax(dim=1), (second / temperature).softmax(dim=1)[nearest]
    )


def classify_weak(logits: Tensor, batch: Batch) -> Tensor:
    """Learn the labels in the weak view, which is the first. FixMatch.

    logits: (V*B, C), divided by their temperature.
    """
    return cross_entropy(logits[: len(batch.labels)], batch.labels)


def agree_when_confident(
    logits: Tensor, batch: Batch, *, pseudo: Tensor | None = None, threshold: float = 0.95
) -> Tensor:
    """Strong views learn what the weak view of an unlabeled image is sure of. FixMatch.

    Args:
        logits: (V*B, C), divided by their temperature; view 1 is weak, the others strong.
        batch: labels.
        pseudo: (B, C) probabilities of the weak views; DARP hands refined ones.
        threshold: least confidence; other unlabeled rows still count in the mean.
    """
    weak, strong = _weak_and_strong(logits, batch)
    predicted, gate = confident(
        weak.softmax(dim=1) if pseudo is None else pseudo, threshold=threshold
    )
    targets = each_view(predicted.where(~batch.labeled, -1), strong)
    return cross_entropy(strong, targets, gate=each_view(gate, strong))


def classify_balanced(
    logits: Tensor, batch: Batch, *, rates: Tensor, generator: Generator
) -> Tensor:
    """Learn the labels in the weak view; images of large classes are left out at random. ABC.

    Args:
        logits: (V*B, C) of the balanced head, divided by their temperature; view 1 is weak.
        batch: labels.
        rates: (C,) N_min / N_c, the share of labeled images that take part.
        generator: draws them.
    """
    gate = draw_gate(batch.labels.clamp_min(0), rates, generator=generator)
    return cross_entropy(logits[: len(batch.labels)], batch.labels, gate=gate)


def agree_balanced(
    logits: Tensor, batch: Batch, *, rates: Tensor, generator: Generator, threshold: float = 0.95
) -> Tensor:
    """Strong views learn sure weak ones; images of large classes are left out at random. ABC.

    Args:
        logits: (V*B, C) of the balanced head, divided by their temperature; view 1 is weak.
        batch: labels.
        rates: (C,) of the pseudo-labels, falling during training (`balanced_keep_rates`).
        generator: draws who takes part, one draw per image, shared by its views.
        threshold: least confidence.
    """
    weak, strong = _weak_and_strong(logits, batch)
    soft = weak.detach().softmax(dim=1)
    predicted, sure = confident(soft, threshold=threshold)
    gate = sure * draw_gate(predicted, rates, generator=generator)
    rows = each_view(~batch.labeled, strong)
    agreement = cross_entropy(
        strong[rows], each_view(soft, strong)[rows], gate=each_view(gate, strong)[rows]
    )
    n_strong = len(strong) // max(len(batch.labels), 1)
    return n_strong * agreement  # ABC adds the strong views, it does not average


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
