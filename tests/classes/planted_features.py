"""Features of planted classes, with some labels, for the tests of several steps."""

import numpy as np
import torch

from bacon_gcd.classes.membership import view_of
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import reduced
from bacon_gcd.cluster import unit


def planted(n_classes=10, each=40, d=32, spread=0.5, seed=0):
    rng = np.random.default_rng(seed)
    means = unit(torch.from_numpy(rng.normal(size=(n_classes, d))).float())
    ids = np.repeat(np.arange(n_classes), each)
    noise = torch.from_numpy(rng.normal(size=(len(ids), d))).float() * spread / d**0.5
    mixed = rng.permutation(len(ids))
    return unit(means[torch.from_numpy(ids)] + noise)[torch.from_numpy(mixed)], ids[mixed]


def some_labels(ids, n_known, each):
    labels = np.full(len(ids), -1)
    for c in range(n_known):
        labels[np.flatnonzero(ids == c)[:each]] = c
    return labels


def agreement(found, ids, n_known):
    """Share of images that are right: known by name, new ones by the majority of their class."""
    right = (found == ids) & (ids < n_known)
    for c in range(n_known, ids.max() + 1):
        inside = found[ids == c]
        best = np.bincount(inside).argmax()
        right[ids == c] = (inside == best) & (best >= n_known)
    return right.mean()


def small_view(n_known=2, each=10, **rules):
    """Forty images of four classes, five labels of each known class."""
    features, ids = planted(4, each=each, d=6)
    labels = some_labels(ids, n_known, 5)
    rows = reduced(features, labels, seed=0, rules=Rules(**rules))
    return view_of(rows, labels, seed=0), labels, ids
