import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.classes import sorter as sorters
from bacon_gcd.classes.calibration import matching_temperature
from bacon_gcd.classes.leverage import fit_leverage
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.sorter import (
    OUTLIER,
    Sorter,
    fit,
    fit_sorter,
    leveled,
    neighbor_means,
    outlier_score,
    refuse_unfit,
    softmax,
    sort_others,
)
from bacon_gcd.classes.space import ClassSpace, Projection, without_itself
from bacon_gcd.cluster import unit


def unit_rows(center, n_rows, rng, spread=0.12):
    noise = torch.from_numpy(rng.normal(size=(n_rows, len(center)))).float()
    return unit(center + spread * noise)


def planted_run(n_classes=5, each=24, dim=16):
    """Features and classes of a run; the center behind the last class is of an unseen one."""
    rng = np.random.default_rng(0)
    centers = unit(torch.from_numpy(rng.normal(size=(n_classes + 1, dim))).float())
    features = torch.cat([unit_rows(centers[c], each, rng) for c in range(n_classes)])
    return features, np.repeat(np.arange(n_classes), each), centers, rng


def planted_sorter(**more):
    features, ids, centers, rng = planted_run()
    labels = np.where((np.arange(len(ids)) % 24 < 6) & (ids < 3), ids, -1)
    found = fit_sorter(features, ids, labels, nearest(features), n_classes=5, seed=0, **more)
    return found.sorter, centers, rng


def test_half_of_the_evidence_is_the_images_own_and_half_its_neighbors():
    sorter, centers, rng = planted_sorter()
    new = unit_rows(centers[1], 3, rng)
    kept = sorter.kept.float()
    there, here = (unit(sorter.projection(rows)) for rows in (kept, new))
    near = (here @ there.T).topk(sorter.n_neighbors, dim=1).indices
    for row in range(3):
        own = ClassSpace(sorter.projection(new[row : row + 1]), sorter.between)
        theirs = ClassSpace(sorter.projection(kept[near[row]]), sorter.between)
        expected = own.evidence(sorter.counts, sorter.sums)[0] / 2
        expected += theirs.evidence(sorter.counts, sorter.sums).mean(dim=0) / 2
        torch.testing.assert_close(sorter.evidence(new)[row], expected, atol=1e-3, rtol=1e-4)


def test_neighbor_means_are_means_over_the_neighbors():
    values = torch.tensor([[1.0], [3.0], [8.0]])
    assert neighbor_means(values, np.array([[1, 2], [0, 1]])).tolist() == [[5.5], [2.0]]


def test_new_images_go_to_their_class_and_unseen_ones_are_outliers():
    sorter, centers, rng = planted_sorter(sure=0.9)
    seen = torch.cat([unit_rows(centers[c], 6, rng) for c in range(5)])
    assert (sorter.probabilities(seen).argmax(axis=1) == np.repeat(np.arange(5), 6)).all()
    assert (sorter.outlier_score(seen) < OUTLIER).all()
    assert (sorter.outlier_score(unit_rows(centers[5], 6, rng)) >= OUTLIER).all()


def test_the_run_itself_is_sorted_as_it_was_and_has_no_outliers():
    features, ids, _, _ = planted_run()
    found = fit_sorter(
        features, ids, np.full(len(ids), -1), nearest(features), n_classes=5, sure=0.8, seed=0
    )
    assert (found.sorter.probabilities(features).argmax(axis=1) == ids).all()
    assert (found.outlier_score < OUTLIER).all()
    sure = (found.evidence / found.sorter.temperature).softmax(dim=1).amax(dim=1).mean()
    assert float(sure) == pytest.approx(0.8, abs=0.03)


def test_a_lone_odd_image_of_the_run_is_an_outlier():
    features, ids, centers, rng = planted_run()
    features = torch.cat([features, unit_rows(centers[5], 1, rng)])
    ids = np.append(ids, 2)
    labels = np.full(len(ids), -1)
    found = fit_sorter(features, ids, labels, nearest(features), n_classes=5, seed=0)
    assert np.flatnonzero(found.outlier_score >= OUTLIER).tolist() == [len(ids) - 1]


