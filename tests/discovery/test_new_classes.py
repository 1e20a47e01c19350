"""Classes that new images open in a finished run, and the table that comes of it."""

import numpy as np
import pytest
import torch

from bacon_gcd.discovery.folder import FoundClass
from bacon_gcd.discovery.new_classes import with_opened
from bacon_gcd.discovery.run_classes import Classes
from tests.classes.test_opening import like_one_of_the_run

NAMES = [""] * 12
CONTENTS = [str(row) for row in range(12)]
UNLABELED = np.full(12, -1)


def three_known_classes(sorter, threshold=None):
    found = tuple(FoundClass(c, f"class {c}", known=c < 3) for c in range(5))
    return Classes(found, torch.eye(5, 16), 0.1, sorter, threshold, 5)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_every_new_image_is_in_the_class_that_its_probabilities_say(threshold):
    sorter, new = like_one_of_the_run(0.7)
    before = three_known_classes(sorter, threshold)
    classes, opened = with_opened(before, new, NAMES, CONTENTS, seed=0)
    arrived = classes.sort(new, UNLABELED, opened)
    assert arrived.class_ids.tolist() == [5] * 8 + [0] * 4
    assert opened.tolist() == [5] * 8 + [-1] * 4
    shares = classes.sorter.probabilities(new)
    np.testing.assert_array_equal(arrived.class_ids, shares.argmax(axis=1))
    np.testing.assert_array_equal(arrived.confidence, shares.max(axis=1))
    np.testing.assert_array_equal(arrived.class_ids < 3, arrived.known_probability >= 0.5)


def test_an_image_that_helped_to_open_a_class_but_fits_another_one_better_goes_there():
    sorter, new = like_one_of_the_run(0.7)
    before = three_known_classes(sorter)
    classes, opened = with_opened(before, new, NAMES, CONTENTS, seed=0)
    opened[8] = 5
    assert classes.sort(new, UNLABELED, opened).class_ids[8] == 0


def test_an_image_is_no_outlier_in_the_class_that_it_helped_to_open(monkeypatch):
    sorter, new = like_one_of_the_run(0.7)
    classes, opened = with_opened(three_known_classes(sorter), new, NAMES, CONTENTS, seed=0)
    monkeypatch.setattr(type(sorter), "outlier_score", lambda self, rows: np.ones(len(rows)))
    opened[7] = -1
    assert classes.sort(new, UNLABELED, opened).outlier.tolist() == [False] * 7 + [True] * 5
