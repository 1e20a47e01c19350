"""Images that arrive after a run: are they sorted rightly, is an unseen class noticed, opened?

python -m bench arriving   A fifth of the classes is unseen; half of the others is known, with ten
labels each; long-tailed. Five images of every class arrive.
"""

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.opening import opened_classes
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.sorter import OUTLIER, fit_sorter
from bench.discovery_sets import LARGEST, features_of
from bench.measure import table

SETS = ("textures", "objects", "cifar100", "birds")
DRAWS = 3
UNSEEN, RATIO, N_LABELS, ARRIVING, SMALLEST = 0.2, 20, 10, 5, 8


def main():
    rows = []
    for name in SETS:
        found = [measured(*drawn(name, draw)) for draw in range(DRAWS)]
        means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
        rows.append({"set": name, **means})
    print(table(rows))


def drawn(name, draw):
    """Features, classes and labels of a run; features and classes (-1 - n: unseen) that arrive."""
    features, classes = features_of(name)
    rng = np.random.default_rng([draw, len(features)])
    order = rng.permutation(np.unique(classes))
    n_unseen = max(2, round(UNSEEN * len(order)))
    seen, ranks = order[n_unseen:], rng.permutation(len(order) - n_unseen)
    n_known = len(seen) // 2
    run, true, labels, new, new_true = [], [], [], [], []
    for number, each in enumerate(seen):
        have = rng.permutation(np.flatnonzero(classes == each))
        most = min(LARGEST[name], len(have) - ARRIVING)
        size = max(SMALLEST, int(most * RATIO ** (-ranks[number] / (len(seen) - 1))))
        n_labels = min(N_LABELS, size - 1) * (number < n_known)
        new, new_true = new + have[:ARRIVING].tolist(), new_true + [number] * ARRIVING
        run += have[ARRIVING : ARRIVING + size].tolist()
        true += [number] * size
        labels += [number] * n_labels + [-1] * (size - n_labels)
    for number, each in enumerate(order[:n_unseen]):
        new += rng.permutation(np.flatnonzero(classes == each))[:ARRIVING].tolist()
        new_true += [-1 - number] * ARRIVING
    rows = torch.from_numpy(features)
    return rows[run], np.array(true), np.array(labels), rows[new], np.array(new_true), n_known


def measured(features, true, labels, new, new_true, n_known):
    near = nearest(features)
    found = find_classes(features, labels, seed=0)
    ids, free, seen = found.class_ids, labels < 0, new_true >= 0
    n_classes = len(found.centroids)
    sure = float(found.probabilities[free].max(axis=1).mean())
    sorter = fit_sorter(features, ids, labels, near, n_classes=n_classes, sure=sure, seed=0).sorter
    stands_for = np.array(
        [c if c < n_known else np.bincount(true[ids == c]).argmax() for c in range(n_classes)]
    )
    by_evidence = sorter.probabilities(new).argmax(axis=1)
    by_centroids = (new @ found.centroids.T).argmax(dim=1).numpy()
    score = sorter.outlier_score(new)
    called_known = found.probabilities[:, :n_known].sum(axis=1)
    groups = opened_classes(sorter, new, [str(n) for n in range(len(new))], seed=0)
    usual = [np.unique(new_true[group], return_counts=True) for group in groups]
    mostly = [int(values[counts.argmax()]) for values, counts in usual]
    updated = np.concatenate([stands_for, mostly]).astype(int)[in_update(sorter, new, groups)]
    return {
        "right %": 100 * (stands_for[by_evidence] == new_true)[seen].mean(),
        "by centroids %": 100 * (stands_for[by_centroids] == new_true)[seen].mean(),
        "as in the run %": 100 * (sorter.probabilities(features).argmax(axis=1) == ids).mean(),
        "AUROC known": roc_auc_score(true[free] < n_known, called_known[free]),
        "AUROC outlier": roc_auc_score(~seen, score),
        "flagged unseen %": 100 * (score >= OUTLIER)[~seen].mean(),
        "flagged others %": 100 * (score >= OUTLIER)[seen].mean(),
        "unseen": len(np.unique(new_true[~seen])),
        "opened": len(groups),
        "rightly": sum(c < 0 or c not in stands_for for c in mostly),
        "updated rightly %": 100 * (updated == new_true)[seen].mean(),
        "unseen updated rightly %": 100 * (updated == new_true)[~seen].mean(),
    }


def in_update(sorter, new, groups):
    """The class of each new image, with those that groups open."""
    members = [new[torch.from_numpy(group)] for group in groups]
    grown = sorter.with_classes(members, at=len(sorter.counts), weight=RULES.unlabeled_weight)
    return grown.probabilities(new).argmax(axis=1)
