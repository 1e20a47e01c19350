"""What rules for the size of small classes are worth, by the images of the largest class.

BACON_DATA=FOLDER python -m bench.small_classes [SET ...]   On random questions of 8 to 40 classes,
of the sets that constants are chosen on, or of those that are named: percent right by name without
and with these rules, and the number of classes that was counted over the true one.

Not one of `make bench`: it takes ten minutes.
"""

import sys
import zlib

import numpy as np
import torch

from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.rules import RULES, Rules
from bench.discovery import shares
from bench.discovery_sets import DEVELOPED_ON, features_of, mixture
from bench.measure import table

N_QUESTIONS, SEED = 24, 2  # of each set
CLASSES, LARGEST, RATIOS = (8, 12, 16, 20, 24, 30, 40), (8, 12, 16, 24, 40), (1, 3, 10)
LABELS, HOW_OFTEN = ("1", "3", "5", "10", "half"), (0.1, 0.2, 0.25, 0.25, 0.2)
KNOWN = (0.3, 0.5, 0.7)
WITHOUT = Rules(usual_images=1e-6)


def questions(x, classes, rng):
    """Images of the largest class, and a mixture: features, true classes, labels, known classes."""
    for _ in range(N_QUESTIONS):
        order = rng.permutation(np.unique(classes))[: int(rng.choice(CLASSES))]
        largest, ratio = int(rng.choice(LARGEST)), int(rng.choice(RATIOS))
        labeled = str(rng.choice(LABELS, p=HOW_OFTEN))
        n_known = max(1, round(float(rng.choice(KNOWN)) * len(order)))
        rows, true, labels = mixture(
            classes,
            order,
            rng.permutation(len(order)),
            rng,
            largest=largest,
            ratio=ratio,
            labeled=labeled,
            n_known=n_known,
        )
        yield largest, (torch.from_numpy(x[rows]), true, labels, n_known)


def answer(question, rules):
    """Percent right by name, and the number of classes over the true one."""
    x, true, labels, n_known = question
    found = find_classes(x, labels, seed=0, rules=rules)
    right = shares(found.class_ids, true, labels, n_known)["all"]
    return right, found.number.estimate / (true.max() + 1)


def row(title, pairs):
    """Means over questions: without, with, the difference and its 95 % interval, and counts."""
    right, counts = (np.array([[each[i] for each in pair] for pair in pairs]) for i in (0, 1))
    gain = right[:, 1] - right[:, 0]
    return {
        "largest class": title,
        "questions": len(pairs),
        "without": right[:, 0].mean(),
        "with": right[:, 1].mean(),
        "gain": gain.mean(),
        "95 %": 1.96 * gain.std() / len(gain) ** 0.5,
        "classes / true, without": np.exp(np.log(counts[:, 0]).mean()),
        "classes / true, with": np.exp(np.log(counts[:, 1]).mean()),
    }


def main():
    torch.set_num_threads(1)
    found = {}
    for name in sys.argv[1:] or DEVELOPED_ON:
        x, classes = features_of(name)
        rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
        for largest, question in questions(x, classes, rng):
            pair = tuple(answer(question, rules) for rules in (WITHOUT, RULES))
            found.setdefault(largest, []).append(pair)
        print(name, flush=True)
    rows = [row(str(largest), found[largest]) for largest in sorted(found)]
    print(table([*rows, row("all", [pair for pairs in found.values() for pair in pairs])]))


if __name__ == "__main__":
    main()
