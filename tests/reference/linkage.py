"""Average linkage as it is defined: the mean over all pairs of images."""

import numpy as np


def average_linkage(features, class_ids):
    """(kept, gone, distance) of each join; the largest single class gives the name."""
    groups = {c: [c] for c in range(class_ids.max() + 1)}
    size = np.bincount(class_ids)
    joins = []
    while len(groups) > 1:
        best = None
        for a in groups:
            for b in groups:
                if a < b:
                    d = mean_distance(features, class_ids, groups[a], groups[b])
                    best = min(best or (d, a, b), (d, a, b))
        d, a, b = best
        kept, gone = (a, b) if size[a] >= size[b] else (b, a)
        groups[kept] = groups[kept] + groups.pop(gone)
        joins.append((kept, gone, d))
    return joins


def mean_distance(features, class_ids, first, second):
    pairs = [
        1 - float(x @ y)
        for x in features[np.isin(class_ids, first)]
        for y in features[np.isin(class_ids, second)]
    ]
    return sum(pairs) / len(pairs)
