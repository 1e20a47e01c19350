"""Who belongs where, as far as predictions tell; one function per equation. Targets get no gradient.

Rows are images unless said otherwise. Every function of probabilities takes (N, C) rows that sum to 1.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bacon_gcd.config import choose
from bacon_gcd.losses import fill_empty

SIMILARITIES = ("dot", "cosine", "l1", "l2")


# From the classifier to the contrastive branch: BaCon Sec. 4.2 and 4.3.


@torch.no_grad()
def debias(logits: Tensor, class_counts: Tensor, *, strength: float) -> Tensor:
    """Probabilities freed of the head classes' pull: softmax(logits - k log pi). BaCon Eq. (4).

    The 1e-12 is the authors' code's; the paper does not divide the logits by a temperature, the
    code does, and so must the caller.

    Args:
        logits: (N, C), already divided by their temperature.
        class_counts: (C,) estimated class sizes, on any scale.
        strength: k.
    """
    share = class_counts.to(logits) / class_counts.sum()
    return (logits - (share**strength + 1e-12).log()).softmax(dim=1)


@torch.no_grad()
def keep_rates(class_counts: Tensor, present: Tensor, *, alpha: float, beta: float) -> Tensor:
    """(C,) share of the pseudo-labels of each class to keep, more for rare classes. BaCon Eq. (5).

    Args:
        class_counts: (C,) estimated class sizes, on any scale.
        present: (C,) bool, classes that have a labeled image in this batch.
        alpha: power for these.
        beta: power for all others.
    """
    counts = fill_empty(class_counts)
    power = torch.where(present, alpha, beta)
    return (counts.min() / counts) ** power


@torch.no_grad()
def draw_counts(
    probabilities: Tensor,
    rates: Tensor,
    *,
    generator: Generator | None = None,
    among: Tensor | None = None,
) -> Tensor:
    """(C,) how many rows to keep of each predicted class, Binomial(rows, rate). BaCon Sec. 4.2.

    The paper only names the rate; the authors' code draws. Without a generator: the expected
    count, rounded.

    Args:
        probabilities: (N, C).
        rates: (C,) in [0, 1].
        generator: source of the draws.
        among: (N,) bool, the rows that take part; all if not given.
    """
    predicted = probabilities.argmax(dim=1)
    predicted = predicted if among is None else predicted[among]
    rows = torch.bincount(predicted, minlength=len(rates)).to(rates)
    if generator is None:
        return (rows * rates).round().long()
    return torch.binomial(rows, rates, generator=generator).long()


@torch.no_grad()
def pick_confident(
    probabilities: Tensor, counts_to_keep: Tensor, *, among: Tensor | None = None
) -> Tensor:
    """(N,) bool: of each predicted class the given number of most confident rows. BaCon Sec. 4.2.

    Equally confident rows are taken in their order.

    Args:
        probabilities: (N, C).
        counts_to_keep: (C,) integers.
        among: (N,) bool, the rows that take part; all if not given.
    """
    confidence, predicted = probabilities.max(dim=1)
    if among is not None:
        confidence = confidence.where(among, -1.0)  # behind every row that takes part
    best_first = confidence.argsort(descending=True, stable=True)
    rank = torch.empty_like(predicted)
    rank[best_first] = rank_within(predicted[best_first])
    picked = rank < counts_to_keep[predicted]
    return picked if among is None else picked & among


def rank_within(groups: Tensor) -> Tensor:
    """(N,) how many earlier rows have the same group id. Ours: replaces a loop over groups."""
    order = groups.argsort(stable=True)
    sizes = groups.unique(return_counts=True)[1]
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(groups), device=groups.device) - starts
    return rank


@torch.no_grad()
def positiveness(
    probabilities: Tensor, *, similarity: str = "dot", same_image: float | None = 1.0
) -> Tensor:
    """(N, N) how surely two images have the same class, w of BaCon Sec. 4.3. In [0, 1].

    Args:
        probabilities: (N, C).
        similarity: dot (the probability of the same class), cosine, l1: 1 - |p-q|/2,
            l2: 1 - |p-q|/sqrt(2); the distances are our reading of the ablation.
        same_image: weight of the other view of the same image, on the diagonal. The authors'
            code sets 1; the paper's text (None) leaves p.p.
    """
    p = probabilities
    match choose("similarity", similarity, SIMILARITIES):
        case "dot":
            weights = p @ p.T
        case "cosine":
            weights = F.normalize(p, dim=1) @ F.normalize(p, dim=1).T
        case "l1":
            weights = 1 - torch.cdist(p, p, p=1) / 2
        case _:
            exact = "donot_use_mm_for_euclid_dist"
            weights = 1 - torch.cdist(p, p, compute_mode=exact) / math.sqrt(2)
    weights = weights.clamp(0, 1)
    return weights if same_image is None else weights.fill_diagonal_(same_image)


@torch.no_grad()
def hard_positiveness(probabilities: Tensor) -> Tensor:
    """(N, N) 1 where two images have the same predicted class. BaCon ablation (c), "hard"."""
    predicted = probabilities.argmax(dim=1)
    return (predicted[:, None] == predicted).to(probabilities)


# Targets of the classification losses.


@torch.no_grad()
def sharpen(logits: Tensor, *, temperature: float) -> Tensor:
    """Probabilities at a temperature, as a target. SimGCD's teacher."""
    return (logits / temperature).softmax(dim=1)