def test_an_image_is_an_outlier_where_an_unseen_class_is_likelier_than_all_others_together():
    rows = torch.tensor([[0.0, 0.0], [3.0, 3.0], [-3.0, -3.0], [3.0, -50.0]])
    odds = [1.0, np.exp(3), np.exp(-3), (np.exp(3) + np.exp(-50)) / 2]
    expected = [1 / (1 + each) for each in odds]
    assert outlier_score(fit(rows), 1.0).tolist() == pytest.approx(expected, abs=1e-6)
    assert ((outlier_score(fit(rows), 9.0) >= OUTLIER) == (np.array(odds) <= 1)).all()


def test_all_directions_are_as_likely_for_a_class_nobody_has_seen():
    space = leveled(ClassSpace(torch.ones(2, 3), torch.tensor([1.0, 2.0, 6.0])))
    assert space.between.tolist() == [3.0, 3.0, 3.0]


def test_a_stored_sorter_gives_the_same_answers():
    sorter, centers, rng = planted_sorter()
    new = unit_rows(centers[0], 4, rng)
    facts = json.loads(json.dumps(sorter.facts()))
    again = Sorter.from_stored(sorter.tensors(), facts, n_classes=5)
    np.testing.assert_array_equal(again.probabilities(new), sorter.probabilities(new))
    np.testing.assert_array_equal(again.outlier_score(new), sorter.outlier_score(new))


def test_a_sorter_stored_without_a_spread_asks_the_evidence_alone():
    sorter, centers, rng = planted_sorter()
    facts = {name: value for name, value in sorter.facts().items() if name != "fit_spread"}
    older = Sorter.from_stored(sorter.tensors(), facts, n_classes=5)
    new = unit_rows(centers[0], 4, rng)
    expected = outlier_score(fit(older.own_evidence(new)), older.temperature)
    np.testing.assert_array_equal(older.outlier_score(new), expected)


def test_what_is_unlike_the_run_outside_of_the_class_space_is_an_outlier():
    rng = np.random.default_rng(3)
    inside = np.concatenate([rng.normal(size=(300, 4)), np.zeros((300, 3))], axis=1)
    features = unit(torch.from_numpy(inside + 0.02 * rng.normal(size=(300, 7))).float())
    ids = (inside[:, 0] > 0).astype(np.int64)
    found = fit_sorter(
        features, ids, np.where(np.arange(300) < 9, ids, -1), nearest(features), n_classes=2, seed=0
    )
    like, unlike = features[:20], unit(features[:20] + torch.eye(7)[6])
    before = [found.sorter.outlier_score(rows).mean() for rows in (like, unlike)]
    alone = replace(found.sorter, fit_spread=0.0)
    after = [alone.outlier_score(rows).mean() for rows in (like, unlike)]
    assert before[1] - before[0] > after[1] - after[0]


def test_images_of_the_run_are_judged_without_themselves_by_the_evidence_alone():
    features, ids, _, _ = planted_run()
    labels = np.full(len(ids), -1)
    found = fit_sorter(features, ids, labels, nearest(features), n_classes=5, sure=0.5, seed=0)
    space = found.sorter.rows(features)
    weights = torch.full((len(ids),), RULES.unlabeled_weight)
    alone = fit(without_itself(space, ids, weights, *space.sums(ids, 5, weights)))
    assert found.sorter.fit_spread == pytest.approx(float(alone.std(correction=0)), rel=1e-4)
    expected = outlier_score(alone, found.sorter.temperature)
    np.testing.assert_allclose(found.outlier_score, expected, rtol=1e-3)


def test_what_is_unlike_the_run_counts_by_its_leverage():
    sorter, centers, rng = planted_sorter()
    new = unit_rows(centers[5], 3, rng)
    fitted = fit_leverage(sorter.projection.centered(sorter.kept.float()))
    unusual = fitted.unusual(sorter.projection.centered(new))
    expected = RULES.leverage_weight * sorter.fit_spread * unusual
    torch.testing.assert_close(sorter.unlike(new), expected)
    fits = fit(sorter.own_evidence(new)) - expected
    np.testing.assert_allclose(sorter.outlier_score(new), outlier_score(fits, sorter.temperature))


