import numpy as np
import pytest
import torch

from bacon_gcd.classes.halves import agreement_of_halves, halves, quicker, same, with_names
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import Rules
from tests.classes.planted_features import planted, some_labels


def test_halves_are_unit_rows_that_share_no_dimension():
    features = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    first, second = halves(features, seed=0)
    assert first.shape == second.shape == (5, 4)
    for half in (first, second):
        torch.testing.assert_close(half.norm(dim=1), torch.ones(5))
    for dimension in range(9):  # in one half at most, whose signs are those of the features
        alone = torch.zeros(1, 9).index_fill_(1, torch.tensor([dimension]), 1.0)
        assert sum(float(half.sum()) for half in halves(alone, seed=0)) in (0.0, 1.0)
    again = halves(features, seed=0)
    assert torch.equal(again[0], first)
    assert not torch.equal(halves(features, seed=1)[0], first)


def test_answers_are_the_same_by_name_for_known_classes_and_matched_for_new_ones():
    first = np.array([0, 1, 2, 2, 3, 3, 3, 0, 2])
    second = np.array([0, 0, 3, 3, 2, 2, 3, 2, 0])
    expected = [True, False, True, True, True, True, False, False, False]
    assert same(first, second, 2).tolist() == expected
    assert same(first, first, 2).all()
    assert same(np.array([0, 1]), np.array([0, 0]), 2).tolist() == [True, False]


def test_classes_of_a_sample_get_the_numbers_of_all_labels():
    names = np.array([1, 4])  # classes 0, 2 and 3 have no label in the sample
    assert with_names(np.array([0, 1, 2, 3]), names, 5).tolist() == [1, 4, 5, 6]
    assert with_names(np.array([0, 1]), np.empty(0, dtype=np.int64), 3).tolist() == [3, 4]


def asked(n_dims=256, **rules):
    features, ids = planted(4, each=10, d=n_dims)
    return Question(features, some_labels(ids, 2, 5), 3, rules=Rules(**rules)), ids


def test_agreement_is_the_mean_over_halves_of_unlabeled_images_in_the_same_class():
    question, ids = asked()
    free, seen = np.flatnonzero(question.labels < 0), []

    def answer(half):
        found = ids.copy()
        found[free[: 3 + 6 * len(seen)]] = (ids[free[: 3 + 6 * len(seen)]] + 1) % 2
        seen.append(half)
        return found

    found = agreement_of_halves(question, ids, answer)
    assert found == pytest.approx(1 - (3 + 9) / 2 / len(free))
    assert [half.features.shape[1] for half in seen] == [128, 128]
    assert [half.seed for half in seen] == [4, 5]
    assert seen[0].rules == quicker(question.rules)
    assert seen[0].rules.folds == 3
    np.testing.assert_array_equal(seen[0].labels, question.labels)


def test_a_half_is_asked_with_half_of_the_folds_and_one_clustering():
    found = [quicker(Rules(folds=n)) for n in (1, 2, 7)]
    assert [(each.folds, each.counting_seeds) for each in found] == [(1, 1), (1, 1), (3, 1)]


@pytest.mark.parametrize(("n_dims", "rules"), [(255, {}), (256, {"halves": 0})])
def test_few_dimensions_are_not_halved(n_dims, rules):
    question, ids = asked(n_dims, **rules)
    assert agreement_of_halves(question, ids, None) is None


def test_without_unlabeled_images_nothing_is_asked():
    question, ids = asked()
    every = Question(question.features, ids, 0)
    assert agreement_of_halves(every, ids, None) is None


def test_of_many_images_some_are_asked_with_their_own_labels():
    question, ids = asked(halved_images=12)
    sizes = []

    def answer(half):
        sizes.append(len(half.labels))
        names = np.unique(question.labels[question.labels >= 0])
        assert half.labels.max(initial=-1) < len(names)
        return np.full(len(half.labels), len(np.unique(half.labels[half.labels >= 0])))

    found = agreement_of_halves(question, np.full(len(ids), 2), answer)
    assert found == 1.0
    assert sizes == [12, 12]
