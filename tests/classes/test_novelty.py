import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bacon_gcd.classes import novelty
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.novelty import (
    Fold,
    any_known,
    averaged,
    fold_scores,
    folds,
    known_evidence,
    learned_threshold,
    number_of_neighbors,
    stand_ins,
    threshold,
)
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import ClassSpace, reduced
from bacon_gcd.cluster import unit
from tests.reference.evidence import evidence, log_density


def labels_of(*counts, unlabeled=5):
    return np.array([c for c, n in enumerate(counts) for _ in range(n)] + [-1] * unlabeled)


def test_a_fold_hides_whole_classes_and_some_labels_of_the_others():
    labels = labels_of(6, 6, 6)
    for fold in folds(labels, 4, seed=0):
        hidden = np.setdiff1d(np.arange(3), fold.seen)
        assert len(hidden) == 1
        assert (labels[fold.hidden_new] == hidden[0]).all()
        assert len(fold.hidden_new) == 6
        assert np.bincount(labels[fold.hidden_known], minlength=3)[fold.seen].tolist() == [2, 2]
        assert (fold.labels[fold.hidden_known] == -1).all()
        assert (fold.labels[fold.hidden_new] == -1).all()
        visible = fold.labels >= 0
        assert (fold.seen[fold.labels[visible]] == labels[visible]).all()
        assert visible.sum() == 8


@pytest.mark.parametrize(
    ("n_labels", "n_hidden"), [(1, 0), (2, 1), (3, 1), (5, 1), (6, 2), (9, 3), (11, 3)]
)
def test_a_third_of_the_labels_is_hidden_and_one_where_that_is_less(n_labels, n_hidden):
    labels = labels_of(n_labels, n_labels)
    (fold,) = folds(labels, 1, seed=0)
    assert len(fold.seen) == 1  # of two classes one is hidden
    assert len(fold.hidden_known) == n_hidden
    assert len(fold.hidden_new) == n_labels


def test_a_class_without_a_label_hides_none():
    labels = np.array([0, 0, 0, 2, 2, 2])
    for fold in folds(labels, 6, seed=0):
        kept = np.intersect1d(fold.seen, [0, 2])
        assert np.unique(labels[fold.hidden_known]).tolist() == kept.tolist()
        assert len(fold.hidden_known) == len(kept)


def test_the_same_seed_hides_the_same_classes_in_every_version():
    found = [fold.seen.tolist() for fold in folds(labels_of(2, 2, 2, 2, 2, 2, 2), 3, seed=5)]
    assert found == [[0, 2, 3, 4, 6], [0, 1, 2, 4, 5], [1, 2, 4, 5, 6]]


def test_a_class_with_one_label_keeps_it():
    for fold in folds(labels_of(1, 1, 1), 3, seed=0):
        assert len(fold.hidden_known) == 0
        assert len(fold.hidden_new) == 1


def test_images_of_one_group_are_hidden_together():
    labels = labels_of(6, 6, 6)
    groups = [f"series-{row // 3}" for row in range(len(labels))]
    for fold in folds(labels, 6, seed=0, groups=groups):
        hidden = {groups[row] for row in fold.hidden_known}
        together = {row for row in range(18) if groups[row] in hidden}
        assert together == set(fold.hidden_known.tolist())
        assert np.bincount(labels[fold.hidden_known], minlength=3)[fold.seen].tolist() == [3, 3]


@pytest.mark.parametrize("labels", [labels_of(), labels_of(4)])
def test_fewer_than_two_classes_cannot_be_hidden(labels):
    assert list(folds(labels, 3, seed=0)) == []


