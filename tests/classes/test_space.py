import numpy as np
import pytest
import torch

from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import (
    ClassSpace,
    centered,
    fit_space,
    principal_axes,
    reduced,
    scatter,
    within_classes,
)
from bacon_gcd.cluster import unit
from tests.reference.evidence import evidence, log_density


def small_space(seed=0, n=6, d=3):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(n, d))).float()
    return ClassSpace(rows, torch.tensor([4.0, 1.0, 0.25])[:d])


def members_of(space, ids, n_classes):
    return space.sums(np.array(ids), n_classes, torch.ones(len(ids)))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_evidence_is_the_ratio_of_the_joint_densities(size):
    space = small_space()
    members = space.rows[:size]
    found = space.evidence(torch.tensor([float(size)]), members.sum(dim=0)[None])
    for row in range(len(space.rows)):
        by_hand = evidence(space.rows[row].numpy(), members.numpy(), space.between.numpy())
        assert float(found[row, 0]) == pytest.approx(by_hand, abs=1e-4)


def test_a_class_without_members_gives_no_evidence_either_way():
    space = small_space()
    found = space.evidence(torch.zeros(1), torch.zeros(1, 3))
    torch.testing.assert_close(found, torch.zeros(len(space.rows), 1), atol=1e-5, rtol=0)


def test_evidence_of_some_rows_is_that_of_all_rows():
    space = small_space()
    counts, sums = members_of(space, [0, 0, 1, 1, 1, 0], 2)
    some = torch.tensor([4, 1])
    torch.testing.assert_close(
        space.evidence(counts, sums, some), space.evidence(counts, sums)[some]
    )


def test_sums_weigh_the_rows():
    space = small_space(n=3)
    counts, sums = space.sums(np.array([1, 1, 0]), 2, torch.tensor([1.0, 0.5, 2.0]))
    assert counts.tolist() == [2.0, 1.5]
    torch.testing.assert_close(sums[1], space.rows[0] + 0.5 * space.rows[1])


def test_joint_density_of_one_row_has_the_total_variance():
    assert log_density(np.zeros((1, 1)), np.array([3.0])) == pytest.approx(
        -0.5 * np.log(2 * np.pi * 4)
    )


def planted(seed=0, n_classes=8, each=60, d=6):
    """Classes whose noise is ten times larger along the last axis."""
    rng = np.random.default_rng(seed)
    noise = np.array([1.0] * (d - 1) + [10.0])
    means = rng.normal(size=(n_classes, d)) * 5
    ids = np.repeat(np.arange(n_classes), each)
    return means[ids] + rng.normal(size=(len(ids), d)) * noise, ids


def test_within_classes_is_the_covariance_around_class_means_when_labels_abound():
    rows, ids = planted()
    rules = RULES.__class__(isotropic=0.0, shape_labels=0.0)
    found = within_classes(rows, ids, np.eye(rows.shape[1]), rules)
    assert np.diag(found) == pytest.approx([1, 1, 1, 1, 1, 100], rel=0.3)


def test_without_labels_the_parts_give_the_shape_and_twice_their_size():
    rows, ids = planted()
    rules = RULES.__class__(isotropic=0.0)
    of_parts = scatter(rows, ids) / len(rows)
    found = within_classes(rows[:0], ids[:0], of_parts, rules)
    assert found == pytest.approx(2 * of_parts)


def test_scatter_is_the_sum_of_squares_around_group_means():
    rows = np.array([[0.0], [2.0], [10.0], [14.0]])
    assert scatter(rows, np.array([5, 5, 1, 1]))[0, 0] == pytest.approx(2 + 8)


def test_in_the_space_the_covariance_within_classes_is_one():
    rows, ids = planted(each=200)
    rules = RULES.__class__(isotropic=0.0, shape_labels=0.0)
    space = fit_space(unit(torch.from_numpy(rows).float()), ids, seed=0, rules=rules)
    found = scatter(space.rows.double().numpy(), ids) / len(ids)
    assert np.diag(found).mean() == pytest.approx(1.0, abs=0.2)
    assert np.abs(found - np.diag(np.diag(found))).max() < 0.25


def test_a_space_of_other_labels_is_that_of_a_new_start():
    rows, ids = planted(each=20)
    features = unit(torch.from_numpy(rows).float())
    once = reduced(features, np.full(len(ids), -1), seed=0)
    for visible in (ids, np.where(ids < 3, ids, -1)):
        again = reduced(features, np.full(len(ids), -1), seed=0).space(visible)
        torch.testing.assert_close(once.space(visible).rows, again.rows)
    few, many = once.space(np.where(ids < 3, ids, -1)), once.space(ids)
    assert not torch.allclose(few.between, many.between)


def test_some_rows_keep_the_covariances_of_all():
    rows, ids = planted(each=20)
    whole = reduced(unit(torch.from_numpy(rows).float()), ids, seed=0)
    chosen = np.arange(0, len(ids), 3)
    part = whole.some(chosen)
    torch.testing.assert_close(part.rows, whole.rows[torch.from_numpy(chosen)])
    assert part.total is whole.total


def test_principal_axes_keep_distances_and_drop_what_does_not_vary():
    rng = np.random.default_rng(0)
    flat = torch.from_numpy(rng.normal(size=(50, 3)) @ rng.normal(size=(3, 10))).float()
    shift, axes = principal_axes(flat, 128)
    found = (flat - shift) @ axes
    assert found.shape == (50, 3)
    products = (flat - flat.mean(dim=0)) @ (flat - flat.mean(dim=0)).T
    torch.testing.assert_close(found @ found.T, products, atol=1e-3, rtol=1e-3)


def test_the_projection_puts_the_same_image_on_its_own_row_and_takes_new_ones():
    rows, ids = planted(each=20)
    features = unit(torch.from_numpy(rows).float())
    space = fit_space(features, ids, seed=0)
    torch.testing.assert_close(space.projection(features), space.rows, atol=1e-3, rtol=1e-3)
    away = space.projection(unit(features + 0.01)) - space.rows
    assert 0 < float(away.norm(dim=1).max()) < float(space.rows.norm(dim=1).max())


def test_equal_images_have_a_projection_too():
    same = unit(torch.ones(5, 4))
    space = fit_space(same, np.full(5, -1), seed=0)
    torch.testing.assert_close(space.projection(same), space.rows, atol=1e-4, rtol=0)


def test_centering_leaves_equal_rows_alone():
    same = unit(torch.ones(5, 4))
    torch.testing.assert_close(centered(same), same)
    assert torch.isfinite(fit_space(same, np.full(5, -1), seed=0).rows).all()
