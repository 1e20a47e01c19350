"""The reference's training step as it is really run: matrix operations, nothing saved or shared.

What the released code does and what bench/ measures against: the frozen trunk runs once, the last
block runs whole in both branches, z is 65536 wide and multiplied three times, fp32. `bacon_step` is
its slow, literal version (tests/methods/test_bacon.py).
"""

import math

import torch
import torch.nn.functional as F


def info_nce(z, temperature=1.0):
    n = len(z)
    itself = torch.eye(n, dtype=torch.bool)
    logits = ((z @ z.T) / temperature).masked_fill(itself, -torch.inf)
    return F.cross_entropy(logits, (torch.arange(n) + n // 2) % n)


def weighted_contrast(z, weights, temperature=0.07):
    itself = torch.eye(len(z), dtype=torch.bool)
    logits = ((z @ z.T) / temperature).masked_fill(itself, -torch.inf)
    log_prob = logits.log_softmax(dim=1).masked_fill(itself, 0.0)
    weights = weights.masked_fill(itself, 0.0)
    return -((weights * log_prob).sum(1) / weights.sum(1)).mean()


def classifier_loss(cosines, labels, class_counts, *, teacher, power, w=0.35):
    first, second = cosines.chunk(2)
    target = (cosines.detach() / teacher).softmax(dim=1)
    swapped = torch.cat([second, first]) / 0.1
    unsupervised = -(target * swapped.log_softmax(dim=1)).sum(1).mean()
    both = torch.cat([labels, labels])
    supervised = F.cross_entropy(cosines[both >= 0] / 0.1, both[both >= 0])
    ratio = (cosines / 0.1).softmax(dim=1).mean(0) / class_counts**power
    q = ratio / ratio.sum()
    regularizer = math.log(len(q)) + torch.xlogy(q, q).sum()
    return (1 - w) * (unsupervised + regularizer) + w * supervised


@torch.no_grad()
def advice(cosines, labels, class_counts, *, k=0.5, alpha=0.0, beta=0.5):
    pi = class_counts / class_counts.sum()
    first, second = (cosines / 0.1 - (pi**k + 1e-12).log()).softmax(dim=1).chunk(2)
    p = (first + second) / 2
    present = torch.zeros(len(pi), dtype=torch.bool)
    present[labels[labels >= 0]] = True
    rates = (class_counts.min() / class_counts) ** torch.where(present, alpha, beta)
    confidence, predicted = p.max(dim=1)
    kept = labels >= 0
    for c in predicted[~kept].unique():
        rows = ((labels < 0) & (predicted == c)).nonzero().squeeze(1)
        rows = rows[confidence[rows].argsort(descending=True, stable=True)]
        kept[rows[: round(len(rows) * float(rates[c]))]] = True
    w = p[kept] @ p[kept].T
    return kept, w.fill_diagonal_(1.0)


def contrastive_loss(z, labels, kept, w, *, warm_up):
    both = torch.cat([labels, labels])
    labeled = both >= 0
    same = (both[labeled][:, None] == both[labeled]).to(z.dtype)
    unsupervised, supervised = info_nce(z), weighted_contrast(z[labeled], same)
    if warm_up:
        return 0.65 * unsupervised + 0.35 * supervised
    soft = weighted_contrast(z[torch.cat([kept, kept])], w.repeat(2, 2))
    return 0.65 * unsupervised + 0.175 * supervised + 0.175 * soft


def step(branches, optimizers, tokens, labels, class_counts, *, teacher, power, warm_up):
    """The same order and arguments as `bacon_step.step`."""
    cosines = F.normalize(branches["classify_tail"](tokens), dim=1) @ (
        F.normalize(branches["classifier_weight"], dim=1).T
    )
    kept, w = advice(cosines.detach(), labels, class_counts)
    optimizers["classify"].zero_grad()
    classifier_loss(cosines, labels, class_counts, teacher=teacher, power=power).backward()
    optimizers["classify"].step()

    z = F.normalize(branches["mlp"](branches["contrast_tail"](tokens)), dim=1)
    if branches["wide"] is not None:
        z = F.normalize(z @ F.normalize(branches["wide"], dim=1).T, dim=1)
    optimizers["contrast"].zero_grad()
    contrastive_loss(z, labels, kept, w, warm_up=warm_up).backward()
    optimizers["contrast"].step()