def test_folds_are_the_same_for_the_same_seed():
    first, second = (list(folds(labels_of(5, 5, 5, 5), 3, seed=2)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.labels, b.labels)


def test_averaged_is_the_mean_of_a_row_and_its_neighbors():
    values = torch.arange(8.0).reshape(4, 2)
    near = np.array([[1, 2], [0, 2], [3, 0], [2, 1]])
    found = averaged(values, near)
    torch.testing.assert_close(found[0], (values[0] + values[1] + values[2]) / 3)
    torch.testing.assert_close(found[2], (values[2] + values[3] + values[0]) / 3)


def test_averaged_can_weigh_the_row_itself_more():
    values = torch.tensor([[0.0], [3.0], [9.0]])
    near = np.array([[1, 2], [0, 2], [0, 1]])
    assert averaged(values, near, own=0.5)[:, 0].tolist() == pytest.approx([3.0, 3.75, 5.25])


def test_averages_of_parts_are_those_of_the_whole(monkeypatch):
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(7, 2)))
    near = rng.integers(0, 7, (7, 3))
    monkeypatch.setattr(novelty, "CHUNK", 3)
    by_hand = [(values[row] + values[near[row]].sum(dim=0)) / 4 for row in range(7)]
    torch.testing.assert_close(averaged(values, near), torch.stack(by_hand))


def noise(n_labeled, n_classes, *, d=16, **rules):
    rng = np.random.default_rng(0)
    features = unit(torch.from_numpy(rng.normal(size=(100, d))).float())
    labels = np.where(np.arange(100) < n_labeled, np.arange(100) % n_classes, -1)
    return reduced(features, labels, seed=0, rules=Rules(**rules)), labels


def test_scores_of_folds_are_the_evidence_averaged_over_neighbors_of_each_hidden_image():
    rows, labels = noise(60, 4, folds=2, most_hidden=12)
    rng = np.random.default_rng((0, 13))
    by_hand = ([], [])
    for fold in folds(labels, 2, seed=0):
        space = rows.known_space(fold.labels)
        score = any_known(space, known_evidence(space, fold.labels)).numpy()
        near = nearest(rows.space(fold.labels).directions, n_neighbors=3)
        for kind, hidden in enumerate((fold.hidden_known, fold.hidden_new)):
            assert len(hidden) == 15
            for row in np.sort(rng.choice(hidden, 12, replace=False)):
                by_hand[kind].append(np.mean([score[row], *score[near[row]]]))
    found = fold_scores(rows, labels, n_neighbors=3, seed=0)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4)


def test_as_many_hidden_images_as_the_limit_are_all_scored():
    rows, labels = noise(60, 4, folds=2, most_hidden=15)
    free, _ = noise(60, 4, folds=2)
    limited = fold_scores(rows, labels, n_neighbors=3, seed=0)
    np.testing.assert_array_equal(limited, fold_scores(free, labels, n_neighbors=3, seed=0))


def test_images_beside_labeled_ones_are_hidden_with_the_class_they_stand_for():
    fold = Fold(np.array([-1, 0, -1, -1, -1]), np.array([1]), np.array([2]), np.array([0]))
    beside = np.array([-1, -1, -1, 0, 1])
    known, new = novelty._hidden(fold, beside)
    assert (known.tolist(), new.tolist()) == ([2, 4], [0, 3])
    known, new = novelty._hidden(fold, None)
    assert (known.tolist(), new.tolist()) == ([2], [0])


def test_hidden_images_are_scored_as_if_their_labels_had_never_been_there():
    """Noise with labels: no class is in it, so hidden images must look like those of others."""
    rng = np.random.default_rng(0)
    features = unit(torch.from_numpy(rng.normal(size=(240, 64))).float())
    labels = np.where(np.arange(240) < 60, np.arange(240) % 12, -1)
    rows = reduced(features, labels, seed=0)
    known, new = fold_scores(rows, labels, n_neighbors=10, seed=0)
    told_apart = (known[:, None] > new).mean() + (known[:, None] == new).mean() / 2
    assert told_apart == pytest.approx(0.5, abs=0.1)


def test_a_fold_scores_a_limited_number_of_images():
    rng = np.random.default_rng(0)
    features = unit(torch.from_numpy(rng.normal(size=(200, 16))).float())
    labels = np.where(np.arange(200) < 120, np.arange(200) % 4, -1)
    rows = reduced(features, labels, seed=0, rules=Rules(folds=2, most_hidden=7))
    known, new = fold_scores(rows, labels, n_neighbors=5, seed=0)
    assert len(known) == len(new) == 14


def test_few_images_are_averaged_with_fewer_neighbors():
    assert [number_of_neighbors(n) for n in (5, 100, 10_000)] == [1, 5, 10]


