"""Heads, slowly: full-width projections, one prototype at a time."""

import torch


def projection_cosines(u, wide):
    """Unit rows of the wide layer, z = V u in full width, cosines pair by pair."""
    rows = torch.stack([w / w.square().sum().sqrt() for w in wide])
    z = [rows @ x for x in u]
    z = [x / x.square().sum().sqrt() for x in z]
    return torch.stack([torch.stack([a @ b for b in z]) for a in z])


def move_prototypes(vectors, z, labels, order, momentum):
    """p <- unit(m p + (1 - m) z), one member after the other."""
    vectors = vectors.clone()
    for row in order:
        moved = momentum * vectors[labels[row]] + (1 - momentum) * z[row]
        vectors[labels[row]] = moved / moved.norm()
    return vectors
