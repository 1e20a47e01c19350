import numpy as np
import pytest
import torch

from bacon_gcd.classes import space as space_module
from bacon_gcd.classes.rules import RULES, Rules
from bacon_gcd.classes.space import (
    ClassSpace,
    centered,
    clustered,
    fit_space,
    over_clusters,
    principal_axes,
    reduced,
    sample,
    scatter,
    with_known_classes,
    within_classes,
    without_itself,
)
from bacon_gcd.cluster import assign, kmeans, unit
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


def test_directions_weigh_an_axis_by_what_it_says_of_classes():
    space = small_space()
    weighted = space.rows * torch.tensor([4 / 5, 1 / 2, 1 / 5]).sqrt()
    by_hand = weighted / weighted.norm(dim=1, keepdim=True)
    torch.testing.assert_close(space.directions, by_hand)


@pytest.mark.parametrize(("away", "moved"), [(1.5e-4, True), (0.7e-4, False)])
def test_rows_within_a_ten_thousandth_of_their_mean_are_equal(away, moved):
    rows = torch.tensor([[1.0, away], [1.0, -away]])
    expected = torch.tensor([[0.0, 1.0], [0.0, -1.0]]) if moved else rows
    torch.testing.assert_close(centered(rows), expected)


def drawn(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("labels", [[0, 0], [0, 0, 0, 1, 1, 5]])
def test_within_classes_is_the_printed_mixture(labels):
    rows, of_parts = drawn(len(labels), 3), np.cov(drawn(30, 3, seed=1).T)
    rules = Rules(isotropic=0.3, shape_labels=4.0, scale_labels=7.0, part_spread=2.5)
    spare = len(labels) - len(set(labels))
    of_labels = np.zeros((3, 3))
    for c in set(labels):
        inside = rows[np.array(labels) == c]
        for row in inside:
            of_labels += np.outer(row - inside.mean(axis=0), row - inside.mean(axis=0)) / spare
    a = spare / (spare + 4)
    s = (spare * of_labels.trace() / of_parts.trace() + 7 * 2.5) / (spare + 7)
    mixed = a * of_labels + (1 - a) * s * of_parts
    by_hand = 0.7 * mixed + 0.3 * mixed.trace() / 3 * np.eye(3)
    np.testing.assert_allclose(within_classes(rows, np.array(labels), of_parts, rules), by_hand)


def test_one_label_per_class_says_nothing_of_the_spread_within():
    rows, of_parts = drawn(3, 2), np.diag([1.0, 4.0])
    found = within_classes(rows, np.arange(3), of_parts, Rules(isotropic=0.0, part_spread=3.0))
    np.testing.assert_allclose(found, 3 * of_parts)


def test_rows_without_any_spread_have_the_least_one_in_all_directions():
    nothing = np.empty((0, 2)), np.empty(0, dtype=int), np.zeros((2, 2))
    found = within_classes(*nothing, Rules(isotropic=0.2))
    np.testing.assert_allclose(found, 0.2 * 1e-9 * np.eye(2))


def test_the_covariances_are_those_of_all_rows_and_around_the_parts():
    rows, ids = planted(each=10)
    found = reduced(unit(torch.from_numpy(rows).float()), np.full(len(ids), -1), seed=3)
    exact = found.rows.double().numpy()
    parts = over_clusters(found.rows, np.full(len(ids), -1), seed=3, rules=RULES)
    np.testing.assert_allclose(found.total, np.cov(exact.T))
    np.testing.assert_allclose(found.of_parts, scatter(exact, parts) / len(ids))
    assert found.rows.mean(dim=0).abs().max() < 1e-5


def test_the_variance_between_classes_is_what_all_rows_vary_more_than_one():
    rows, ids = planted(each=20)
    labels = np.where(np.arange(len(ids)) % 2 == 0, ids, -1)
    space = fit_space(unit(torch.from_numpy(rows).float()), labels, seed=0)
    total = np.cov(space.rows.double().numpy().T)
    by_hand = np.maximum(np.diag(total) - 1, 0.02)
    assert (by_hand == 0.02).any()
    assert by_hand.max() > 1
    np.testing.assert_allclose(space.between.numpy(), by_hand, rtol=1e-3, atol=1e-4)


def test_labels_of_all_classes_make_the_space_and_those_of_the_first_one_too():
    rows, ids = planted(each=20)
    whole = reduced(unit(torch.from_numpy(rows).float()), ids, seed=0)
    labels = np.where(ids < 2, ids, -1)
    within = within_classes(whole.rows[:40].double().numpy(), ids[:40], whole.of_parts)
    axes = np.linalg.pinv(whole.rows.double().numpy()) @ whole.space(labels).rows.double().numpy()
    np.testing.assert_allclose(axes.T @ within @ axes, np.eye(len(within)), atol=1e-3)


@pytest.mark.parametrize(("variance", "n_axes"), [(1.5e-6, 2), (0.7e-6, 1)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_an_axis_is_dropped_below_a_millionth_of_the_largest_variance(variance, n_axes, scale):
    small = variance**0.5
    rows = scale * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, small], [0.0, -small]])
    shift, axes = principal_axes(rows, 128)
    assert shift.tolist() == [0.0, 0.0]
    assert axes.abs().tolist() == np.eye(2)[:, :n_axes].tolist()


