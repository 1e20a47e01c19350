"""BaCon-S's training step, literally: the authors' order, loops over rows, full-width projections.

Nothing of `bacon_gcd` is used; the modules are handed in. Spec 1.5, 1.8, 1.9, 1.10.
"""

import math

import torch
import torch.nn.functional as F


def classifier_loss(cosines, labels, class_counts, *, teacher, power, w=0.35):
    """(1-w)(L_u + L_reg) + w L_s: Eq. (3) with the weights of the released code."""
    b = len(labels)
    c = cosines.shape[1]
    first, second = cosines[:b], cosines[b:]
    unsupervised = 0.0
    for teach, learn in ((first, second), (second, first)):
        q = torch.softmax(teach.detach() / teacher, dim=1)
        unsupervised = unsupervised + -(q * torch.log_softmax(learn / 0.1, dim=1)).sum(1).mean()
    unsupervised = unsupervised / 2
    rows = [i for i in range(2 * b) if labels[i % b] >= 0]
    supervised = F.cross_entropy(cosines[rows] / 0.1, torch.cat([labels, labels])[rows])
    mean = torch.softmax(cosines / 0.1, dim=1).mean(0)
    r = mean / class_counts**power
    q = r / r.sum()
    regularizer = math.log(c) + (q * q.log()).sum()
    return (1 - w) * (unsupervised + regularizer) + w * supervised


def unsupervised_contrast(z, temperature=1.0):
    """Each row's target is the other view of its image; L_u of BaCon-S, Eq. (3)."""
    n = len(z)
    total = 0.0
    for i in range(n):
        others = [a for a in range(n) if a != i]
        logits = (z[others] @ z[i]) / temperature
        target = others.index((i + n // 2) % n)
        total = total - torch.log_softmax(logits, dim=0)[target]
    return total / n


def weighted_contrast(z, weights, temperature=0.07):
    """Mean over anchors of the weighted mean over positives: Eq. (6)."""
    n = len(z)
    total = 0.0
    for a in range(n):
        others = [b for b in range(n) if b != a]
        log_prob = torch.log_softmax((z[others] @ z[a]) / temperature, dim=0)
        w = weights[a][others]
        total = total - (w * log_prob).sum() / w.sum()
    return total / n


def advice(cosines, labels, class_counts, *, k=0.5, alpha=0.0, beta=0.5):
    """Soft labels and participants with expected counts: Eq. (4), (5)."""
    b = len(labels)
    pi = class_counts / class_counts.sum()
    a = torch.log(pi**k + 1e-12)
    p = (
        torch.softmax(cosines[:b] / 0.1 - a, dim=1) + torch.softmax(cosines[b:] / 0.1 - a, dim=1)
    ) / 2
    kept = [i for i in range(b) if labels[i] >= 0]
    for c in range(len(class_counts)):
        power = alpha if c in labels.tolist() else beta
        rate = float((class_counts.min() / class_counts[c]) ** power)
        rows = [i for i in range(b) if labels[i] < 0 and int(p[i].argmax()) == c]
        rows.sort(key=lambda i: -float(p[i].max()))
        kept += rows[: round(len(rows) * rate)]
    kept.sort()
    w = p[kept] @ p[kept].T
    for i in range(len(kept)):
        w[i, i] = 1.0
    return kept, w


def contrastive_loss(z, labels, kept, w, *, warm_up):
    """Spec 1.9."""
    b = len(labels)
    unsupervised = unsupervised_contrast(z)
    rows = [i for i in range(2 * b) if labels[i % b] >= 0]
    known = torch.cat([labels, labels])[rows]
    same = (known[:, None] == known[None, :]).to(z.dtype)
    supervised = weighted_contrast(z[rows], same)
    if warm_up:
        return 0.65 * unsupervised + 0.35 * supervised
    both = kept + [i + b for i in kept]
    soft = weighted_contrast(z[both], torch.cat([torch.cat([w, w], 1)] * 2, 0))
    return 0.65 * unsupervised + 0.175 * supervised + 0.175 * soft


def step(branches, optimizers, tokens, labels, class_counts, *, teacher, power, warm_up):
    """Classifier loss, backward, step; then contrastive loss, backward, step: Algorithm 1.

    branches: classify_tail, classifier_weight, contrast_tail, mlp, wide (or None).
    """
    features = branches["classify_tail"](tokens)
    unit = features / features.norm(dim=1, keepdim=True)
    weight = branches["classifier_weight"]
    cosines = unit @ (weight / weight.norm(dim=1, keepdim=True)).T
    with torch.no_grad():
        kept, w = advice(cosines, labels, class_counts)
    optimizers["classify"].zero_grad()
    classifier_loss(cosines, labels, class_counts, teacher=teacher, power=power).backward()
    optimizers["classify"].step()

    u = branches["mlp"](branches["contrast_tail"](tokens))
    z = u / u.norm(dim=1, keepdim=True)
    if branches["wide"] is not None:
        z = z @ (branches["wide"] / branches["wide"].norm(dim=1, keepdim=True)).T
        z = z / z.norm(dim=1, keepdim=True)
    optimizers["contrast"].zero_grad()
    contrastive_loss(z, labels, kept, w, warm_up=warm_up).backward()
    optimizers["contrast"].step()