def test_any_of_equal_classes_is_as_likely_as_each():
    space = ClassSpace(torch.zeros(1, 2), torch.ones(2))
    found = any_known(space, torch.full((1, 7), 2.5), Rules(unseen_share=1.0))
    assert float(found) == pytest.approx(2.5)


@pytest.mark.parametrize("share", [1.0, 0.7, 0.0])
def test_the_density_of_an_unseen_class_counts_a_share(share):
    """Up to a constant: log p(x | known) - share log p(x | unseen)."""
    between = np.array([4.0, 0.5])
    rows = np.array([[0.0, 0.0], [3.0, -1.0], [0.5, 2.0]])
    space = ClassSpace(torch.from_numpy(rows).float(), torch.from_numpy(between).float())
    found = any_known(space, torch.zeros(3, 1), Rules(unseen_share=share)).numpy()
    unseen = np.array([log_density(row[None], between) for row in rows])
    np.testing.assert_allclose(found - found[0], (1 - share) * (unseen - unseen[0]), atol=1e-5)


def test_odds_of_some_rows_are_those_of_all_rows():
    generator = torch.Generator().manual_seed(0)
    space = ClassSpace(torch.randn(5, 2, generator=generator), torch.tensor([4.0, 0.5]))
    evidence, some = torch.randn(5, 3, generator=generator), torch.tensor([3, 0])
    found = any_known(space, evidence[some], among=some)
    torch.testing.assert_close(found, any_known(space, evidence)[some])


def test_known_evidence_sees_only_labeled_rows():
    rows = torch.tensor([[5.0], [5.2], [-5.0], [4.9], [-4.8]])
    space = ClassSpace(rows, torch.tensor([9.0]))
    found = known_evidence(space, np.array([0, 0, 1, -1, -1]))
    assert found.argmax(dim=1).tolist() == [0, 0, 1, 0, 1]
    moved = ClassSpace(torch.cat([rows[:3], torch.tensor([[99.0], [99.0]])]), space.between)
    torch.testing.assert_close(known_evidence(moved, np.array([0, 0, 1, -1, -1]))[:3], found[:3])


def test_known_evidence_is_that_of_the_labeled_images_of_every_class():
    space = ClassSpace(
        torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([4.0, 0.5])
    )
    labels = np.array([0, 1, 0, -1, 1])
    found = known_evidence(space, labels)
    for c in (0, 1):
        members = space.rows[torch.from_numpy(labels == c)].numpy()
        by_hand = [evidence(row, members, space.between.numpy()) for row in space.rows.numpy()]
        np.testing.assert_allclose(found[:, c], by_hand, atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "n_known"), [([0, 0, -1], 1), ([-1, -1, -1], 0), ([0, 2, -1], 3)]
)
def test_there_is_a_column_of_evidence_for_every_known_class(labels, n_known):
    space = ClassSpace(torch.zeros(3, 2), torch.ones(2))
    assert known_evidence(space, np.array(labels)).shape == (3, n_known)


def test_the_threshold_lies_between_known_and_new_scores():
    rng = np.random.default_rng(0)
    found = threshold(rng.normal(-4, 1, 100), rng.normal(-12, 1, 100))
    assert -10 < found < -6


def test_more_scores_of_one_kind_do_not_move_the_threshold():
    known, new = np.array([3.0, 4.0, 5.0, 6.0] * 100), np.array([-6.0, -5.0, -4.0, -3.0] * 100)
    assert threshold(known, new) == pytest.approx(threshold(known, np.tile(new, 5)), abs=0.05)


@pytest.mark.parametrize("most_weight", [4, 200])
def test_the_threshold_is_the_middle_of_the_likeliest_logistic_curve(most_weight):
    rng = np.random.default_rng(3)
    known, new = rng.normal(6, 2, 12), rng.normal(3, 2, 7)
    rules = Rules(most_weight=most_weight, prior_strength=3.0)

    def loss(parameters):
        steepness, middle = parameters
        slope = np.exp(steepness)
        missed = np.log(1 + np.exp(-slope * (known - middle))).mean() * min(12, most_weight)
        taken = np.log(1 + np.exp(slope * (new - middle))).mean() * min(7, most_weight)
        prior = (steepness - np.log(rules.usual_slope)) ** 2 + middle**2 / 20
        return missed + taken + 3.0 * prior

    by_hand = minimize(loss, np.array([0.0, 4.0]), method="BFGS").x[1]
    assert threshold(known, new, rules) == pytest.approx(by_hand, abs=2e-3)


