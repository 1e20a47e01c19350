import numpy as np
import pytest
import torch

from bacon_gcd.classes import find
from bacon_gcd.classes.count import ClassNumber, measured_share
from bacon_gcd.classes.find import (
    best_classes,
    check,
    checked,
    class_means,
    count_classes,
    find_classes,
    fragment_edge,
    fragments,
    group,
    grouped,
    grouped_right,
    keep_one,
    linkage_for,
    nearest_known,
    new_rows,
    sort,
    view_of,
    without_fragments,
    without_lone_classes,
)
from bacon_gcd.classes.novelty import Fold, any_known, known_evidence
from bacon_gcd.classes.reliability import matching_temperature
from bacon_gcd.classes.ridge import fit_ridge
from bacon_gcd.classes.rules import Rules
from bacon_gcd.classes.space import reduced, sample
from bacon_gcd.cluster import kmeans, unit


def planted(n_classes=10, each=40, d=32, spread=0.5, seed=0):
    rng = np.random.default_rng(seed)
    means = unit(torch.from_numpy(rng.normal(size=(n_classes, d))).float())
    ids = np.repeat(np.arange(n_classes), each)
    noise = torch.from_numpy(rng.normal(size=(len(ids), d))).float() * spread / d**0.5
    mixed = rng.permutation(len(ids))
    return unit(means[torch.from_numpy(ids)] + noise)[torch.from_numpy(mixed)], ids[mixed]


def some_labels(ids, n_known, each):
    labels = np.full(len(ids), -1)
    for c in range(n_known):
        labels[np.flatnonzero(ids == c)[:each]] = c
    return labels


def agreement(found, ids, n_known):
    """Share of images that are right: known by name, new ones by the majority of their class."""
    right = (found == ids) & (ids < n_known)
    for c in range(n_known, ids.max() + 1):
        inside = found[ids == c]
        best = np.bincount(inside).argmax()
        right[ids == c] = (inside == best) & (best >= n_known)
    return right.mean()


@pytest.mark.parametrize("each", [1, 3, 20])
def test_planted_classes_are_found_and_counted(each):
    features, ids = planted()
    labels = some_labels(ids, 5, each)
    found = find_classes(features, labels, seed=0)
    assert 9 <= found.number.estimate <= 11
    assert found.number.interval[0] <= 10 <= found.number.interval[1]
    assert agreement(found.class_ids, ids, 5) > 0.9


def test_without_any_label_clear_classes_are_found():
    features, ids = planted(6)
    found = find_classes(features, np.full(len(ids), -1), seed=0)
    assert found.number.estimate == 6
    assert agreement(found.class_ids, ids, 0) > 0.95
    assert found.expected is None


def test_a_known_class_gives_up_a_group_that_has_no_label():
    """Two thirds of what lies nearest to a known class are another species."""
    rng = np.random.default_rng(0)
    d = 32
    axes = torch.eye(d)
    near = unit((axes[0] * 0.8 + axes[1] * 0.6)[None])[0]
    means = [axes[0], *axes[2:7], near]
    sizes = [40, 40, 40, 40, 40, 40, 80]
    noise = [torch.from_numpy(rng.normal(size=(n, d))).float() * 0.05 for n in sizes]
    features = unit(torch.cat([m + e for m, e in zip(means, noise, strict=True)]))
    ids = np.repeat(np.arange(7), sizes)
    found = find_classes(features, some_labels(ids, 6, 10), seed=0)
    assert (found.class_ids[ids == 6] >= 6).mean() > 0.9
    assert (found.class_ids[ids == 0] == 0).mean() > 0.9


def test_labeled_images_keep_their_class_and_are_certain():
    features, ids = planted()
    labels = some_labels(ids, 5, 4)
    labels[np.flatnonzero(ids == 9)[:2]] = 0  # wrong labels are kept, too
    found = find_classes(features, labels, seed=0)
    given = labels >= 0
    assert (found.class_ids[given] == labels[given]).all()
    assert (found.probabilities[given, labels[given]] == 1).all()
    assert found.probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-4)


