"""How well the accuracy of an answer can be told, and the weights of what tells it.

BACON_DATA=FOLDER python -m bench.telling   On random questions of the four sets that constants are
chosen on: some or all of their classes, labels, mixtures. Prints `told` and `told_without_hidden`
of `classes/rules.py`, and the error on each set with the weights of the other three.

Not one of `make bench`: it takes half an hour.
"""

import json

import numpy as np
import torch

from bacon_gcd.classes.find import checked_answer
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.reliability import expected
from bench.discovery import shares
from bench.discovery_sets import DEVELOPED_ON, OUT, features_of, mixture
from bench.measure import table

N_SOME, N_ALL, SEED = 320, 160, 1  # questions of some classes of a set, and of all of them
CLASSES = (5, 6, 8, 10, 12, 16, 20, 25, 30, 40, 60)
LARGEST = (30, 60, 120)
LABELS, HOW_OFTEN = ("1", "3", "10", "half"), (0.15, 0.25, 0.35, 0.25)
KNOWN, RATIOS = (0.25, 0.5, 0.8), (1, 5, 20, 100)
STORED = OUT / "telling.jsonl"


def drawn(x, classes, rng, *, every):
    """Features, true classes (known first), visible labels, number of known classes.

    every: all classes of the set, instead of some.
    """
    order = rng.permutation(np.unique(classes))
    order = order if every else order[: int(rng.choice(CLASSES))]
    largest, ratio = int(rng.choice(LARGEST)), int(rng.choice(RATIOS))
    labeled = str(rng.choice(LABELS, p=HOW_OFTEN))
    n_known = max(1, round(float(rng.choice(KNOWN)) * len(order)))
    ranks = rng.permutation(len(order))
    rows, true, labels = mixture(
        classes,
        order,
        ranks,
        rng,
        largest=largest,
        ratio=ratio,
        labeled=labeled,
        n_known=n_known,
    )
    return x[rows], true, labels, n_known


def measured(x, true, labels, n_known):
    """What tells the accuracy of an answer, and the accuracy, all from 0 to 1."""
    question = Question(torch.from_numpy(x), labels, 0)
    found = checked_answer(question)
    hidden = expected(found.hidden, known_share=found.known_share(question))
    return {
        "right": shares(found.class_ids, true, labels, n_known)["all"] / 100,
        "hidden": None if hidden is None else hidden.accuracy,
        "halves": found.signs.halves,
        "neighbors": found.signs.neighbors,
    }


def questions():
    """One line each in a file; what is there is not asked again."""
    done = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    features = {name: features_of(name) for name in DEVELOPED_ON}
    rng = np.random.default_rng(SEED)
    for number in range(N_SOME + N_ALL):
        name = DEVELOPED_ON[number % len(DEVELOPED_ON)]
        question = drawn(*features[name], rng, every=number >= N_SOME)
        if number < len(done):
            continue
        with STORED.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"set": name} | measured(*question)) + "\n")
        print(f"{number + 1}/{N_SOME + N_ALL}", flush=True)
    return [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]


def fitted(rows, names):
    """Weights of some columns and of 1, by least squares."""
    columns = [[row[name] for name in names] + [1.0] for row in rows]
    return np.linalg.lstsq(np.array(columns), np.array([row["right"] for row in rows]), rcond=None)[
        0
    ]


def errors(rows, names, weights):
    told = np.array([[row[name] for name in names] + [1.0] for row in rows]) @ weights
    return np.clip(told, 0.05, 0.98) - np.array([row["right"] for row in rows])


def report(title, rows, names, weights=None):
    """The error on each set, with the weights of the other three unless they are given."""
    print(f"\n{title}: {names}, {fitted(rows, names).round(2).tolist()}")
    lines = []
    for left_out in DEVELOPED_ON:
        inside = [row for row in rows if row["set"] == left_out]
        others = [row for row in rows if row["set"] != left_out]
        error = errors(inside, names, fitted(others, names) if weights is None else weights)
        within = 100 * (np.abs(error) <= 0.08).mean()
        mean, size = 100 * error.mean(), 100 * np.abs(error).mean()
        lines.append({"set": left_out, "bias": mean, "error": size, "within 8 points": within})
    print(table(lines))


def main():
    torch.set_num_threads(1)
    rows = questions()
    hidden = [row for row in rows if row["hidden"] is not None]
    report("hidden images as they are", hidden, ["hidden"], np.array([1.0, 0.0]))
    report("hidden images", hidden, ["hidden"])
    report("halves of the features", hidden, ["halves"])
    report("told", hidden, ["hidden", "halves", "neighbors"])
    without = [row for row in rows if row["hidden"] is None]
    report("neighbors", without, ["neighbors"])
    report("told_without_hidden", without, ["halves", "neighbors"])


if __name__ == "__main__":
    main()
