import numpy as np
import pytest
import torch

from bacon_gcd.classes import beside
from bacon_gcd.classes.beside import (
    agreement,
    both,
    factor_of_second,
    mutual_agreement,
    weigh_second,
)
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.cluster import unit
from tests.classes.planted_features import some_labels


def planted(ids, spread, seed, d=24):
    """Unit features in which these groups are seen, the less the larger the spread."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(ids.max() + 1, d))
    return unit(torch.from_numpy(means[ids] + spread * rng.normal(size=(len(ids), d))).float())


@pytest.fixture
def ids():
    return np.random.default_rng(0).permutation(np.repeat(np.arange(6), 40))


def question(features, ids, each=8):
    return Question(features, some_labels(ids, 4, each), 0)


def weight(question, second):
    return weigh_second(question, lambda rows: second[torch.from_numpy(rows)]).weight


def test_what_is_the_same_agrees_and_noise_agrees_by_chance(ids):
    first, noise = planted(ids, 1.0, 1), planted(np.arange(len(ids)), 1.0, 2)
    assert mutual_agreement(first, first, seed=0) == pytest.approx(1)
    assert abs(mutual_agreement(first, noise, seed=0)) < 0.1


def test_the_better_two_descriptions_see_the_classes_the_more_they_agree(ids):
    first = planted(ids, 0.8, 1)
    found = [mutual_agreement(first, planted(ids, s, 2), seed=0) for s in (0.4, 1.2, 2.5)]
    assert found[0] > found[1] > found[2]


def test_agreement_is_by_clusters_of_the_judge(ids):
    fine = planted(np.arange(len(ids)) // 4, 0.3, 3)  # neighbors mean nothing for the classes
    first = planted(ids, 0.3, 1)
    assert agreement(first, fine, seed=0) < 0.3


def test_rows_that_are_all_alike_agree_with_nothing():
    rows = torch.ones(60, 4) / 2
    assert agreement(rows, planted(np.arange(60) % 3, 0.2, 0), seed=0) <= 0


def test_a_second_that_sees_the_classes_better_counts(ids):
    blurred, clear = planted(ids, 1.5, 1), planted(ids, 0.5, 2)
    assert weight(question(blurred, ids), clear) > 0


def test_a_second_that_sees_nothing_is_left_out(ids):
    first, noise = planted(ids, 0.8, 1), planted(np.arange(len(ids)), 1.0, 2)
    assert weight(question(first, ids), noise) == 0


def test_a_second_that_agrees_on_something_else_is_left_out(ids):
    """Both see which camera took an image; only the first sees the class, too."""
    cameras = np.random.default_rng(5).integers(0, 5, len(ids))
    first = unit(torch.cat([planted(ids, 0.5, 1), planted(cameras, 0.4, 2)], dim=1))
    second = planted(cameras, 0.2, 3)
    assert mutual_agreement(first, second, seed=0) > RULES.least_agreement
    assert weight(question(first, ids), second) == 0


def test_the_weight_is_that_of_the_answer_that_is_expected_to_be_best(ids, monkeypatch):
    told = iter((0.5, 0.6, 0.9, 0.7))
    monkeypatch.setattr(beside, "told_accuracy", lambda question: next(told))
    first = planted(ids, 0.8, 1)
    assert weight(question(first, ids), planted(ids, 0.8, 2)) == RULES.beside[2]


def test_few_images_and_fully_labeled_ones_have_no_second(ids):
    first, clear = planted(ids, 1.5, 1), planted(ids, 0.5, 2)
    assert weight(question(first[:30], ids[:30]), clear[:30]) == 0
    assert weight(Question(first, ids, 0), clear) == 0


def test_no_label_is_needed(ids):
    blurred, clear = planted(ids, 1.5, 1), planted(ids, 0.5, 2)
    assert weight(question(blurred, ids, each=0), clear) > 0


def test_the_second_varies_as_many_times_as_much_as_it_counts(ids):
    first, second = planted(ids, 0.8, 1), unit(planted(ids, 0.8, 2) + 3)
    factor = factor_of_second(first, second, 2.0)
    spread = [float((each - each.mean(dim=0)).norm()) for each in (first, factor * second)]
    assert spread[1] == pytest.approx(2 * spread[0], rel=1e-4)
    torch.testing.assert_close(both(first, second, 2.0).norm(dim=1), torch.ones(len(ids)))


def test_few_images_tell_whether_both_agree_and_more_of_them_the_weight(ids):
    asked = []
    first, clear = planted(ids, 1.5, 1), planted(ids, 0.5, 2)

    def describe(rows):
        asked.append(len(rows))
        return clear[torch.from_numpy(rows)]

    rules = Rules(compared=60, weighed=150)
    labels = some_labels(ids, 4, 8)
    found = weigh_second(Question(first, labels, 0, rules=rules), describe)
    assert asked == [60, 150]
    assert found.factor == pytest.approx(found.weight, rel=0.3)  # both vary as much here