def test_an_asked_number_of_classes_is_given_and_each_has_an_image():
    features, ids = planted()
    for asked in (5, 7, 14):
        found = find_classes(features, some_labels(ids, 5, 5), seed=0, allowed=(asked, asked))
        assert found.number.estimate == asked
        assert len(np.unique(found.class_ids)) == asked
        assert found.centroids.shape[0] == found.probabilities.shape[1] == asked


def test_new_classes_come_by_size():
    features, ids = planted(each=40)
    keep = (ids < 8) | (np.arange(len(ids)) % 4 == 0)
    found = find_classes(features[torch.from_numpy(keep)], some_labels(ids[keep], 4, 5), seed=0)
    sizes = np.bincount(found.class_ids)[4:]
    assert (np.diff(sizes) <= 0).all()


def test_the_same_seed_gives_the_same_answer():
    features, ids = planted()
    labels = some_labels(ids, 5, 3)
    first, second = (find_classes(features, labels, seed=1) for _ in range(2))
    assert np.array_equal(first.class_ids, second.class_ids)
    assert np.array_equal(first.probabilities, second.probabilities)


def test_hidden_classes_say_what_accuracy_to_expect():
    features, ids = planted()
    found = find_classes(features, some_labels(ids, 6, 10), seed=0)
    assert found.expected is not None
    assert 40 <= found.expected.n_images <= 60
    assert 0.7 < found.expected.accuracy < 1
    free = some_labels(ids, 6, 10) < 0
    sure = found.probabilities[free].max(axis=1).mean()
    assert sure == pytest.approx(found.expected.accuracy, abs=0.05)


@pytest.mark.parametrize(
    ("n_rows", "labels"),
    [(4, [-1] * 4), (4, [0, 1, -1, -1]), (5, [0, 0, 0, 0, 0]), (6, [0, -1, -1, -1, -1, -1])],
)
def test_tiny_and_degenerate_sets_have_an_answer(n_rows, labels):
    features = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(n_rows, 8))).float())
    found = find_classes(features, np.array(labels), seed=0)
    assert found.class_ids.shape == (n_rows,)
    assert np.isfinite(found.probabilities).all()


def test_equal_images_have_an_answer():
    found = find_classes(unit(torch.ones(12, 8)), np.array([0, 1] + [-1] * 10), seed=0)
    assert np.isfinite(found.probabilities).all()


def test_the_edge_lies_between_known_and_new_scores_below_the_threshold():
    known, new = np.array([9.0, 8.0, -1.0]), np.array([5.0, -10.0, -12.0])
    found = fragment_edge(known, new, 0.0, Rules(edge=0.4))
    assert found == pytest.approx(0.6 * -1 + 0.4 * -11)
    assert fragment_edge(np.array([3.0]), np.array([4.0]), 0.0) == 0.0


def test_a_group_just_below_the_threshold_is_a_fragment_of_a_known_class():
    features, ids = planted(6)
    labels = some_labels(ids, 4, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    score = np.where(ids == 4, -1.0, np.where(ids == 5, -30.0, 10.0))
    number = ClassNumber(6, (5, 9), {"heights": 6})
    known, new = np.array([5.0, -1.0]), np.array([-30.0])  # half of the known images are missed
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found.estimate, found.interval) == (5, (5, 9))
    assert (moved[ids == 4] == 0.0).all()
    assert (moved[ids == 5] == -30.0).all()
    assert (score[ids == 4] == -1.0).all()


def test_no_more_images_return_than_known_ones_are_missed():
    features, ids = planted(6)
    labels = some_labels(ids, 4, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    score = np.where(ids == 4, -1.0, np.where(ids == 5, -30.0, 10.0))
    number = ClassNumber(6, (5, 9), {"heights": 6})
    known, new = np.array([5.0] * 99 + [-1.0]), np.array([-30.0])  # one in a hundred is missed
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert found == number
    assert np.array_equal(moved, score)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((50, 60, 40), "ward"), ((200, 60, 8), "average"), ((90,), "ward")]
)
def test_new_images_are_grouped_as_if_their_classes_were_as_uneven_as_known_ones(sizes, expected):
    guess = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.where(np.arange(len(guess)) % 8 == 0, guess, -1)
    assert linkage_for(labels, guess, labels == labels) == expected