def test_axes_are_those_of_the_rows_around_their_mean():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
    shift, axes = principal_axes(rows + torch.tensor([0.0, 5.0]), 1)
    torch.testing.assert_close(shift, torch.tensor([0.0, 5.0]))
    torch.testing.assert_close(axes.abs(), torch.tensor([[1.0], [0.0]]))


def test_no_more_axes_than_asked_and_the_largest_first():
    rows = torch.from_numpy(drawn(50, 4) * [1.0, 9.0, 3.0, 27.0]).float()
    _, axes = principal_axes(rows, 2)
    assert axes.shape == (4, 2)
    assert axes.abs().argmax(dim=0).tolist() == [3, 1]


def test_equal_rows_have_one_axis():
    assert principal_axes(torch.ones(5, 3), 128)[1].shape == (3, 1)


@pytest.mark.parametrize(
    ("n_rows", "n_known", "n_parts"),
    [(400, 0, 40), (400, 1, 40), (400, 10, 60), (100, 10, 25), (36, 2, 9), (3, 0, 1)],
)
def test_over_clusters_are_many_but_of_four_rows_or_more(n_rows, n_known, n_parts, monkeypatch):
    monkeypatch.setattr(space_module, "clustered", lambda rows, n, **named: n)
    labels = np.where(np.arange(n_rows) < n_known, np.arange(n_rows), -1)
    assert over_clusters(torch.zeros(n_rows, 2), labels, seed=0, rules=RULES) == n_parts


def test_clusters_are_those_of_one_short_run_of_k_means():
    rows = torch.from_numpy(drawn(300, 2)).float()
    by_hand = kmeans(rows, 25, n_init=1, seed=4, max_iterations=15).labels
    assert np.array_equal(clustered(rows, 25, seed=4, rules=RULES), by_hand)


def test_clusters_of_a_sample_take_in_all_rows():
    rows = torch.from_numpy(drawn(50, 2)).float()
    chosen = torch.from_numpy(sample(50, 20, 1))
    middles = kmeans(rows[chosen], 4, n_init=1, seed=1, max_iterations=15).centroids
    found = clustered(rows, 4, seed=1, rules=Rules(sample=20))
    assert np.array_equal(found, assign(rows, middles))


@pytest.mark.parametrize(("asked", "found"), [(0, 1), (1, 1), (3, 3), (5, 4), (99, 4)])
def test_there_is_at_least_one_cluster_and_no_more_than_the_limit(asked, found):
    rows = torch.from_numpy(drawn(12, 2)).float()
    assert len(np.unique(clustered(rows, asked, seed=0, rules=Rules(most_parts=4)))) == found


def test_a_sample_has_different_rows_in_order_or_all_of_them():
    assert sample(5, 5, 0).tolist() == [0, 1, 2, 3, 4]
    found = sample(60, 50, 0)
    assert len(found) == 50
    assert (np.diff(found) > 0).all()


def test_an_image_is_scored_without_itself_as_the_densities_say():
    rng = np.random.default_rng(1)
    rows, ids = rng.normal(size=(7, 3)), np.array([0, 0, 0, 1, 1, 1, 2])
    space = ClassSpace(torch.from_numpy(rows).float(), torch.tensor([1.5, 0.7, 0.2]))
    ones = torch.ones(7)
    found = without_itself(space, ids, ones, *space.sums(ids, 3, ones)).numpy()
    for row in range(7):
        for c in range(3):
            others = rows[(ids == c) & (np.arange(7) != row)]
            expected = evidence(rows[row], others, np.array([1.5, 0.7, 0.2]))
            assert found[row, c] == pytest.approx(expected, abs=1e-4)


