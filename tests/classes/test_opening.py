import numpy as np
import pytest
import torch

from bacon_gcd.classes import opening
from bacon_gcd.classes.opening import alike, joint_evidence, opened_classes
from bacon_gcd.classes.sorter import Sorter
from bacon_gcd.classes.space import ClassSpace, Projection
from bacon_gcd.cluster import unit
from tests.classes.test_sorter import planted_sorter, unit_rows
from tests.reference.evidence import evidence, log_density


def test_joint_evidence_is_the_ratio_of_the_densities_it_is_made_of():
    rng = np.random.default_rng(0)
    between = np.array([2.0, 0.5, 0.1])
    members, group = rng.normal(size=(4, 3)) + 1, rng.normal(size=(3, 3)) - 1
    space = ClassSpace(torch.from_numpy(group).float(), torch.from_numpy(between).float())
    sums = torch.from_numpy(members.sum(axis=0))[None].float()
    found = joint_evidence(space, np.arange(3), torch.tensor([4.0]), sums)
    together = log_density(np.concatenate([members, group]), between)
    expected = together - log_density(members, between) - log_density(group, between)
    assert found.tolist() == pytest.approx([expected], abs=1e-4)


def test_a_class_without_members_is_as_likely_as_a_new_one():
    space = ClassSpace(torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.ones(2))
    found = joint_evidence(space, np.arange(3), torch.zeros(1), torch.zeros(1, 2))
    assert found.tolist() == pytest.approx([0.0], abs=1e-9)


def test_alike_are_rows_whose_pairs_speak_for_one_class():
    rows = torch.tensor([[9.0, 0], [9.2, 0.1], [0, -9], [0.1, -9.1], [-20, 20]])
    groups = alike(ClassSpace(rows, torch.full((2,), 20.0)))
    assert sorted(map(tuple, groups)) == [(0, 1), (2, 3), (4,)]
    assert alike(ClassSpace(rows[:1], torch.ones(2))) == []


def test_images_of_an_unseen_class_open_it_and_those_of_a_found_one_do_not():
    sorter, centers, rng = planted_sorter()
    new = torch.cat([unit_rows(centers[5], 4, rng), unit_rows(centers[0], 4, rng)])
    groups = opened_classes(sorter, new, [str(i) for i in range(8)], seed=0)
    assert [group.tolist() for group in groups] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("away", [0.5, 0.7])
def test_images_that_a_class_of_the_run_explains_do_not_belong_to_the_class_that_opens(away):
    sorter, new = like_one_of_the_run(away)
    space = sorter.rows(new)
    assert [len(group) for group in alike(space)] == [12]
    groups = opened_classes(sorter, new, [str(i) for i in range(12)], seed=0)
    assert [group.tolist() for group in groups] == [list(range(8))]


def like_one_of_the_run(away):
    """8 images of an unseen class that is like one of the run, and 4 of that one behind them."""
    sorter, centers, rng = planted_sorter(sure=0.9)
    near = unit((centers[0] + away * centers[5])[None])[0]
    rows = torch.cat([unit_rows(near, 8, rng, 0.08), unit_rows(centers[0], 4, rng, 0.08)])
    return sorter, rows


def test_a_group_opens_nothing_where_fewer_than_three_images_are_left_of_it():
    sorter, new = like_one_of_the_run(0.7)
    for n_left, n_opened in ((2, 0), (3, 1)):
        some = new[8 - n_left :]
        groups = opened_classes(sorter, some, [str(i) for i in range(len(some))], seed=0)
        assert [group.tolist() for group in groups] == [list(range(n_left))] * n_opened


def test_a_class_that_no_image_would_be_sorted_into_is_not_opened():
    sorter, new = like_one_of_the_run(0.7)
    names = [str(i) for i in range(12)]
    assert opened_classes(sorter, new, names, n_known=3, threshold=0.0, seed=0) == []
    assert len(opened_classes(sorter, new, names, n_known=3, threshold=1.0, seed=0)) == 1