def test_images_below_the_threshold_do_not_count_in_the_size_of_a_known_class():
    guess = np.repeat([0, 1], [200, 20])
    labels = np.where(np.arange(220) % 20 == 0, guess, -1)
    above = np.arange(220) >= 180
    assert linkage_for(labels, guess, above) == "ward"
    assert linkage_for(labels, guess, guess >= 0) == "average"


def test_without_labels_no_class_tells_how_uneven_the_others_are():
    nothing = np.full(9, -1)
    assert linkage_for(nothing, np.zeros(9, dtype=np.int64), nothing == 0) == "ward"


def test_fragments_are_the_highest_groups_above_the_edge():
    groups, scores = np.array([0, 0, 1, 1, 2, 3]), np.array([-2.0, -2.0, -1.0, -1.0, -1.5, -9.0])
    assert fragments(groups, scores, 4, edge=-3.0, most=3).tolist() == [False, True, True, False]
    assert fragments(groups, scores, 4, edge=-1.2, most=9).tolist() == [False, True, False, False]
    assert not fragments(groups, scores, 4, edge=-3.0, most=0).any()


def test_points_for_grouping_lie_between_an_image_and_its_neighbors():
    features, ids = planted(4)
    labels = some_labels(ids, 2, 5)
    view = view_of(reduced(features, labels, seed=0), labels, seed=0)
    near = view.space.directions[torch.from_numpy(view.neighbors[0])].mean(dim=0)
    torch.testing.assert_close(
        view.points[0], unit((view.space.directions[:1] + near) / 2)[0], atol=1e-5, rtol=1e-5
    )


def test_grouped_right_matches_groups_one_to_one():
    groups = np.array([0, 0, 1, 1, 1, -2])
    classes = np.array([7, 7, 7, 9, 9, 9])
    assert grouped_right(groups, classes).tolist() == [True, True, False, True, True, False]
    assert not grouped_right(np.array([-1, -3]), np.array([4, 4])).any()


def test_new_rows_are_those_below_the_line_and_enough_for_the_classes():
    score, free = np.array([5.0, 1.0, 3.0, -2.0, 9.0]), np.array([True] * 4 + [False])
    assert new_rows(score, 2.0, free, 1).tolist() == [1, 3]
    assert new_rows(score, 2.0, free, 2).tolist() == [0, 1, 2, 3]


def small_view(n_known=2, each=10, **rules):
    """Forty images of four classes, five labels of each known class."""
    features, ids = planted(4, each=each, d=6)
    labels = some_labels(ids, n_known, 5)
    rows = reduced(features, labels, seed=0, rules=Rules(**rules))
    return view_of(rows, labels, seed=0), labels, ids


@pytest.mark.parametrize("n_known", [1, 2])
def test_the_nearest_known_class_is_that_of_an_image_and_its_neighbors(n_known):
    view, labels, _ = small_view(n_known)
    guess, score = nearest_known(view, labels)
    evidence = known_evidence(view.space, labels).numpy()
    odds = any_known(torch.from_numpy(evidence)).numpy()
    for row in range(len(labels)):
        near = [row, *view.neighbors[row]]
        best = labels[row] if labels[row] >= 0 else evidence[near].mean(axis=0).argmax()
        assert guess[row] == best
        assert score[row] == pytest.approx(odds[near].mean(), rel=1e-4)


def test_without_labels_nothing_is_known():
    view, labels, _ = small_view(0)
    guess, score = nearest_known(view, labels)
    assert not guess.any()
    assert (score == -np.inf).all()