def test_evidence_without_itself_is_computed_some_rows_at_a_time(monkeypatch):
    rng = np.random.default_rng(1)
    rows, ids = torch.from_numpy(rng.normal(size=(50, 3))).float(), rng.integers(4, size=50)
    space, ones = ClassSpace(rows, torch.tensor([1.5, 0.7, 0.2])), torch.ones(50)
    given = space, ids, ones, *space.sums(ids, 4, ones)
    whole, asked, own_without = without_itself(*given), [], space_module.own_without
    monkeypatch.setattr(
        space_module,
        "own_without",
        lambda *a, rows: asked.append(len(rows)) or own_without(*a, rows=rows),
    )
    monkeypatch.setattr(space_module, "CHUNK", 8)
    torch.testing.assert_close(without_itself(*given), whole, rtol=0, atol=0)
    assert asked == [8] * 6 + [2]


def test_every_known_class_counts_the_same_in_a_share_of_the_covariance():
    rows, labels = drawn(7, 3), np.array([4, 4, 4, 4, 9, 2, 2])
    total, within = np.cov(drawn(30, 3, seed=1).T), np.cov(drawn(30, 3, seed=2).T)
    means = np.stack([rows[labels == c].mean(axis=0) for c in (2, 4, 9)])
    away = means - means.mean(axis=0)
    by_hand = 0.7 * total + 0.3 * (within + away.T @ away / 2)
    found = with_known_classes(total, within, rows, labels, share=0.3)
    np.testing.assert_allclose(found, by_hand)


@pytest.mark.parametrize("labels", [[], [0], [3, 3]])
def test_fewer_than_two_known_classes_say_nothing_of_how_classes_differ(labels):
    total = np.diag([2.0, 3.0])
    given = drawn(len(labels), 2), np.array(labels, dtype=np.int64)
    assert with_known_classes(total, np.eye(2), *given, share=0.5) is total


def test_in_features_of_one_dimension_known_classes_count_too():
    found = with_known_classes(
        np.array([[5.0]]), np.array([[1.0]]), np.array([[0.0], [2.0]]), np.arange(2), share=0.5
    )
    np.testing.assert_allclose(found, [[0.5 * 5 + 0.5 * (1 + 2)]])


def test_the_space_for_known_classes_is_that_of_its_own_covariances():
    rows, ids = planted(each=20)
    whole = reduced(unit(torch.from_numpy(rows).float()), ids, seed=0)
    labels = np.where(np.arange(len(ids)) % 3 == 0, ids, -1)
    known = whole.rows.double().numpy()[labels >= 0], labels[labels >= 0]
    rules = Rules(isotropic=RULES.known_isotropic)
    within = within_classes(*known, whole.of_parts, rules)
    total = with_known_classes(whole.total, within, *known, share=RULES.known_between)
    found = whole.known_space(labels)
    axes = np.linalg.pinv(whole.rows.double().numpy()) @ found.rows.double().numpy()
    np.testing.assert_allclose(axes.T @ within @ axes, np.eye(len(within)), atol=1e-3)
    between = np.maximum(np.diag(axes.T @ total @ axes) - 1, RULES.least_between)
    np.testing.assert_allclose(found.between.numpy(), between, rtol=1e-2, atol=1e-3)


def test_how_unlikely_a_row_is_in_a_class_without_members():
    space = small_space()
    by_hand = [log_density(row[None].numpy(), space.between.numpy()) for row in space.rows]
    middle = log_density(np.zeros((1, 3)), space.between.numpy()) - 3 / 2
    np.testing.assert_allclose(space.unusual(), middle - np.array(by_hand), atol=1e-5)
    some = torch.tensor([4, 1])
    torch.testing.assert_close(space.unusual(some), space.unusual()[some])


def test_an_image_that_counts_less_takes_less_of_its_class_away():
    rows, ids = torch.from_numpy(drawn(6, 3)).float(), np.array([0, 0, 0, 1, 1, 1])
    space = ClassSpace(rows, torch.tensor([1.5, 0.7, 0.2]))
    weights = torch.tensor([1.0, 0.3, 0.3, 1.0, 1.0, 0.3])
    counts, sums = space.sums(ids, 2, weights)
    found = without_itself(space, ids, weights, counts, sums)
    for row, own in enumerate(ids):
        left = counts[own] - weights[row], sums[own] - weights[row] * rows[row]
        alone = ClassSpace(rows[row : row + 1], space.between)
        by_hand = alone.evidence(left[0][None], left[1][None])
        assert float(found[row, own]) == pytest.approx(float(by_hand), abs=1e-4)
