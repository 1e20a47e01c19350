"""The printed equations, slowly: one loop per sum sign, plain exp and log. Keeps gradients."""

import math


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def softmax(row, temperature=1.0):
    exponentials = [(value / temperature).exp() for value in row]
    return [value / sum(exponentials) for value in exponentials]


def contrast(similarity, positives, temperature):
    """BaCon Eq. (1), (6): A(i) is everything but i; anchors without a positive do not count."""
    n, anchors = len(similarity), []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        total = sum(float(positives[i, j]) for j in others)
        if total == 0:
            continue
        denominator = sum((similarity[i, a] / temperature).exp() for a in others)
        pull = 0.0
        for j in others:
            probability = (similarity[i, j] / temperature).exp() / denominator
            pull = pull - float(positives[i, j]) * probability.log()
        anchors.append(pull / total)
    return mean(anchors)


def cross_entropy(logits, labels):
    """Mean -log p of the own class over rows that have one."""
    return mean(
        -softmax(row)[int(label)].log()
        for row, label in zip(logits, labels, strict=True)
        if label >= 0
    )


def soft_cross_entropy(logits, targets, gates):
    """Closed gates count as zero, but they count."""
    return mean(
        -float(gate) * sum(t * p.log() for t, p in zip(target, softmax(row), strict=True))
        for row, target, gate in zip(logits, targets, gates, strict=True)
    )


def self_distillation(cosines, teacher, student):
    """1/2 [mean H(q_1, p_2) + mean H(q_2, p_1)], q without gradient."""
    half = len(cosines) // 2
    views = (cosines[:half], cosines[half:])
    directions = []
    for teaching, learning in (views, views[::-1]):
        images = []
        for a, b in zip(teaching.detach(), learning, strict=True):
            q, p = softmax(a, teacher), softmax(b, student)
            images.append(-sum(x * y.log() for x, y in zip(q, p, strict=True)))
        directions.append(mean(images))
    return 0.5 * (directions[0] + directions[1])


def mean_prediction(cosines, temperature=0.1):
    rows = [softmax(row, temperature) for row in cosines]
    return [mean(row[c] for row in rows) for c in range(cosines.shape[1])]


def prior_penalty(m, counts, power, form):
    """BaCon Eq. (2) for a mean prediction m, as printed and as released."""
    sizes = [float(n) ** power for n in counts]
    if form == "paper":
        return sum(x * (x.log() - math.log(s / sum(sizes))) for x, s in zip(m, sizes, strict=True))
    r = [x / s for x, s in zip(m, sizes, strict=True)]
    q = [x / sum(r) for x in r]
    return math.log(len(q)) + sum(x * x.log() for x in q)


def pair_agreement(first, second):
    """-log of the probability that both have the same class."""
    return mean(
        -sum(a * b for a, b in zip(p, q, strict=True)).log()
        for p, q in zip(first, second, strict=True)
    )