def test_known_classes_are_uneven_from_the_limit_on():
    guess = np.repeat([0, 1, 2], [10, 20, 60])
    labels = np.where(np.arange(90) % 10 == 0, guess, -1)
    spread = np.log([10.0, 20.0, 60.0]).std(ddof=1)
    everyone = labels == labels
    assert linkage_for(labels, guess, everyone, Rules(uneven=spread)) == "average"
    assert linkage_for(labels, guess, everyone, Rules(uneven=spread + 1e-9)) == "ward"


@pytest.mark.parametrize(
    ("n_known", "n_free", "allowed", "limits"),
    [
        (2, 5, None, (2, 7)),
        (2, 5, (1, 99), (2, 7)),
        (2, 5, (3, 4), (3, 4)),
        (0, 5, None, (1, 5)),
        (0, 5, (1, 3), (1, 3)),
        (1, 3, None, (1, 4)),
    ],
)
def test_classes_are_counted_within_what_is_possible(n_known, n_free, allowed, limits, monkeypatch):
    view, _, _ = small_view()
    labels = np.append(np.arange(n_known), np.full(n_free, -1))
    asked = {}

    def counted(space, points, guess, new, *, n_known, seed, rules):
        asked["new"] = new.tolist()
        return 1.5, {"heights": float(n_known)}

    monkeypatch.setattr(find, "count_new", counted)
    monkeypatch.setattr(find, "count_by_shape", lambda *args, **named: (3.0, 2.0, 4.0))
    monkeypatch.setattr(find, "number_of", lambda *args: args)
    below = np.arange(len(labels)) % 2 == 0
    found = count_classes(view, labels, labels, below, allowed=allowed)
    ways = (1.5, {"heights": float(n_known)}) if n_known else (3.0, {"least": 2.0, "most": 4.0})
    assert found == (n_known, *ways, limits, view.rules)
    if n_known:
        assert asked["new"] == (below & (labels < 0)).tolist()


@pytest.mark.parametrize(
    ("labels", "allowed", "number"),
    [([0, 1, -1, -1], (3, 3), 3), ([0, 1], None, 2), ([0, 1, -1], (1, 2), 2), ([], None, 1)],
)
def test_a_number_that_is_given_is_not_counted(labels, allowed, number):
    view, _, _ = small_view()
    labels = np.array(labels, dtype=np.int64)
    found = count_classes(view, labels, labels, labels < 0, allowed=allowed)
    assert found == ClassNumber(number, (number, number), {})


def test_scores_on_the_line_are_not_below_it():
    found = fragment_edge(np.array([0.0, -2.0]), np.array([0.0, -8.0]), 0.0, Rules(edge=0.25))
    assert found == pytest.approx(0.75 * -2 + 0.25 * -8)
    score, free = np.array([2.0, 2.0, 1.0]), np.ones(3, dtype=bool)
    assert new_rows(score, 2.0, free, 0).tolist() == [2]


@pytest.mark.parametrize(("below", "missed"), [(1, 0.2), (4, 0.5)])
def test_fragments_have_as_many_images_as_known_ones_are_missed(below, missed, monkeypatch):
    view, labels, ids = small_view()
    asked = {}

    def none_gone(groups, scores, n_groups, **named):
        asked.update(named, scores=scores.tolist(), n_groups=n_groups)
        return np.zeros(n_groups, dtype=bool)

    monkeypatch.setattr(find, "fragments", none_gone)
    score = np.where(ids == 3, -5.0, 5.0)
    known, new = np.array([-1.0] * below + [0.0] + [1.0] * (4 - below)), np.array([-3.0])
    number = ClassNumber(3, (3, 9), {"heights": 3})
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found, moved.tolist()) == (number, score.tolist())
    n_above = int((labels < 0).sum()) - 10
    share = 1 - measured_share(2)
    assert asked["most"] == pytest.approx(share * missed / (1 - missed) * n_above)
    assert asked["edge"] == pytest.approx(0.75 * -1 + 0.25 * -3)
    assert (asked["scores"], asked["n_groups"]) == ([-5.0] * 10, 1)


