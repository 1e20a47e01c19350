"""How the authors' code draws the labeled half of ImageNet-100-LT: docs/paper-vs-code.md."""

import numpy as np


def literal_halves(class_ids, known):
    """Lines of the list -> (labeled, unlabeled-known, unlabeled-novel) line numbers.

    Seeds numpy's global generator, as the released code does; the caller restores it.
    """
    np.random.seed(416)  # noqa: NPY002
    known_lines = [line for line, class_id in enumerate(class_ids) if class_id in known]
    known_class = [class_ids[line] for line in known_lines]
    unlabeled, labeled = [], []
    for class_id in sorted(known):
        positions = [p for p in range(len(known_class)) if known_class[p] == class_id]
        drawn = np.random.choice(positions, int(len(positions) / 2), replace=False)  # noqa: NPY002
        unlabeled += [known_lines[p] for p in drawn]
        labeled += [known_lines[p] for p in positions if p not in set(drawn.tolist())]
    novel_classes = sorted(set(class_ids) - set(known))
    novel = [n for c in novel_classes for n in range(len(class_ids)) if class_ids[n] == c]
    return labeled, unlabeled, novel