def test_four_scores_of_each_kind_make_a_curve_and_three_do_not():
    known, new = np.array([9.0, 10.0, 11.0, 12.0]), np.array([-12.0, -11.0, -10.0, -9.0])
    assert threshold(known, new) == pytest.approx(0.0, abs=0.01)
    for few, many in ((known[:3], new), (known, new[:3])):
        assert threshold(few, many) == pytest.approx(np.quantile(many, 0.7) / 2)


@pytest.mark.parametrize(
    ("n_hidden", "n_beside", "asked"), [(4, 4, False), (3, 4, True), (3, 3, False)]
)
def test_neighbors_are_asked_where_fewer_than_four_labels_can_be_hidden(
    n_hidden, n_beside, asked, monkeypatch
):
    rows, labels = noise(4, 4, d=4)
    near = (np.arange(7.0, 7.0 + n_beside), np.arange(1.0, 5.0))
    monkeypatch.setattr(novelty, "fold_scores", lambda *args, **named: near)
    scores = (np.arange(n_hidden, dtype=float), np.array([-20.0, -10.0, -30.0]))
    found = learned_threshold(rows, labels, np.zeros((100, 2), dtype=np.int64), scores, seed=0)
    line = threshold(*scores)
    assert line == pytest.approx(np.quantile(scores[1], 0.7) / 2)
    assert found == pytest.approx(threshold(*near) if asked else line)


def test_neighbors_are_not_asked_where_no_class_can_be_hidden():
    rows, labels = noise(1, 1, d=4)
    empty = (np.empty(0), np.empty(0))
    assert learned_threshold(rows, labels, np.zeros((100, 2), dtype=int), empty, seed=0) == 0.0


def test_without_a_label_to_spare_hidden_classes_alone_say_where_new_ends():
    new = np.linspace(0, 10, 101)
    assert threshold(np.empty(0), new) == pytest.approx(3.5)
    assert threshold(np.empty(0), np.empty(0)) == 0.0


def test_neighbors_of_labeled_images_stand_in_and_labeled_ones_do_not():
    labels = np.array([1, -1, -1, 0, -1])
    neighbors = np.array([[1, 3], [0, 2], [1, 0], [4, 0], [3, 1]])
    assert stand_ins(labels, neighbors).tolist() == [-1, 1, -1, -1, 0]


def clusters(n_classes=9, n=40, labels_each=1, seed=0):
    rng = np.random.default_rng(seed)
    centers = 3 * rng.standard_normal((n_classes, 12))
    true = np.repeat(np.arange(n_classes), n)
    features = unit(torch.from_numpy(centers[true] + rng.standard_normal((len(true), 12))).float())
    labels = np.where((np.arange(len(true)) % n < labels_each) & (true < 6), true, -1)
    return features, labels


def test_with_one_label_per_class_neighbors_help_to_find_the_threshold():
    features, labels = clusters()
    rows = reduced(features, labels, seed=0)
    neighbors = nearest(rows.space(labels).directions, n_neighbors=10)
    scores = fold_scores(rows, labels, n_neighbors=10, seed=0)
    assert not len(scores[0])
    beside = stand_ins(labels, neighbors)
    known, new = fold_scores(rows, labels, n_neighbors=10, seed=0, beside=beside)
    found = learned_threshold(rows, labels, neighbors, scores, seed=0)
    assert found == pytest.approx(threshold(known, new))
    assert found != pytest.approx(threshold(*scores))
    assert np.median(new) < found < np.median(known)


def test_with_labels_to_hide_neighbors_are_not_asked():
    features, labels = clusters(labels_each=6)
    rows = reduced(features, labels, seed=0)
    neighbors = nearest(rows.space(labels).directions, n_neighbors=10)
    scores = fold_scores(rows, labels, n_neighbors=10, seed=0)
    assert learned_threshold(rows, labels, neighbors, scores, seed=0) == threshold(*scores)