def test_without_a_new_class_there_is_no_fragment():
    view, labels, _ = small_view()
    score, number = np.full(len(labels), -1.0), ClassNumber(2, (2, 4), {"heights": 2})
    found = without_fragments(view, labels, score, 0.0, score, score, number)
    assert found[0] is number
    assert found[1] is score


def test_the_only_new_class_can_be_a_fragment_and_the_interval_holds_that():
    view, labels, ids = small_view()
    score, number = np.where(ids == 3, -1.0, 5.0), ClassNumber(3, (3, 9), {"heights": 3})
    known, new = np.array([-1.0, 1.0]), np.array([-9.0])
    found, moved = without_fragments(view, labels, score, 0.0, known, new, number)
    assert (found.estimate, found.interval) == (2, (2, 9))
    assert (moved == np.where(ids == 3, 0.0, 5.0)).all()


def test_a_group_on_the_edge_is_a_fragment_and_an_empty_one_has_the_mean_zero():
    groups, scores = np.array([0, 2]), np.array([-2.0, -1.0])
    assert fragments(groups, scores, 3, edge=-2.0, most=9).tolist() == [True, True, True]
    assert fragments(groups, scores, 3, edge=-0.5, most=9).tolist() == [False, True, False]


@pytest.mark.parametrize("judged", [0, 1, 2])
def test_sorting_is_by_the_evidence_of_groups_and_then_by_the_regression(judged):
    view, labels, ids = small_view(judged=judged, unlabeled_weight=0.4, dims_per_class=0)
    guess, score = np.where(ids == 1, 1, 0), np.where(ids >= 2, -5.0, 5.0)
    first = grouped(view, labels, guess, score, 0.0, n_new=2)
    counts, sums = torch.zeros(4), torch.zeros(4, view.space.rows.shape[1])
    for row, c in enumerate(first):
        weight = 1.0 if labels[row] >= 0 else 0.4
        counts[c] += weight
        sums[c] += weight * view.space.rows[row]
    evidence = view.space.evidence(counts, sums)
    near = torch.from_numpy(np.column_stack([np.arange(len(ids)), view.neighbors]))
    by_hand = evidence[near].mean(dim=1)
    classes = np.where(labels >= 0, labels, by_hand.argmax(dim=1).numpy())
    judge = fit_ridge(view.whole, classes, view.rules)
    for _ in range(judged):
        by_hand = judge.scores(classes, 4)
        classes = np.where(labels >= 0, labels, by_hand.argmax(dim=1).numpy())
    by_evidence = sort(view, labels, guess, score, 0.0, n_new=2)
    found = find.judged(view, labels, by_evidence, n_new=2)
    torch.testing.assert_close(found, by_hand, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("n_known", [0, 2])
def test_images_below_the_line_are_grouped_behind_the_known_classes(n_known):
    view, labels, ids = small_view(n_known)
    guess, score = np.minimum(ids, max(n_known - 1, 0)), np.where(ids >= n_known, -5.0, 5.0)
    found = grouped(view, labels, guess, score, 0.0, n_new=4 - n_known)
    new = ids >= n_known
    assert np.array_equal(found[~new], ids[~new])
    by_group = n_known + group(view, np.flatnonzero(new), 4 - n_known)
    assert np.array_equal(found[new], by_group)


def test_without_new_classes_every_image_is_of_a_known_one():
    view, labels, ids = small_view()
    guess = ids % 2
    score = np.full(len(ids), -5.0)
    found = grouped(view, labels, guess, score, 0.0, n_new=0)
    assert np.array_equal(found, np.where(labels >= 0, labels, guess))


def test_labeled_images_stay_and_only_new_classes_are_kept_alive():
    scores = torch.tensor([[0.0, 9.0, 1.0, 0.0], [0.0, 9.0, 0.5, 3.0], [0.0, 9.0, 0.4, 2.0]])
    found = best_classes(scores.clone(), np.array([0, -1, -1]), n_new=1)
    assert found.tolist() == [0, 3, 1]
    assert best_classes(scores.clone(), np.array([0, -1, -1]), n_new=0).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("n_rows", "n_groups", "n_parts", "most_parts"), [(32, 1, 4, 6), (20, 5, 10, 10), (7, 4, 7, 8)]
)
def test_groups_are_merged_of_parts_of_which_there_are_enough(
    n_rows, n_groups, n_parts, most_parts, monkeypatch
):
    view, _, _ = small_view(most_parts=6)
    asked = {}
    monkeypatch.setattr(find, "merges", lambda points, **named: asked.update(named))
    found = group(view, np.arange(n_rows), n_groups)
    assert (asked["n_parts"], asked["rules"].most_parts) == (n_parts, most_parts)
    by_hand = kmeans(view.points[:n_rows], n_groups, n_init=1, seed=0).labels
    assert np.array_equal(found, by_hand)


