import numpy as np
import pytest
import torch

from bacon_gcd.classes.opening import alike, joint_evidence, opened_classes
from bacon_gcd.classes.space import ClassSpace
from tests.classes.test_sorter import planted_sorter, unit_rows
from tests.reference.evidence import log_density


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


def test_two_images_or_copies_of_one_open_nothing():
    sorter, centers, rng = planted_sorter()
    two = unit_rows(centers[5], 2, rng)
    assert opened_classes(sorter, two, ["a", "b"], seed=0) == []
    copies = two[[0, 0, 0, 0, 1]]
    assert opened_classes(sorter, copies, ["a", "a", "a", "a", "b"], seed=0) == []
