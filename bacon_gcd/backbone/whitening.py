"""Features in which directions that differ within a class count less.

Which directions these are is learned once, from labeled image sets, and stored with the package for
the weights it was learned with: within-class covariance normalization (WCCN; Hatch, Kajarekar and
Stolcke 2006). How it was learned and what it is worth: docs/discovery-evidence.md,
`bench/whitening.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bacon_gcd.backbone.state import state_digest

STORED = Path(__file__).parent / "whitenings"


class Whitening(nn.Module):
    """(N, D) features to (N, D) ones; along each of r directions a share is taken away."""

    directions: Tensor
    shares: Tensor

    def __init__(self, directions: Tensor, shares: Tensor) -> None:
        """directions: (D, r) unit columns. shares: (r,) of 0 to below 1."""
        super().__init__()
        self.register_buffer("directions", directions.float(), persistent=False)
        self.register_buffer("shares", shares.float(), persistent=False)
        self.hash = state_digest({"directions": self.directions, "shares": self.shares})

    def forward(self, features: Tensor) -> Tensor:
        """The features without these shares."""
        along = (features @ self.directions) * self.shares
        return features - along @ self.directions.T

    def undo(self, features: Tensor) -> Tensor:
        """What the features were before, for orthogonal directions."""
        along = (features @ self.directions) * (self.shares / (1 - self.shares))
        return features + along @ self.directions.T


def whitening_from(within: Tensor, *, weight: float, n_directions: int) -> Whitening:
    """The whitening by a (D, D) covariance within classes. WCCN.

    The full one multiplies by ((1 - w) I + w C)^(-1/2), where C has a mean variance of 1. Here it
    acts along the directions of largest variance only; the others have little and stay alike.

    weight: w, 0 for none.
    """
    variances, axes = torch.linalg.eigh(within.double())
    variances = variances / variances.mean()
    kept = variances.flip(0)[:n_directions]
    factors = ((1 - weight) / ((1 - weight) + weight * kept)).sqrt()
    return Whitening(axes.flip(1)[:, :n_directions], 1 - factors)


def find_whitening(weights: str, folder: Path = STORED) -> Whitening | None:
    """The stored one that was learned with these weights; None: there is none.

    weights: their digest.
    """
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("weights") == weights:
                return Whitening(file.get_tensor("directions"), file.get_tensor("shares"))
    return None


def store_whitening(path: Path, whitening: Whitening, *, weights: str, learned_on: str) -> None:
    """Half-precision directions: a third of a megabyte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"directions": whitening.directions.half(), "shares": whitening.shares}
    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(kept, path, metadata={"weights": weights, "learned_on": learned_on})
