"""Who belongs where, as far as predictions tell: one function per equation, none with a gradient.

Probabilities are (N, C), rows that sum to 1.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

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
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=1)
    return entropy.clamp_min(floor).reciprocal()


@torch.no_grad()
def align(
    probabilities: Tensor, class_counts: Tensor, weights: Tensor, *, tolerance: float = 2e-7
) -> Tensor:
    """The nearest predictions whose class masses are the given counts; (N, C) in float64. DARP.

    Minimizes sum_n w_n KL(q_n || p_n) where rows sum to 1 and columns to the counts. The dual is
    smooth and convex with one price per class, q_n = softmax(log p_n - prices / w_n). DARP's
    solver seeks a root per class and may miss it. Ours takes damped Newton steps; where they
    stall, every row is heated until the problem is easy, then cooled, the prices following.

    Args:
        probabilities: (N, C).
        class_counts: (C,) >= 0; only their shares matter, they are scaled to N rows.
        weights: (N,) > 0, how much each row resists (`certainty`); all 1: the limit of `sinkhorn`.
        tolerance: largest error of a column sum.
    """
    if not len(probabilities):
        return probabilities.double()
    target = _shares(class_counts) * len(probabilities)
    cold = (weights.double() / weights.double().median())[:, None]
    pull = cold * probabilities.double().clamp_min(1e-30).log()
    exact = torch.full_like(target, tolerance)
    prices, met = _balance(torch.zeros_like(target), pull, cold, target, exact, steps=60)
    if not met:
        prices, heat = torch.zeros_like(target), float(-pull.min())
        while heat > cold.min() / 2:
            prices, _ = _balance(prices, pull, cold + heat, target, 0.1 * target + exact)
            heat /= 4
        prices, _ = _balance(prices, pull, cold, target, exact)
    return ((pull - prices) / cold).softmax(dim=1)


def _shares(class_counts: Tensor) -> Tensor:
    counts = class_counts.double()
    if not (counts >= 0).all() or not 0 < counts.sum() < torch.inf:
        raise ValueError(f"class counts must be >= 0 and not all zero, not {counts.tolist()}")
    return counts / counts.sum()


def _balance(
    prices: Tensor,
    pull: Tensor,
    temperature: Tensor,
    target: Tensor,
    tolerance: Tensor,
    steps: int = 400,
) -> tuple[Tensor, bool]:
    """Prices at which softmax((pull - prices) / temperature) sums to the target; whether it does.

    Levenberg-Marquardt on the dual. A step counts if it lowers the dual or, where rounding hides
    that, the error. Damping follows each class's own curvature, which may differ by 1e12.
    """
    damping, natural = 1e-3, (1 / temperature).sum()
    value, excess, curvature = _dual(prices, pull, temperature, target)
    for _ in range(steps):
        if (excess.abs() <= tolerance).all() or damping > 1e12:
            break
        own = curvature.diagonal()
        damped = curvature + ((damping + 1e-13) * own + (1e-6 * damping + 1e-30) * natural).diag()
        scale = damped.diagonal().rsqrt()
        # solve_ex does not raise: a step from a singular matrix is not finite, hence refused.
        step = scale * torch.linalg.solve_ex(scale[:, None] * damped * scale, scale * excess)[0]
        trial = prices + step - step.mean()  # only differences of prices matter
        trial_value, trial_excess, trial_curvature = _dual(trial, pull, temperature, target)
        rounding = 1e-13 * (value.abs() + target @ trial.abs())
        lower = trial_value < value - rounding
        nearer = trial_value <= value + rounding and trial_excess.norm() < excess.norm()
        if lower or nearer:
            prices, value, excess, curvature = trial, trial_value, trial_excess, trial_curvature
            damping /= 10
        else:
            damping = max(8 * damping, 1e-6)
    return prices, bool((excess.abs() <= tolerance).all())


def _dual(
    prices: Tensor, pull: Tensor, temperature: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Value, (C,) minus gradient and (C, C) Hessian of the dual at these prices."""
    logits = (pull - prices) / temperature
    log_total = logits.logsumexp(dim=1, keepdim=True)
    q = (logits - log_total).exp()
    value = (temperature * log_total).sum() + target @ prices
    curvature = (q / temperature).sum(dim=0).diag() - (q / temperature).T @ q
    return value, q.sum(dim=0) - target, curvature


@torch.no_grad()
def counts_from_confusion(
    held_out: Tensor, labels: Tensor, probabilities: Tensor, *, max_condition: float = 100.0
) -> Tensor | None:
    """(C,) class sizes that explain the predictions, from known confusions; None if unsure. DARP.

    Solves A M = sum of predictions, A[:, y] the mean prediction for held-out images of class y.
    Not defined for classes without labels: hand in the known classes' columns only.

    Args:
        held_out: (n, C) predictions for held-out labeled images.
        labels: (n,) their classes.
        probabilities: (N, C) predictions for unlabeled images.
        max_condition: largest condition number of A to be trusted.
    """
    n_classes = held_out.shape[1]
    hot = F.one_hot(labels, n_classes).double()
    if (hot.sum(dim=0) == 0).any():
        return None
    confusion = held_out.double().T @ (hot / hot.sum(dim=0))
    if not torch.linalg.cond(confusion) < max_condition:
        return None
    counts = torch.linalg.solve(confusion, probabilities.double().sum(dim=0))
    return counts if (counts >= 0).all() else None


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
    sizes = torch.ones(n_classes)
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
