"""Who belongs where, as far as predictions tell: one function per equation, none with a gradient.

Probabilities are (N, C), rows that sum to 1.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bacon_gcd.alignment import align as align  # one of this module's stable names
from bacon_gcd.config import choose
from bacon_gcd.losses import fill_empty

SIMILARITIES = ("dot", "cosine", "l1", "l2")


# From the classifier to the contrastive branch: BaCon §4.2, §4.3.


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
    """(C,) how many rows to keep of each predicted class, Binomial(rows, rate). BaCon §4.2.

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
    """(N,) bool: of each predicted class the given number of most confident rows. BaCon §4.2.

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
    ordered, order = groups.sort(stable=True)
    starts = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(groups), device=groups.device) - starts
    return rank


@torch.no_grad()
def positiveness(
    probabilities: Tensor, *, similarity: str = "dot", same_image: float | None = 1.0
) -> Tensor:
    """(N, N) how surely two images have the same class, w of BaCon §4.3. In [0, 1].

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
    """(N, N) 1 where two images have the same predicted class. BaCon §5.4, ablation (c): "hard"."""
    predicted = probabilities.argmax(dim=1)
    return (predicted[:, None] == predicted).to(probabilities)


# Targets of the classification losses.


@torch.no_grad()
def sharpen(logits: Tensor, *, temperature: float) -> Tensor:
    """Probabilities at a temperature, as a target. SimGCD's teacher."""
    return (logits / temperature).softmax(dim=1)


@torch.no_grad()
def confident(probabilities: Tensor, *, threshold: float) -> tuple[Tensor, Tensor]:
    """(N,) predicted classes and (N,) bool, whether they are sure enough to be taught. FixMatch."""
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

    Its code sets every entry >= 0.5 to 1: the same but for an exact tie, where its row sums to 2.
    """
    if n_known == probabilities.shape[1]:
        return probabilities
    mass, novel = probabilities[:, n_known:].max(dim=1)
    hot = F.one_hot(novel + n_known, probabilities.shape[1]).to(probabilities)
    return torch.where((mass >= threshold)[:, None], hot, probabilities)


# Partners, gates, temperatures: what else the baselines take from predictions.


@torch.no_grad()
def partners(features: Tensor, labels: Tensor, *, generator: Generator) -> Tensor:
    """(N,) the row each row should agree with: same class if labeled, else the nearest. ORCA."""
    same = same_class_partners(labels, generator=generator)
    return torch.where(labels >= 0, same, nearest_rows(features))


@torch.no_grad()
def same_class_partners(labels: Tensor, *, generator: Generator) -> Tensor:
    """(N,) another random row of the same class; the row itself if unlabeled or alone. ORCA."""
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    others = (labels[:, None] == labels) & (labels >= 0)[:, None] & ~itself
    chances = others | (itself & ~others.any(dim=1, keepdim=True))
    if not len(labels):
        return labels
    return torch.multinomial(chances.float(), 1, generator=generator).squeeze(1)


@torch.no_grad()
def nearest_rows(features: Tensor) -> Tensor:
    """(N,) the other row with the largest cosine; a single row is its own neighbor. ORCA."""
    unit = F.normalize(features, dim=1)
    if not len(unit):
        return torch.empty(0, dtype=torch.long, device=features.device)
    return (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(dim=1)


@torch.no_grad()
def uncertainty_margin(probabilities: Tensor, *, cap: float = 0.5) -> float:
    """1 - mean confidence, capped: how much to slow known classes, in cosine units. ORCA."""
    if not len(probabilities):
        return 0.0
    return min(1.0 - probabilities.max(dim=1).values.mean().item(), cap)


def standardize(scores: Tensor) -> Tensor:
    """Rows with mean 0 and (unbiased) standard deviation 1; lets gradients through. OpenCon."""
    centered = scores - scores.mean(dim=1, keepdim=True)
    variance = centered.square().sum(dim=1, keepdim=True) / max(scores.shape[1] - 1, 1)
    return centered / variance.clamp_min(1e-12).sqrt()


@torch.no_grad()
def below_quantile(scores: Tensor, reference: Tensor, *, quantile: float) -> Tensor:
    """(N,) bool: lower than most reference scores, hence novel. OpenCon. No reference: none is."""
    if not len(reference):
        return torch.zeros_like(scores, dtype=torch.bool)
    return scores < torch.quantile(reference, quantile)


def novel_heavy_prior(n_classes: int, n_known: int, *, labeled_share: float) -> Tensor:
    """(C,) shares of unlabeled images: known classes lack what is labeled of them. OpenCon."""
    sizes = torch.ones(n_classes, device="cpu")
    sizes[:n_known] = 1.0 - labeled_share
    return fill_empty(sizes) / fill_empty(sizes).sum()


@torch.no_grad()
def uncertainty_temperatures(views: Tensor, *, least: float = 0.1) -> Tensor:
    """(N,) how much the predictions of an image differ between views, in [least, 1]. TRSSL.

    Args:
        views: (V, N, C) probabilities of V views.
        least: temperature of the surest images, of labeled ones, and before the first estimate.
    """
    best = views.mean(dim=0).argmax(dim=1)
    chosen = views.gather(2, best.expand(len(views), -1)[..., None]).squeeze(2)
    if len(views) < 2 or not chosen.numel():
        return torch.full_like(chosen[0], least)
    spread = chosen.std(dim=0)
    return (spread / spread.max().clamp_min(1e-12)).clamp(least, 1.0)


def draw_mix(
    n_rows: int, *, generator: Generator, concentration: float = 0.75
) -> tuple[float, Tensor]:
    """A share from Beta(a, a), by Johnk's rejection, and an order of the rows. TRSSL's mixup.

    The share is not folded to the upper half, as in TRSSL's code.
    """
    where = generator.device
    while True:
        draws = torch.rand(2, generator=generator, device=where, dtype=torch.float64)
        first, second = (draws ** (1 / concentration)).tolist()
        if 0 < first + second <= 1:
            order = torch.randperm(n_rows, generator=generator, device=where)
            return first / (first + second), order


def mixup(share: float, order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each tensor mixed with itself in another order, all in the same way. TRSSL."""
    return tuple(share * tensor + (1 - share) * tensor[order] for tensor in tensors)


@torch.no_grad()
def balanced_keep_rates(labeled_counts: Tensor, n_classes: int, *, progress: float) -> Tensor:
    """(C,) 1 - progress (1 - N_min / N_c): from everything to class-balanced. ABC.

    Novel classes are always kept (ours: ABC needs sizes that nobody knows here).

    Args:
        labeled_counts: (K,) labeled images of the known classes.
        n_classes: C.
        progress: epoch / epochs for unlabeled images; 1 for labeled ones.
    """
    counts = fill_empty(labeled_counts)
    rates = torch.ones(n_classes, device=counts.device)
    rates[: len(counts)] = 1 - progress * (1 - counts.min() / counts)
    return rates


@torch.no_grad()
def draw_gate(classes: Tensor, rates: Tensor, *, generator: Generator) -> Tensor:
    """(N,) 0 or 1: each row kept with the rate of its class. ABC."""
    return torch.bernoulli(rates[classes], generator=generator)