class Cut:
    """A merge tree of three parts that is always cut like this."""

    n_parts = 3

    def __init__(self, found):
        self.found = np.array(found)

    def cut(self, n_clusters):
        return self.found


def test_a_cut_that_gives_the_number_of_groups_is_taken(monkeypatch):
    view, _, _ = small_view()
    for found, taken in (([0, 2, 1, 2], True), ([0, 1, 1, 0], False)):
        monkeypatch.setattr(find, "merges", lambda *args, found=found, **named: Cut(found))
        assert (group(view, np.arange(4), 3).tolist() == found) == taken
    assert len(np.unique(group(view, np.arange(4), 4))) == 4  # of three parts: by k-means
    assert len(group(view, np.arange(2), 5)) == 2


def test_an_empty_class_takes_no_labeled_image_and_none_that_is_alone():
    scores = torch.tensor([[5.0, 0.0, 5.0], [5.0, 0.0, 4.0], [5.0, 0.0, 3.0], [0.0, 5.0, 5.0]])
    ids, before = np.array([0, 0, 0, 1]), scores.clone()
    keep_one(ids, scores, np.array([False, True, True, True]), np.array([False, True, True]))
    assert ids.tolist() == [0, 2, 0, 1]
    before[1, 2] = 5.0 + 1e-3
    torch.testing.assert_close(scores, before, atol=1e-5, rtol=0.0)


def test_two_empty_classes_take_two_images_and_a_last_image_stays():
    scores = torch.tensor([[5.0, 4.0, 4.9], [5.0, 4.5, 4.8], [5.0, 0.0, 1.0]])
    ids = np.array([0, 0, 0])
    keep_one(ids, scores, np.ones(3, dtype=bool), np.ones(3, dtype=bool))
    assert ids.tolist() == [2, 1, 0]
    alone, scores = np.array([0]), torch.tensor([[5.0, 1.0]])
    keep_one(alone, scores, np.array([True]), np.array([True, True]))
    assert (alone.tolist(), scores.tolist()) == ([0], [[5.0, 1.0]])


def test_labels_are_numbered_without_the_classes_that_have_none():
    assert find._without_gaps(np.array([3, -1, 0, 5, 3])).tolist() == [1, -1, 0, 2, 1]


def test_checks_see_a_sample_with_its_own_labels_and_groups(monkeypatch):
    view, labels, _ = small_view(3, sample=30, whole_folds=2)
    features, _ = planted(4, each=10, d=6)
    rows = reduced(features, labels, seed=0, rules=view.rules)
    chosen, seen = sample(40, 30, 0), []

    def seen_by(view, labels, fold, line, *, n_new):
        seen.append((labels.tolist(), fold, line, n_new))
        assert torch.equal(view.whole, rows.whole[torch.from_numpy(chosen)])

    monkeypatch.setattr(find, "check", seen_by)
    names = [f"series-{row % 2}" for row in range(40)]
    assert checked(view, rows, labels, names, 0.5, n_new=7) == [None, None]
    for given, fold, line, n_new in seen:
        assert given == find._without_gaps(labels[chosen]).tolist()
        assert (line, n_new) == (0.5, 7)
        of_class = {}
        for row in np.flatnonzero(np.isin(given, fold.seen)):
            of_class.setdefault((given[row], names[chosen[row]]), set()).add(row)
        hidden = set(fold.hidden_known.tolist())
        assert all(rows <= hidden or not rows & hidden for rows in of_class.values())


