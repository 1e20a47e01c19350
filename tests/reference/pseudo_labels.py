"""Pseudo-labels as their papers print them: loops over rows and classes, plain exp."""

import math

import torch


def debias(logits, class_counts, strength):
    """softmax(f - k log pi), row by row; the 1e-12 of the authors' code is below these digits."""
    shares = [float(n) / float(sum(class_counts)) for n in class_counts]
    rows = []
    for row in logits.tolist():
        moved = [math.exp(f - strength * math.log(pi)) for f, pi in zip(row, shares, strict=True)]
        rows.append([value / sum(moved) for value in moved])
    return torch.tensor(rows, dtype=logits.dtype)


def keep_rates(class_counts, present, alpha, beta):
    """BaCon Eq. (5) with its two cases."""
    smallest = min(class_counts)
    return [
        (n / smallest) ** -(alpha if here else beta)
        for n, here in zip(class_counts, present, strict=True)
    ]


def pick_confident(probabilities, counts_to_keep, among):
    """Class by class: the first rows of the list sorted by confidence."""
    rows, kept = probabilities.tolist(), set()
    for c, wanted in enumerate(counts_to_keep):
        members = [i for i, p in enumerate(rows) if among[i] and p.index(max(p)) == c]
        members.sort(key=lambda i: (-max(rows[i]), i))
        kept |= set(members[:wanted])
    return [i in kept for i in range(len(rows))]


SIMILARITY = {
    "dot": lambda p, q: sum(a * b for a, b in zip(p, q, strict=True)),
    "cosine": lambda p, q: (
        sum(a * b for a, b in zip(p, q, strict=True)) / math.hypot(*p) / math.hypot(*q)
    ),
    "l1": lambda p, q: 1 - sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2,
    "l2": lambda p, q: 1 - math.dist(p, q) / math.sqrt(2),
}


def positiveness(probabilities, similarity, same_image):
    rows = probabilities.tolist()
    weights = [[SIMILARITY[similarity](p, q) for q in rows] for p in rows]
    if same_image is not None:
        for i in range(len(rows)):
            weights[i][i] = same_image
    return torch.tensor(weights, dtype=probabilities.dtype)


def sinkhorn(logits, prior, epsilon, rounds):
    """TRSSL in its own words: exp, total 1; classes to the prior, samples to 1/B; rows to 1."""
    q = (logits / epsilon).exp()
    q = q / q.sum()
    for _ in range(rounds):
        q = q / q.sum(dim=0, keepdim=True) * prior
        q = q / q.sum(dim=1, keepdim=True) / len(q)
    return q / q.sum(dim=1, keepdim=True)


def long_tail_prior(mass, ratio, n_rows):
    n_classes = len(mass)
    sizes = [ratio ** (-i / (n_classes - 1)) * n_rows / n_classes for i in range(n_classes)]
    sizes = [max(size, 1.0) for size in sizes]
    prior = [0.0] * n_classes
    for rank, c in enumerate(sorted(range(n_classes), key=lambda c: -mass[c])):
        prior[c] = sizes[rank] / sum(sizes)
    return prior


def denoise(probabilities, class_counts, alpha):
    """DARP: column by column, then rows to 1."""
    n_rows, n_classes = probabilities.shape
    out = torch.zeros_like(probabilities)
    for k in range(n_classes):
        column = probabilities[:, k]
        best = sorted(range(n_rows), key=lambda n: -float(column[n]))
        best = best[: math.floor(alpha * float(class_counts[k]))]
        for n in best:
            out[n, k] = column[n] * class_counts[k] / sum(column[m] for m in best)
    out = out + 1e-6
    return out / out.sum(dim=1, keepdim=True)


def spread_temperatures(views, least):
    """TRSSL: standard deviation over views of the class that is best on average."""
    spreads = []
    for image in range(views.shape[1]):
        best = int(views[:, image].mean(dim=0).argmax())
        values = views[:, image, best].tolist()
        average = sum(values) / len(values)
        spreads.append(math.sqrt(sum((v - average) ** 2 for v in values) / (len(values) - 1)))
    return [min(max(s / max(spreads), least), 1.0) for s in spreads]
