"""Predictions moved to given class sizes: DARP's two steps, denoise and align.

Probabilities are (N, C), rows that sum to 1; nothing here has a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def denoise(probabilities: Tensor, class_counts: Tensor, *, alpha: float = 2.0) -> Tensor:
    """Keep each class's alpha n_k surest rows, scale them to the class's size. DARP.

    Args:
        probabilities: (N, C).
        class_counts: (C,) target sizes.
        alpha: candidates per image of a class.
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
