"""What the features of a trained method look like, beside how often they are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.benchmark.evaluation import test_probe, unit_features
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.methods.base import Method

IntArray = npt.NDArray[np.int64]
SAMPLE = 2000  # images whose pairs are looked at


def feature_measures(method: Method, bench: Workbench) -> dict[str, float | None]:
    """Alignment and uniformity of the test features, and the mean cosine of projections."""
    features = unit_features(method, test_probe(bench)).cpu()
    chosen = evenly(len(features), SAMPLE)
    return {
        "alignment": alignment(features, bench.true_test),
        "uniformity": uniformity(features[chosen]),
        "projected_cosine": projected_cosine(method, bench),
    }


def evenly(n: int, most: int) -> IntArray:
    """At most so many of n positions, spread over all of them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def alignment(features: Tensor, classes: IntArray) -> float:
    """Mean squared distance of two images of one class, 0 to 4; lower is more compact.

    Wang and Isola 2020, with classes for positive pairs; the mean over classes. Of unit vectors
    with sum s the pairs' mean cosine is (|s|² − n) / (n (n − 1)).
    """
    found = []
    for each in np.unique(classes):
        members = features[torch.from_numpy(np.flatnonzero(classes == each))].double()
        n = len(members)
        if n > 1:
            cosine = (members.sum(dim=0).square().sum() - n) / (n * (n - 1))
            found.append(float(2 - 2 * cosine))
    return float(np.mean(found)) if found else 0.0


def uniformity(features: Tensor, *, scale: float = 2.0) -> float:
    """Log of the mean exp(−2 d²) over pairs; lower is spread more evenly. Wang and Isola 2020."""
    squared = (2 - 2 * features @ features.T).clamp_min(0.0)
    n = len(features)
    total = (-scale * squared).exp().sum() - n  # an image beside itself is no pair
    return float((total / max(n * (n - 1), 1)).log())


@torch.no_grad()
def projected_cosine(method: Method, bench: Workbench) -> float | None:
    """Mean cosine of the projections of different images; near 1 the contrast learns nothing.

    None for a method without a projector.
    """
    projector: Any = dict(method.named_children()).get("projector")
    if projector is None:
        return None
    positions = evenly(len(bench.test_source), 256)
    tokens = bench.test_source.test(positions).to(bench.device)
    features = method.features(tokens)
    z = projector(features)
    similarity = z @ z.T
    n = len(similarity)
    return float((similarity.sum() - similarity.diagonal().sum()) / (n * (n - 1)))
