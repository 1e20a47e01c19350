from dataclasses import replace

import numpy as np
import torch

from bacon_gcd.classes import checks
from bacon_gcd.classes.checks import check, checked, grouped_right, outcome
from bacon_gcd.classes.novelty import Fold
from bacon_gcd.classes.question import without_gaps
from bacon_gcd.classes.space import reduced, sample
from tests.classes.planted_features import planted, small_view


def test_grouped_right_matches_groups_one_to_one():
    groups = np.array([0, 0, 1, 1, 1, -2])
    classes = np.array([7, 7, 7, 9, 9, 9])
    assert grouped_right(groups, classes).tolist() == [True, True, False, True, True, False]
    assert not grouped_right(np.array([-1, -3]), np.array([4, 4])).any()


def test_labels_are_numbered_without_the_classes_that_have_none():
    assert without_gaps(np.array([3, -1, 0, 5, 3]))[0].tolist() == [1, -1, 0, 2, 1]


def test_checks_see_a_sample_with_its_own_labels_and_groups(monkeypatch):
    view, labels, _ = small_view(3, sample=30, whole_folds=2)
    features, _ = planted(4, each=10, d=6)
    rows = reduced(features, labels, seed=0, rules=view.rules)
    view = replace(view, rules=replace(view.rules, rows_per_part=3))
    chosen, seen = sample(40, 30, 0), []

    def seen_by(view, labels, fold, line, *, n_new):
        seen.append((labels.tolist(), fold, line, n_new))
        assert view.rules.rows_per_part == 3  # as the images were sorted
        assert torch.equal(view.whole, rows.whole[torch.from_numpy(chosen)])

    monkeypatch.setattr(checks, "check", seen_by)
    names = [f"series-{row % 2}" for row in range(40)]
    assert checked(view, rows, labels, names, 0.5, n_new=7) == [None, None]
    for given, fold, line, n_new in seen:
        assert given == without_gaps(labels[chosen])[0].tolist()
        assert (line, n_new) == (0.5, 7)
        of_class = {}
        for row in np.flatnonzero(np.isin(given, fold.seen)):
            of_class.setdefault((given[row], names[chosen[row]]), set()).add(row)
        hidden = set(fold.hidden_known.tolist())
        assert all(rows <= hidden or not rows & hidden for rows in of_class.values())


def test_a_check_tells_what_became_of_the_hidden_images(monkeypatch):
    labels = np.array([0, 0, 1, 1, 2, 2, 2, -1])
    seen_labels = np.array([0, -1, -1, -1, 1, -1, -1, -1])
    fold = Fold(seen_labels, np.array([0, 2]), np.array([1, 5, 6]), np.array([2, 3]))
    asked, put = {}, np.array([0, 0, 2, 2, 1, 1, 4, 0])
    other = np.array([0, 1, 3, 3, 1, 1, 1, 0])

    def sorted_by(view, labels, guess, score, line, *, n_new):
        asked.update(n_new=n_new, labels=labels.tolist())
        return torch.eye(5)[torch.from_numpy(put)]

    def judged_by(view, labels, scores, *, n_new):
        asked.update(n_new_judged=n_new, judged_labels=labels.tolist())
        return torch.eye(5)[torch.from_numpy(other)]

    monkeypatch.setattr(checks, "nearest_known", lambda *args: (None, None))
    monkeypatch.setattr(checks, "sort", sorted_by)
    monkeypatch.setattr(checks, "judged", judged_by)
    found, judged = check(None, labels, fold, 0.0, n_new=2)
    assert judged.right.tolist() == [False, True, True, True, True]
    assert asked["n_new"] == asked["n_new_judged"] == 3
    assert asked["labels"] == asked["judged_labels"] == seen_labels.tolist()
    assert found.rows.tolist() == [1, 5, 6, 2, 3]
    assert found.right.tolist() == [True, True, False, True, True]
    assert found.is_known.tolist() == [True, True, True, False, False]
    assert found.hidden.tolist() == [1]


def test_images_of_a_hidden_class_that_are_called_known_are_wrong():
    labels, nothing = np.array([0, 1, 1, 1]), np.array([], dtype=np.int64)
    fold = Fold(np.array([0, -1, -1, -1]), np.array([0]), nothing, np.array([1, 2, 3]))
    found = outcome(np.array([0, 0, 0, 1]), labels, fold)
    assert found.right.tolist() == [False, False, True]