@torch.no_grad()
def confident(probabilities: Tensor, *, threshold: float) -> tuple[Tensor, Tensor]:
    """(N,) predicted classes, and (N,) bool whether they are sure enough to learn from. FixMatch."""
    confidence, predicted = probabilities.max(dim=1)
    return predicted, confidence >= threshold


@torch.no_grad()
def sinkhorn(logits: Tensor, prior: Tensor, *, epsilon: float, rounds: int) -> Tensor:
    """Probabilities whose class masses follow a prior, by alternate scaling. TRSSL.

    Few rounds are far from the limit, so their number is part of the method (TRSSL: 3). In the
    log domain, where large logits neither overflow nor vanish.

    Args:
        logits: (N, C).
        prior: (C,) class shares, on any scale; the last half-round makes rows sum to 1.
        epsilon: temperature.
        rounds: of scaling classes to the prior, then rows to equal mass.
    """
    log_q = logits.double() / epsilon
    log_prior = prior.double().clamp_min(torch.finfo(torch.float64).tiny).log()
    for _ in range(rounds):
        log_q = log_q - log_q.logsumexp(dim=0) + log_prior
        log_q = log_q - log_q.logsumexp(dim=1, keepdim=True)
    return log_q.softmax(dim=1).to(logits.dtype)


@torch.no_grad()
def long_tail_prior(mass: Tensor, *, ratio: float, n_rows: int) -> Tensor:
    """(C,) exponential class shares, largest to the class with most mass in the batch. TRSSL.

    Args:
        mass: (C,) of the classes now; only its order matters.
        ratio: largest over smallest class size; oracle knowledge.
        n_rows: of the batch; no class is expected to have less than one of them.
    """
    n_classes = len(mass)
    rank = torch.arange(n_classes, dtype=torch.float64, device=mass.device)
    sizes = (ratio ** (-rank / max(n_classes - 1, 1)) * n_rows / n_classes).clamp_min(1.0)
    prior = torch.empty_like(sizes)
    prior[mass.argsort(descending=True, stable=True)] = sizes / sizes.sum()
    return prior.to(mass.dtype)


@torch.no_grad()
def harden(probabilities: Tensor, *, n_known: int, threshold: float = 0.5) -> Tensor:
    """Rows with enough mass on one novel class become one-hot there. TRSSL.

    TRSSL's code sets every entry >= 0.5 to 1: the same, but for an exact tie, where its row sums to 2.
    """
    if n_known == probabilities.shape[1]:
        return probabilities
    mass, novel = probabilities[:, n_known:].max(dim=1)
    hot = F.one_hot(novel + n_known, probabilities.shape[1]).to(probabilities)
    return torch.where((mass >= threshold)[:, None], hot, probabilities)


# Targets that follow given class counts: DARP.


@torch.no_grad()
def denoise(probabilities: Tensor, class_counts: Tensor, *, alpha: float = 2.0) -> Tensor:
    """Keep each class's alpha n_k surest rows, scale them to the class's size. DARP.

    Args:
        probabilities: (N, C).
        class_counts: (C,) target sizes.
        alpha: how many candidates per place.
    """
    order = probabilities.argsort(dim=0, descending=True, stable=True)
    rank = order.argsort(dim=0)
    kept = probabilities.where(rank < (alpha * class_counts).floor(), 0.0)
    total = kept.sum(dim=0)
    scaled = kept * (class_counts / total.where(total > 0, 1.0)) + 1e-6
    return scaled / scaled.sum(dim=1, keepdim=True)


@torch.no_grad()
def certainty(probabilities: Tensor, *, floor: float = 1e-6) -> Tensor:
    """(N,) 1 / entropy: how much a row resists being moved. DARP; the floor is ours."""
    return 1 / torch.special.entr(probabilities).sum(dim=1).clamp_min(floor)


@torch.no_grad()
def align(
    probabilities: Tensor, class_counts: Tensor, weights: Tensor, *, tolerance: float = 1e-7
) -> Tensor:
    """The nearest predictions whose class masses are the given counts. DARP.

    Minimizes sum_n w_n KL(q_n || p_n), rows summing to 1 and columns to the counts. Solved in the
    dual, smooth and convex in one price nu per class: q_n = softmax(log p_n - nu / w_n), by Newton
    steps that are damped until they descend, so there is no root to miss. Float64 inside.

    Args:
        probabilities: (N, C).
        class_counts: (C,) >= 0; only their shares matter, they are scaled to N rows.
        weights: (N,) > 0, how much each row resists (`certainty`); ones: converged `sinkhorn`.
        tolerance: largest error of a column sum.
    """
    target = _shares(class_counts) * len(probabilities)
    log_p = probabilities.double().clamp_min(1e-30).log()
    softness = (weights.double().mean() / weights.double())[:, None]
    prices, damping = torch.zeros_like(target), 1.0
    value, q = _dual(prices, log_p, softness, target)
    for _ in range(1000):
        excess = q.sum(dim=0) - target
        if excess.abs().max() <= tolerance:
            break
        soft_q = softness * q
        curvature = soft_q.sum(dim=0).diag() - soft_q.T @ q
        identity = torch.eye(len(target), dtype=torch.float64, device=target.device)
        trial = prices + torch.linalg.solve(curvature + damping * identity, excess)
        trial_value, trial_q = _dual(trial, log_p, softness, target)
        if trial_value < value:
            prices, value, q, damping = trial, trial_value, trial_q, damping / 8
        else:
            damping *= 4
    return q.to(probabilities.dtype)
