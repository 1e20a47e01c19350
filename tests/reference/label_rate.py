"""Log-odds by the labels around an image, from binomial probabilities, one image at a time."""

from math import comb, log


def label_odds(around, around_labels, around_own, n_around, *, part=0.3, images=100, scale=10):
    """log P(so many labels | the class) - log P(so many | a new class), in units of the mean rate.

    Args:
        around: labels around the image.
        around_labels: labels around each labeled image.
        around_own: the same of those of its class.
        n_around: images around each.
    """
    mean = sum(around_labels) / len(around_labels) / n_around
    rate = (sum(around_own) + images * mean) / (len(around_own) * n_around + images)
    odds = log(binomial(around, n_around, rate)) - log(binomial(around, n_around, part * rate))
    return odds * scale / (n_around * mean)


def binomial(hits, n, share):
    return comb(n, hits) * share**hits * (1 - share) ** (n - hits)