@pytest.mark.parametrize(("unlike", "opens"), [(0.0, False), (1.6, False), (1.7, True)])
def test_that_images_are_unlike_the_run_adds_to_the_evidence(monkeypatch, unlike, opens):
    monkeypatch.setattr(opening, "joint_evidence", lambda *_: torch.tensor([-9.0, 5.0]))
    monkeypatch.setattr(Sorter, "unlike", lambda self, rows: torch.full((len(rows),), unlike))
    assert opened_by([0, 0, 0]) == ([[0, 1, 2]] if opens else [])


def test_two_images_or_copies_of_one_open_nothing():
    sorter, centers, rng = planted_sorter()
    two = unit_rows(centers[5], 2, rng)
    assert opened_classes(sorter, two, ["a", "b"], seed=0) == []
    copies = two[[0, 0, 0, 0, 1]]
    assert opened_classes(sorter, copies, ["a", "a", "a", "a", "b"], seed=0) == []


@pytest.mark.parametrize("at", [0.0, 5.0, 8.0, 8.7, 8.9, 10.0, 12.0])
def test_two_rows_are_alike_where_the_odds_of_one_class_are_twenty_to_one(at):
    odds = evidence(np.array([at]), np.array([[at + 0.1]]), np.array([20.0]))
    groups = alike(ClassSpace(torch.tensor([[at], [at + 0.1]]), torch.tensor([20.0])))
    assert len(groups) == (1 if odds >= 3 else 2)


def test_a_row_joins_a_group_by_the_mean_of_its_pairs():
    between = np.full(4, 20.0)
    rows = np.array([[6.0, 0, 0, 0], [6, 2, 0, 0], [6, 3.1, 2.2, 0]])
    pair = [[evidence(a, b[None], between) for b in rows] for a in rows]
    assert pair[0][1] > 3 > pair[0][2]  # the first and the last alone would stay apart
    assert (pair[0][2] + pair[1][2]) / 2 > 3
    groups = alike(ClassSpace(torch.from_numpy(rows).float(), torch.full((4,), 20.0)))
    assert [group.tolist() for group in groups] == [[0, 1, 2]]


def test_nothing_to_compare_is_no_group():
    assert alike(ClassSpace(torch.empty(0, 2), torch.ones(2))) == []


def sorter_along_the_axes():
    """Features along axis i are 10 times axis i; one class with nothing like them."""
    axes = Projection(torch.zeros(4), torch.zeros(4), 10 * torch.eye(4))
    far = torch.tensor([[0.0, 0, 0, -40]])
    return Sorter(axes, torch.full((4,), 20.0), torch.tensor([4.0]), far, torch.eye(4).half(), 1, 1)


def opened_by(axes):
    contents = [str(row) for row in range(len(axes))]
    found = opened_classes(sorter_along_the_axes(), torch.eye(4)[axes], contents, seed=0)
    return [group.tolist() for group in found]


def test_three_images_open_a_class_and_two_do_not():
    assert opened_by([0, 0, 0, 1, 1]) == [[0, 1, 2]]


def test_the_largest_class_comes_first_and_of_equal_ones_that_of_the_first_image():
    assert opened_by([0, 0, 0, 1, 1, 1, 1]) == [[3, 4, 5, 6], [0, 1, 2]]
    assert opened_by([0, 1, 1, 1, 0, 0]) == [[0, 4, 5], [1, 2, 3]]


@pytest.mark.parametrize(("most", "opens"), [(-0.1, True), (0.0, False), (0.1, False), (9, False)])
def test_a_class_opens_where_no_class_that_is_there_is_as_likely(monkeypatch, most, opens):
    monkeypatch.setattr(opening, "joint_evidence", lambda *_: torch.tensor([-5.0, most]))
    assert opened_by([0, 0, 0]) == ([[0, 1, 2]] if opens else [])
