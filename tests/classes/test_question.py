import numpy as np
import torch

from bacon_gcd.classes.question import Question


def test_some_rows_are_asked_with_the_classes_that_have_a_label_there():
    labels = np.array([2, -1, 0, 3, -1])
    question = Question(torch.eye(5), labels, 7, (2, 9), list("abcde"))
    assert (question.n_known, question.unlabeled.tolist()) == (4, [False, True, False, False, True])
    some, names = question.some(np.array([0, 1, 3]))
    assert torch.equal(some.features, torch.eye(5)[[0, 1, 3]])
    assert (some.labels.tolist(), names.tolist()) == ([0, -1, 1], [2, 3])
    assert (some.groups, some.seed, some.allowed) == (list("abd"), 7, (2, 9))


def test_class_zero_is_a_class_like_any_other():
    some, names = Question(torch.eye(4), np.array([0, 1, -1, 2]), 0).some(np.array([0, 2, 3]))
    assert (some.labels.tolist(), names.tolist()) == ([0, -1, 1], [0, 2])


def test_without_images_nothing_is_known():
    assert Question(torch.empty(0, 3), np.empty(0, dtype=np.int64), 0).n_known == 0


def test_without_labels_or_groups_there_are_none():
    question = Question(torch.eye(3), np.full(3, -1), 0)
    some, names = question.some(np.array([1]))
    assert (question.n_known, some.groups, len(names)) == (0, None, 0)
