"""How unlike all images of a run a new image is, in any direction of the features.

The class space has the directions in which the images of a run differ most. An image of a class
that nobody has seen differs from them in others, too. Its leverage, x' (X'X + λ I)^-1 x, is the
variance of a Gaussian process at x (Rasmussen and Williams 2006, eq. 2.8), and large where the rows
X of the run say nothing. For a row of the run itself there is a closed form as if it were new.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 4096
LARGEST = 0.999  # leverage of a row that nothing else explains
LEAST_SPREAD = 1e-3  # of log leverages; below it all rows are alike


@dataclass(frozen=True, eq=False)
class Leverage:
    """The leverage of rows, in standard deviations from what is usual for M rows of a run."""

    mean: Tensor
    """(D,) of the M rows."""
    inverse: Tensor
    """(D, D) of their squares and products around the mean, and the penalty."""
    middle: float
    """Mean of the log leverages of the M rows, each without itself."""
    spread: float
    """Their standard deviation."""

    def unusual(self, rows: Tensor) -> Tensor:
        """(n,) standard deviations of (n, D) new rows above the mean log leverage."""
        found = log_leverages(rows - self.mean, self.inverse, own=False)
        return (found - self.middle) / self.spread


def fit_leverage(rows: Tensor) -> Leverage:
    """The leverage in a ridge regression on (M, D) rows; the penalty is their mean square. Ours."""
    mean = rows.mean(dim=0)
    away = rows - mean
    products = (away.T @ away).double()
    penalty = float(products.diagonal().mean()) + 1e-6
    system = products + penalty * torch.eye(len(mean), dtype=torch.float64)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(system)).float()
    found = log_leverages(away, inverse, own=True)
    spread = max(float(found.std(correction=0)), LEAST_SPREAD)
    return Leverage(mean, inverse, float(found.mean()), spread)


def log_leverages(away: Tensor, inverse: Tensor, *, own: bool) -> Tensor:
    """(n,) log of x' A x of (n, D) rows.

    own: A was made with these rows; without row x it would be x' A x / (1 - x' A x) (Sherman and
    Morrison 1950).
    """
    starts = range(0, max(len(away), 1), CHUNK)
    parts = [((some @ inverse) * some).sum(dim=1) for some in (away[s : s + CHUNK] for s in starts)]
    found = torch.cat(parts).clamp(min=1e-12, max=LARGEST if own else None)
    return (found / (1 - found)).log() if own else found.log()