def test_the_temperature_divides_what_speaks_for_a_class():
    evidence = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    odds = np.array([(np.exp(2.0) + 1) / 2, 1.0])
    np.testing.assert_allclose(outlier_score(fit(evidence), 4.0), 1 / (1 + odds**0.25), rtol=1e-6)
    e = np.exp(0.5)
    np.testing.assert_allclose(softmax(evidence, 4.0), [[e / (e + 1), 1 / (e + 1)], [0.5, 0.5]])


def test_a_class_without_members_does_not_make_a_place_less_likely():
    with_empty = torch.tensor([[1.0, -torch.inf]])
    expected = 1 / (1 + np.exp(1.0))
    assert outlier_score(fit(with_empty), 1.0).tolist() == pytest.approx([expected])


def sorter_of(counts, sums):
    axes = Projection(torch.zeros(2), torch.zeros(2), 3 * torch.eye(2))
    counts, sums = torch.tensor(counts), torch.tensor(sums)
    return Sorter(axes, torch.tensor([2.0, 2.0]), counts, sums, torch.eye(2).half(), 2.0, 1)


def test_nothing_goes_to_a_class_without_members_and_one_unlabeled_image_is_a_member():
    sorter = sorter_of([0.0, 0.3, 1.0], [[0.0, 0], [0.9, 0], [0, 3]])
    found = sorter.own_evidence(torch.eye(2))
    assert found[:, 0].tolist() == [-torch.inf] * 2
    expected = sorter.rows(torch.eye(2)).evidence(sorter.counts, sorter.sums)[:, 1:]
    torch.testing.assert_close(found[:, 1:], expected)
    assert sorter.probabilities(torch.eye(2))[:, 0].tolist() == [0, 0]


def test_a_class_is_added_by_the_weighted_sum_of_its_images():
    sorter = sorter_of([1.0, 4.0], [[3.0, 0], [0, 12]])
    more = sorter.with_classes([torch.eye(2)[[0, 1, 1]], torch.eye(2)[:1]], at=1, weight=0.5)
    assert more.counts.tolist() == [1, 1.5, 0.5, 4]
    assert more.sums.tolist() == [[3, 0], [1.5, 3], [1.5, 0], [0, 12]]
    assert more.kept.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1], [0, 1], [1, 0]]
    assert more.kept.dtype == torch.float16
    assert sorter.with_classes([], at=1, weight=0.5) is sorter


def fitted(labels, *, n=120, n_near=6, **more):
    features, ids, _, _ = planted_run()
    near = nearest(features[:n], n_neighbors=n_near)
    return fit_sorter(features[:n], ids[:n], labels[:n], near, n_classes=5, seed=0, **more)


def test_a_labeled_image_counts_one_and_an_unlabeled_one_less():
    ids = np.repeat(np.arange(5), 24)
    labels = np.where((np.arange(120) % 24 < 6) & (ids < 3), ids, -1)
    expected = [6 + 18 * 0.3] * 3 + [24 * 0.3] * 2
    assert fitted(labels).sorter.counts.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "n_near", "expected"), [(120, 6, 6), (120, 4, 4), (70, 6, 3), (19, 6, 1)]
)
def test_small_runs_look_at_a_neighbor_for_every_twenty_images(n, n_near, expected):
    found = fitted(np.full(120, -1), n=n, n_near=n_near, sure=0.9)
    assert found.sorter.n_neighbors == expected


