"""How many images are sorted right, on sets and regimes nobody tuned for, beside the alternatives.

BENCH_DRAWS=3 python -m bench discovery   runs what is missing and writes docs/discovery-quality.md
"""

import json
import os
import time

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import roc_auc_score

from bacon_gcd.classes.find import find_classes
from bench.discovery_rivals import RIVALS
from bench.discovery_sets import OUT, SETS, as_discovered, cells, drawn, with_edges_of

OURS, OURS_TRUE = "ours", "ours, true K"
FLIPPED = 0.05


def right_by_name(found, true, labels, n_known):
    """(U,) unlabeled images that are right: known classes by name, new ones matched one to one."""
    free = labels < 0
    f, t = found[free], true[free]
    right = (f == t) & (t < n_known)
    both = (f >= n_known) & (t >= n_known)
    if both.any():
        groups, rows = np.unique(f[both], return_inverse=True)
        hits = np.zeros((len(groups), int(t.max()) + 1))
        np.add.at(hits, (rows, t[both]), 1)
        best = dict(zip(*linear_sum_assignment(-hits), strict=True))
        right[both] = np.array([best.get(row, -1) for row in rows]) == t[both]
    return right


def shares(found, true, labels, n_known):
    """Percentages of unlabeled images."""
    right = right_by_name(found, true, labels, n_known)
    f, known = found[labels < 0], true[labels < 0] < n_known

    def mean(values):
        return float(100 * values.mean()) if len(values) else None

    return {
        "all": mean(right),
        "known": mean(right[known]),
        "new": mean(right[~known]),
        "new_as_known": mean((f[~known] >= 0) & (f[~known] < n_known)),
        "known_as_new": mean((f[known] < 0) | (f[known] >= n_known)),
    }


def ours(x, true, labels, n_known, *, n_classes=None):
    """Our answer with everything it says of itself."""
    allowed = None if n_classes is None else (n_classes, n_classes)
    found = find_classes(torch.from_numpy(x), labels, seed=0, allowed=allowed)
    free = labels < 0
    result = shares(found.class_ids, true, labels, n_known)
    right = right_by_name(found.class_ids, true, labels, n_known)
    known = true[free] < n_known
    sure = found.probabilities[free].max(axis=1)
    true_number = int(true.max()) + 1
    low, high = found.number.interval
    side = found.probabilities[free][:, :n_known].sum(axis=1)
    return result | {
        "estimate": found.number.estimate,
        "holds": bool(low <= true_number <= high),
        "count_error": abs(found.number.estimate - true_number) / true_number,
        "calibration": calibration_error(sure, right),
        "calibration_new": calibration_error(sure[~known], right[~known]),
        "expected": None if found.expected is None else 100 * found.expected.accuracy,
        "told_rightly": None if found.expected is None else inside(result["all"], found.expected),
        "auroc": float(roc_auc_score(known, side)) if 0 < known.mean() < 1 else None,
    }


def inside(percent, expected):
    """Whether the interval of the expected accuracy holds this."""
    low, high = expected.interval
    return bool(100 * low <= percent <= 100 * high)


def calibration_error(sure, right, bins=10):
    which = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(which, sure - right, minlength=bins)
    return float(np.abs(gaps).sum() / max(len(sure), 1))


def done(path):
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row["cell"], row["method"]): row for row in rows}


def run(draws, methods, path, sets=SETS):
    """Every cell and method that is missing, one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    finished, todo = done(path), cells(draws, sets)
    stored = {}
    for number, cell in enumerate(todo):
        missing = [name for name in methods if (cell.key, name) not in finished]
        if not missing:
            continue
        if cell.name not in stored:
            stored[cell.name] = with_edges_of(cell.name)
        both, true, labels, n_known = drawn(cell, *stored[cell.name])
        x = as_discovered(both, labels)
        for name in missing:
            start = time.perf_counter()
            row = measured(name, x, true, labels, n_known)
            row |= {"cell": cell.key, "method": name, "seconds": time.perf_counter() - start}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{number + 1}/{len(todo)} {cell.key}", flush=True)


def measured(name, x, true, labels, n_known):
    n_classes = int(true.max()) + 1
    if name == OURS:
        return ours(x, true, labels, n_known)
    if name == OURS_TRUE:
        return ours(x, true, labels, n_known, n_classes=n_classes)
    return shares(RIVALS[name](x, labels, n_known, n_classes), true, labels, n_known)


def main():
    from bench.discovery_table import write_table

    torch.set_num_threads(1)
    draws = range(int(os.environ.get("BENCH_DRAWS", "1")))
    slow = [name for name in RIVALS if "UMAP" in name]
    quick = [name for name in RIVALS if name not in slow]
    path = OUT / "discovery.jsonl"
    run(draws, [OURS, OURS_TRUE], path)
    run(draws, quick, path)
    if os.environ.get("BENCH_UMAP"):
        run(draws, slow, path)
    write_table(path)


if __name__ == "__main__":
    main()