def test_a_check_tells_what_became_of_the_hidden_images(monkeypatch):
    labels = np.array([0, 0, 1, 1, 2, 2, 2, -1])
    seen_labels = np.array([0, -1, -1, -1, 1, -1, -1, -1])
    fold = Fold(seen_labels, np.array([0, 2]), np.array([1, 5, 6]), np.array([2, 3]))
    asked, put = {}, np.array([0, 0, 3, 3, 1, 1, 4, 0])

    def sorted_by(view, labels, guess, score, line, *, n_new):
        asked.update(n_new=n_new, labels=labels.tolist())
        return torch.eye(5)[torch.from_numpy(put)]

    monkeypatch.setattr(find, "nearest_known", lambda *args: (None, None))
    monkeypatch.setattr(find, "sort", sorted_by)
    other = np.array([0, 1, 3, 3, 1, 1, 1, 0])
    monkeypatch.setattr(find, "judged", lambda *args, n_new: torch.eye(5)[torch.from_numpy(other)])
    found, judged = check(None, labels, fold, 0.0, n_new=2)
    assert judged.right.tolist() == [False, True, True, True, True]
    assert asked == {"n_new": 3, "labels": seen_labels.tolist()}
    assert found.rows.tolist() == [1, 5, 6, 2, 3]
    assert found.right.tolist() == [True, True, False, True, True]
    assert found.is_known.tolist() == [True, True, True, False, False]
    assert found.called_known.tolist() == [True, True, False, False, False]
    assert found.hidden.tolist() == [1]


def test_class_means_are_weighted_and_of_unit_length():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = class_means(features, np.array([1, 1, 0]), np.array([3.0, 4.0, 0.5]), 3)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))


