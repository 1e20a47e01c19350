import numpy as np
import pytest

from bacon_gcd.classes.reliability import usual_accuracy


def test_neighbors_in_the_same_class_make_an_answer_surer():
    classes = np.array([0, 0, 0, 1, 1, 1])
    apart = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    mixed = np.array([[1, 3], [0, 4], [0, 5], [4, 0], [3, 1], [3, 2]])
    everyone = np.ones(6, dtype=bool)
    assert usual_accuracy(classes, apart, everyone) == pytest.approx(0.93 * (1 - 0.38))
    assert usual_accuracy(classes, mixed, everyone) == pytest.approx(0.93 * (0.5 - 0.38))


def test_only_unlabeled_images_are_asked():
    classes, neighbors = np.array([0, 0, 1]), np.array([[1], [0], [0]])
    assert usual_accuracy(classes, neighbors, np.array([False, False, True])) == 0.1
    assert usual_accuracy(classes, neighbors, np.zeros(3, dtype=bool)) == 1.0
