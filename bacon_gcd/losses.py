"""What is minimized, one function per equation; an empty selection is zero, still in the graph."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.config import choose

PENALTY_FORMS = ("released", "paper")


def contrast(similarity: Tensor, positives: Tensor, *, temperature: float) -> Tensor:
    """Pull rows together in proportion to how surely they belong together. BaCon Eq. (1), (6).

    Rows without any positive are left out of the mean.

    Args:
        similarity: (N, N) cosines between the rows, one row per view.
        positives: (N, N) weights >= 0, of j as a positive of i; the diagonal is ignored.
        temperature: tau; small values sharpen.
    """
    itself = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    weight = positives.to(similarity.dtype).masked_fill(itself, 0.0)
    total = weight.sum(dim=1)
    paired = total > 0
    if not paired.any():
        return _nothing(similarity)
    logits = similarity / temperature
    share = weight / total.where(paired, 1.0)[:, None]
    # The shares of a row sum to 1, so its log-denominator stands outside the sum over positives.
    pull = torch.einsum("ij,ij->i", share, logits)
    push = logits.masked_fill(itself, -torch.inf).logsumexp(dim=1)
    return (push - pull)[paired].mean()


def cross_entropy(logits: Tensor, target: Tensor, *, gate: Tensor | None = None) -> Tensor:
    """Mean cross-entropy; L_s of BaCon Eq. (3), and every classification term of the baselines.

    Args:
        logits: (N, C), already divided by their temperature.
        target: (N,) class ids, where -1 leaves the row out, or (N, C) soft labels.
        gate: (N,) factors of the rows; a closed gate (0) still counts in the mean.
    """
    if target.ndim == 1:
        labeled = target >= 0
        gate = gate if gate is None else gate[labeled]
        loss = F.cross_entropy(logits[labeled], target[labeled], reduction="none")
    else:
        loss = -(target * logits.log_softmax(dim=1)).sum(dim=1)
    if gate is not None:
        loss = loss * gate
    return loss.sum() / max(len(loss), 1)


def self_distillation(
    cosines: Tensor, *, teacher_temperature: float, student_temperature: float = 0.1
) -> Tensor:
    """Each view learns the sharper prediction of the other one. L_u of BaCon-S; SimGCD.

    Args:
        cosines: (2B, C) classifier outputs, view 1 of all images, then view 2.
        teacher_temperature: T_t, falls during training; the teacher gets no gradient.
        student_temperature: of the learning side.
    """
    if len(cosines) % 2:
        raise ValueError(f"two views of each image give an even number of rows, not {len(cosines)}")
    teacher = (cosines.detach() / teacher_temperature).softmax(dim=1)
    other_view = teacher.roll(len(cosines) // 2, dims=0)
    return cross_entropy(cosines / student_temperature, other_view)


def prior_penalty(
    cosines: Tensor,
    class_counts: Tensor,
    *,
    power: float,
    form: str = "released",
    temperature: float = 0.1,
) -> Tensor:
    """Hold the mean prediction m to the class sizes n, smoothed by `power`. BaCon Eq. (2).

    paper: KL(m || n^p / sum n^p). released: KL(q || uniform), q proportional to m / n^p. Both are
    least where m is proportional to n^p; only the released gradient grows with what is missing
    in rare classes. Constant counts or power 0 give SimGCD's log C - H(m) in both.

    Args:
        cosines: (N, C) classifier outputs of all views.
        class_counts: (C,) estimated class sizes, on any scale.
        power: p.
        form: "released" (the authors' code, our default) or "paper".
        temperature: of the softmax.
    """
    if not len(cosines):
        return _nothing(cosines)
    return _penalty(_log_mean(cosines / temperature), class_counts, power=power, form=form)


def known_prior_penalty(
    cosines: Tensor,
    labeled_counts: Tensor,
    *,
    power: float,
    form: str = "released",
    temperature: float = 0.1,
) -> Tensor:
    """Hold only the known classes' share to the labeled sizes. BaCon §5.4, ablation (a).

    Args:
        cosines: (N, C) classifier outputs; known classes come first.
        labeled_counts: (K,) labeled images of the known classes; novel classes stay free.
        power: p.
        form: as in `prior_penalty`.
        temperature: of the softmax.
    """
    if not len(cosines):
        return _nothing(cosines)
    log_mean = _log_mean(cosines / temperature)[: len(labeled_counts)].log_softmax(dim=0)
    return _penalty(log_mean, labeled_counts, power=power, form=form)


def prior_kl(probabilities: Tensor, prior: Tensor, *, floor: float = 1e-8) -> Tensor:
    """KL(mean prediction || prior). OpenCon (floor 1e-5); uniform: ORCA, plus log C.

    Args:
        probabilities: (N, C).
        prior: (C,) sums to 1.
        floor: least mean probability, so that an empty class stays finite.
    """
    if not len(probabilities):
        return _nothing(probabilities)
    mean = probabilities.mean(dim=0).clamp_min(floor)
    return (mean * (mean.log() - prior.to(mean).clamp_min(floor).log())).sum()


def pair_agreement(first: Tensor, second: Tensor) -> Tensor:
    """Mean -log probability that two partners have the same class. ORCA; L_u of BaCon-O.

    Args:
        first: (N, C) probabilities of the rows.
        second: (N, C) probabilities of their partners.
    """
    same = (first * second).sum(dim=1)
    tiny = torch.finfo(same.dtype).tiny
    # Guarded before the log, or its infinite slope at zero turns the gradient into NaN.
    log_same = torch.where(same > tiny, same.clamp_min(tiny).log(), -100.0).clamp_min(-100.0)
    return -log_same.sum() / max(len(same), 1)


def add_margin(logits: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Logits with `margin` added to each labeled row's own class. ORCA.

    The raised logit lowers the loss, so known classes learn slower while the margin is high.

    Args:
        logits: (N, C).
        labels: (N,) class ids, -1 = unlabeled (the row stays as it is).
        margin: in units of the logits.
    """
    own = F.one_hot(labels.clamp_min(0), logits.shape[1]) * (labels >= 0)[:, None]
    return logits + margin * own


def fill_empty(class_counts: Tensor) -> Tensor:
    """Class counts as floats, an empty class taken as big as the smallest other one. Ours.

    Logarithms, powers and ratios of the counts stay finite.
    """
    counts = class_counts * 1.0
    present = counts[counts > 0]
    return counts.clamp_min(present.min()) if len(present) else torch.ones_like(counts)


def _nothing(like: Tensor) -> Tensor:
    """Zero, but part of the graph: every parameter still gets a (zero) gradient."""
    return like.sum() * 0.0


def _log_mean(logits: Tensor) -> Tensor:
    """(C,) log of the mean softmax over rows, finite even where the mean underflows."""
    return logits.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(logits))


def _penalty(log_mean: Tensor, class_counts: Tensor, *, power: float, form: str) -> Tensor:
    log_size = power * fill_empty(class_counts).to(log_mean).log()
    if choose("form of the prior penalty", form, PENALTY_FORMS) == "paper":
        return (log_mean.exp() * (log_mean - log_size.log_softmax(dim=0))).sum()
    log_share = (log_mean - log_size).log_softmax(dim=0)
    return (log_share.exp() * log_share).sum() + math.log(len(log_mean))