def test_an_answer_has_new_classes_by_size_and_certain_labels():
    features = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))).float())
    labels, classes = np.array([0, -1, -1, -1, -1, -1]), np.array([0, 0, 1, 2, 2, 1])
    classes = np.append(classes[:-1], 2)  # class 2 has three images, class 1 has one
    given = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), 6)).float()
    number = ClassNumber(3, (2, 4), {})
    found = find._answer(features, labels, classes, given.clone(), number, None)
    assert found.class_ids.tolist() == [0, 0, 2, 1, 1, 1]
    np.testing.assert_array_equal(found.probabilities[0], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(found.probabilities[1:], given[1:, [0, 2, 1]].numpy())
    weights = np.array([1.0] + [0.3] * 5)
    middles = class_means(features, found.class_ids, weights, 3)
    torch.testing.assert_close(found.centroids, middles)
    sure = float(given[1:].amax(dim=1).mean())
    assert found.temperature == matching_temperature(features[1:] @ middles.T, sure)
    assert (found.number, found.expected) == (number, None)


def test_an_answer_without_unlabeled_images_is_certain():
    features, labels = unit(torch.eye(3)), np.array([0, 1, 0])
    number = ClassNumber(2, (2, 2), {})
    found = find._answer(features, labels, labels, torch.full((3, 2), 0.5), number, None)
    assert found.probabilities.tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert found.temperature == 1.0


def test_images_on_the_line_are_known(monkeypatch):
    features, ids = planted(4, each=10, d=6)
    labels, asked = some_labels(ids, 2, 5), {}
    score = np.where(ids >= 2, -1.0, np.where(labels >= 0, 9.0, 0.5))
    monkeypatch.setattr(find, "nearest_known", lambda *args: (np.minimum(ids, 1), score))
    monkeypatch.setattr(find, "learned_threshold", lambda *args, **named: 0.5)
    monkeypatch.setattr(find, "linkage_for", lambda *args: asked.update(above=args[2]) or "ward")

    def counted(view, labels, guess, below, *, allowed):
        asked["below"] = below
        return ClassNumber(4, (4, 4), {})

    monkeypatch.setattr(find, "count_classes", counted)
    monkeypatch.setattr(find, "checked", lambda *args, **named: asked.update(named) or [])
    monkeypatch.setattr(find, "expected", lambda *args, **named: asked.update(named))
    monkeypatch.setattr(find, "usual_accuracy", lambda *args: 0.8)
    found = find_classes(features, labels, seed=0)
    assert np.array_equal(asked["above"], ids < 2)
    assert np.array_equal(asked["below"], ids >= 2)
    assert asked["n_new"] == 2
    free = labels < 0
    assert asked["known_share"] == pytest.approx((found.class_ids[free] < 2).mean())
    assert found.probabilities[free].max(axis=1).mean() == pytest.approx(0.8, abs=0.02)
    assert agreement(found.class_ids, ids, 2) > 0.9


@pytest.mark.parametrize(
    ("beside", "hidden", "asked"),
    [({"heights": 3}, [1.0], True), ({}, [1.0], False), ({"heights": 3}, [], False)],
)
def test_fragments_are_asked_for_where_classes_were_counted(beside, hidden, asked, monkeypatch):
    features, ids = planted(4, each=10, d=6)
    called = []

    def without(view, labels, score, line, known, new, number):
        called.append(number)
        return number, score

    hidden_scores = (np.array(hidden), np.array([-1.0]))
    monkeypatch.setattr(find, "fold_scores", lambda *args, **named: hidden_scores)
    monkeypatch.setattr(find, "learned_threshold", lambda *args, **named: 0.0)
    number = ClassNumber(3, (2, 4), beside)
    monkeypatch.setattr(find, "count_classes", lambda *args, **named: number)
    monkeypatch.setattr(find, "without_fragments", without)
    monkeypatch.setattr(find, "checked", lambda *args, **named: [])
    find_classes(features, some_labels(ids, 2, 5), seed=0)
    assert bool(called) == asked


def test_where_all_images_are_labeled_all_are_known(monkeypatch):
    features, ids = planted(3, each=8, d=6)
    asked = {}
    monkeypatch.setattr(find, "checked", lambda *args, **named: [])
    monkeypatch.setattr(find, "expected", lambda *args, **named: asked.update(named))
    found = find_classes(features, ids, seed=0)
    assert asked["known_share"] == 1.0
    assert np.array_equal(found.class_ids, ids)


def test_a_class_that_lost_all_images_gets_the_best_one():
    scores = torch.tensor([[3.0, 0.0, 2.5], [3.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    ids = np.array([0, 0, 1])
    keep_one(ids, scores, np.array([True] * 3), np.array([False, True, True]))
    assert ids.tolist() == [2, 0, 1]


def test_a_new_class_of_one_image_is_no_class():
    """Columns: two known classes, then new ones of 2, 1 and 1 images."""
    best = [0, 1, 2, 2, 3, 4]
    scores = 0.1 * torch.tensor(
        [[0.0, 0, 0, 0, 0], [0] * 5, [0] * 5, [0] * 5, [0, 0, 5, 0, 4], [0] * 5]
    )
    scores[torch.arange(6), torch.tensor(best)] = 1.0
    labels = np.array([0, 1, -1, -1, -1, -1])
    number = ClassNumber(5, (5, 9), {"pairs": 5})
    found, left = without_lone_classes(number, scores, labels, least=2)
    assert (found.estimate, found.interval) == (3, (3, 9))
    assert left.argmax(dim=1).tolist()[:5] == [0, 1, 2, 2, 2]
    asked, left = without_lone_classes(number, scores, labels, least=4)
    assert asked.estimate == left.shape[1] == 4
