"""What halving and doubling each constant of `classes/rules.py` does, on the sets it was chosen on.

python -m bench rules   writes docs/rules.md
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from bacon_gcd.classes.find import find_classes
from bacon_gcd.classes.rules import Rules
from bench.discovery import shares
from bench.discovery_sets import DEVELOPED_ON, OUT, cells, drawn, features_of

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
N_CELLS = 12
SMALL = 800  # images; larger cells would take hours
# Rules that move no image to another class: outliers, suspected labels, duplicates, `update`.
ELSEWHERE = {
    *("outlier_spreads", "leverage_weight", "own_statistics", "suspecting", "suspect_votes"),
    *("similar", "duplicate_bits", "duplicate_gap", "opening_images", "spread_of_count"),
    *("new_ease", "agreement_slope", "agreement_start", "whole_folds", "clear", "halves"),
    *("halved_dims", "halved_images", "told", "told_without_hidden", "told_images"),
    *("confidence_slope", "evidence_share", "lone_evidence_weight"),
}
SHARES = {
    *("isotropic", "hidden_classes", "hidden_labels", "lone_quantile", "edge"),
    *("known_between", "known_isotropic", "unseen_share"),
}


def chosen_cells():
    """The same small cells for every rule."""
    order = np.random.default_rng(0).permutation(len(cells([0], DEVELOPED_ON)))
    picked = []
    for cell in (cells([0], DEVELOPED_ON)[i] for i in order):
        question = drawn(cell, *features_of(cell.name))
        if len(question[0]) <= SMALL:
            picked.append(question)
        if len(picked) == N_CELLS:
            break
    return picked


def accuracy(questions, rules):
    """Mean accuracy by name and median error of the number of classes."""
    right, errors = [], []
    for x, true, labels, n_known in questions:
        found = find_classes(torch.from_numpy(x), labels, seed=0, rules=rules)
        right.append(shares(found.class_ids, true, labels, n_known)["all"])
        n_classes = int(true.max()) + 1
        errors.append(abs(found.number.estimate - n_classes) / n_classes)
    return float(np.mean(right)), float(np.median(errors))


def variants():
    yield "as it is", "", Rules()
    for field in dataclasses.fields(Rules):
        if field.name in ELSEWHERE:
            continue
        value = getattr(Rules(), field.name)
        for factor in (0.5, 2):
            changed = value * factor
            if isinstance(value, int):
                changed = max(int(changed), 1)
            if field.name in SHARES:
                changed = min(changed, 0.95)
            yield field.name, f"{value:.3g} -> {changed:.3g}", Rules(**{field.name: changed})


def main():
    torch.set_num_threads(1)
    questions, stored = chosen_cells(), OUT / "rules.jsonl"
    done = [json.loads(line) for line in stored.read_text().splitlines()] if stored.exists() else []
    seen = {(row["rule"], row["change"]) for row in done}
    for rule, change, rules in variants():
        if (rule, change) in seen:
            continue
        right, error = accuracy(questions, rules)
        done.append({"rule": rule, "change": change, "right": right, "error": error})
        with stored.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(rule, change, f"{right:.1f} {error:.2f}", flush=True)
    write_page(done)


def write_page(rows):
    base = rows[0]["right"]
    body = [
        f"| {r['rule']} | {r['change']} | {r['right']:.1f} | {r['right'] - base:+.1f} "
        f"| {r['error']:.0%} |"
        for r in rows
    ]
    head = (
        "# What each rule does\n\nRead here what halving and doubling each constant of "
        "`bacon_gcd/classes/rules.py` changes: mean accuracy by name (percent of unlabeled images) "
        f"and the median error of the number of classes over {N_CELLS} cells of "
        f"{', '.join(DEVELOPED_ON)}, one draw. The reasons stand beside the constants. "
        "Regenerate: `python -m bench rules`. Rules that move no image to another class are left "
        f"out: {', '.join(sorted(ELSEWHERE))}.\n\n"
        "| rule | change | right | difference | error of K |\n|---|---|---|---|---|\n"
    )
    PAGE.write_text(head + "\n".join(body) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