@pytest.mark.parametrize("n_labeled", [0, 12, 24])
def test_images_that_are_not_certain_or_else_all_are_as_sure_as_asked(monkeypatch, n_labeled):
    asked = []
    monkeypatch.setattr(sorters, "matching_temperature", lambda *given: asked.extend(given) or 1.0)
    labels = np.where(np.arange(120) % 24 < n_labeled, np.repeat(np.arange(5), 24), -1)
    evidence = fitted(labels, sure=0.7).evidence
    free = labels < 0 if n_labeled < 24 else labels >= 0
    np.testing.assert_array_equal(asked[0], evidence[torch.from_numpy(free)])
    assert asked[1] == 0.7


def test_where_nothing_is_asked_images_are_as_sure_as_they_are_right():
    features, ids, _, _ = planted_run()
    ids = np.where(np.arange(120) % 24 < 6, (ids + 1) % 5, ids)  # a quarter is in a wrong class
    found = fit_sorter(features, ids, np.full(120, -1), nearest(features), n_classes=5, seed=0)
    right = float((found.evidence.argmax(dim=1).numpy() == ids).mean())
    assert 0.6 < right < 0.9
    assert found.sorter.temperature == matching_temperature(found.evidence, right)


@pytest.mark.parametrize("name", ["mean", "shift", "between", "counts", "sums", "kept"])
def test_a_stored_tensor_of_another_shape_is_named(name):
    stored = sorter_of([1.0, 4.0], [[3.0, 0], [0, 12]]).tensors()
    refuse_unfit(stored, 2)
    with pytest.raises(ValueError, match=f"{name} has shape"):
        refuse_unfit(stored | {name: torch.zeros(7, 7)}, 2)
    with pytest.raises(ValueError, match="not finite"):
        refuse_unfit(stored | {name: stored[name] * torch.nan}, 2)


def test_others_are_sorted_by_their_own_evidence_as_a_sorter_has_it():
    features, ids, centers, rng = planted_run()
    labels = np.where((np.arange(len(ids)) % 24 < 6) & (ids < 3), ids, -1)
    found = fit_sorter(features, ids, labels, nearest(features), n_classes=5, seed=0)
    others = torch.cat([unit_rows(centers[c], 9, rng, spread=0.35) for c in range(5)])
    sorted_by = sort_others(others, features, ids, labels, n_classes=5, seed=0)
    assert np.array_equal(sorted_by, found.sorter.own_evidence(others).argmax(dim=1).numpy())
    assert (sorted_by == np.repeat(np.arange(5), 9)).mean() > 0.6


def test_nothing_is_sorted_into_a_class_without_images():
    features, ids, centers, rng = planted_run()
    ids = np.where(ids >= 2, ids + 1, ids)  # nobody is in class 2
    others = torch.cat([unit_rows(centers[c], 9, rng) for c in range(6)])
    found = sort_others(others, features, ids, np.full(len(ids), -1), n_classes=6, seed=0)
    assert set(np.unique(found).tolist()) == {0, 1, 3, 4, 5}


def test_neighbors_of_a_large_class_do_not_take_images_of_a_small_one():
    """Where training images are uneven and others are not, neighbors would be of the large one."""
    features, ids, centers, rng = planted_run()
    kept = np.concatenate([np.flatnonzero(ids != 0), np.flatnonzero(ids == 0)[:2]])
    features, ids = features[torch.from_numpy(kept)], ids[kept]
    near = nearest(features, n_neighbors=10)
    sorter = fit_sorter(features, ids, ids, near, n_classes=5, seed=0).sorter
    others = unit_rows((centers[0] + 0.6 * centers[1]) / 1.6, 40, rng, spread=0.2)
    alone = sort_others(others, features, ids, ids, n_classes=5, seed=0)
    assert (alone == 0).sum() > (sorter.evidence(others).argmax(dim=1).numpy() == 0).sum()


def test_a_class_of_one_unlabeled_image_takes_others():
    features, ids, centers, rng = planted_run()
    features = torch.cat([features, unit(centers[5:])])
    ids, labels = np.append(ids, 5), np.append(np.where(ids < 3, ids, -1), -1)
    others = unit_rows(centers[5], 9, rng)
    found = sort_others(others, features, ids, labels, n_classes=6, seed=0)
    assert found.tolist() == [5] * 9
