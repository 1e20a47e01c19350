"""Pseudo-labels against slow references, known answers, properties, and empty input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd import pseudo_labels as pl
from bacon_gcd.config import UserError
from tests.reference import pseudo_labels as by_hand

QUICK = settings(max_examples=40, deadline=None)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def predictions(rows, classes, *, seed=0, sharpness=1.0):
    noise = torch.randn(rows, classes, generator=generator(seed), dtype=torch.float64)
    return (sharpness * noise).softmax(dim=1)


def nearly_one_hot(classes, n_classes):
    hot = torch.nn.functional.one_hot(torch.as_tensor(classes), n_classes).double() + 1e-6
    return hot / hot.sum(dim=1, keepdim=True)


# Advice: BaCon.


def test_debiasing_is_the_printed_equation():
    logits = 3 * torch.randn(5, 4, generator=generator(), dtype=torch.float64)
    counts = torch.tensor([100, 20, 5, 1])
    for strength in (0.5, 1.0):
        fast = pl.debias(logits, counts, strength=strength)
        torch.testing.assert_close(
            fast, by_hand.debias(logits, counts, strength), atol=1e-9, rtol=1e-9
        )


def test_debiasing_by_zero_or_equal_counts_changes_nothing():
    logits = torch.randn(5, 4, generator=generator())
    for counts, strength in ((torch.tensor([9, 5, 2, 1]), 0.0), (torch.full((4,), 7), 0.5)):
        same = pl.debias(logits, counts, strength=strength)
        torch.testing.assert_close(same, logits.softmax(dim=1))


def test_debiased_probabilities_stay_finite_for_an_empty_class_and_large_logits():
    out = pl.debias(torch.tensor([[1e4, -1e4, 0.0]]), torch.tensor([5, 0, 2]), strength=0.5)
    assert out.isfinite().all()
    assert out.sum().item() == pytest.approx(1)


def test_an_empty_class_counts_as_the_authors_1e_12_of_all_images():
    empty = pl.debias(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0, 10]), strength=1.0)
    torch.testing.assert_close(empty[0, 1], empty.new_tensor(1e-12), rtol=1e-6, atol=0)


def test_two_classes_of_a_long_tail_have_its_whole_ratio():
    prior = pl.long_tail_prior(torch.tensor([1.0, 2.0]), ratio=4.0, n_rows=100)
    torch.testing.assert_close(prior, torch.tensor([0.2, 0.8]))


def test_no_pseudo_label_lets_a_gradient_through():
    leaf = torch.randn(4, 3, generator=generator(), requires_grad=True)
    p, counts = leaf.softmax(dim=1), torch.tensor([4, 2, 1])
    prior = torch.full((3,), 1 / 3)
    for target in (
        pl.debias(leaf, counts, strength=0.5),
        pl.positiveness(p),
        pl.hard_positiveness(p),
        pl.sharpen(leaf, temperature=0.1),
        pl.sinkhorn(leaf, prior, epsilon=0.05, rounds=3),
        pl.harden(p, n_known=1),
        pl.uncertainty_temperatures(p.expand(2, 4, 3)),
    ):
        assert not target.requires_grad


def test_keep_rates_are_the_printed_equation():
    counts, present = [100, 30, 4, 8], [True, False, False, True]
    for alpha, beta in ((0.0, 0.5), (0.8, 0.5), (1.0, 0.0)):
        fast = pl.keep_rates(torch.tensor(counts), torch.tensor(present), alpha=alpha, beta=beta)
        wanted = torch.tensor(by_hand.keep_rates(counts, present, alpha, beta))
        torch.testing.assert_close(fast, wanted)


def test_keep_rates_do_not_depend_on_the_scale_and_survive_an_empty_class():
    present = torch.tensor([True, False, False])
    counts = torch.tensor([100.0, 10.0, 5.0])
    rates = pl.keep_rates(counts, present, alpha=0.8, beta=0.5)
    shares = pl.keep_rates(counts / counts.sum(), present, alpha=0.8, beta=0.5)
    torch.testing.assert_close(shares, rates)
    empty = pl.keep_rates(torch.tensor([100, 10, 0]), present, alpha=0.8, beta=0.5)
    torch.testing.assert_close(empty, torch.tensor([0.1**0.8, 1.0, 1.0]))


def test_drawn_counts_follow_the_binomial_law_and_the_seed():
    p, rates = nearly_one_hot([0] * 40 + [1] * 10, 3), torch.tensor([0.25, 1.0, 0.5])
    draws = torch.stack([pl.draw_counts(p, rates, generator=generator(s)) for s in range(400)])
    assert (draws[:, 1] == 10).all()
    assert (draws[:, 2] == 0).all()
    first = draws[:, 0].double()
    assert abs(first.mean() - 10) < 0.5  # standard error 0.14
    assert abs(first.var() - 7.5) < 2.5
    again = pl.draw_counts(p, rates, generator=generator(7))
    assert torch.equal(again, draws[7])


def test_without_a_generator_the_expected_counts_are_kept():
    p, among = nearly_one_hot([0] * 9 + [1] * 4, 2), torch.tensor([True] * 7 + [False] * 6)
    rates = torch.tensor([0.5, 1.0])
    assert pl.draw_counts(p, rates).tolist() == [4, 4]
    assert pl.draw_counts(p, rates, among=among).tolist() == [4, 0]


@QUICK
@given(
    rows=st.lists(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=3, max_size=3)),
    counts=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    data=st.data(),
)
def test_picking_is_a_sort_per_class_with_ties_in_order(rows, counts, data):
    among = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    p = torch.tensor(rows).reshape(-1, 3)
    mask = torch.tensor(among, dtype=torch.bool)
    fast = pl.pick_confident(p, torch.tensor(counts), among=mask)
    assert fast.tolist() == by_hand.pick_confident(p, counts, among)
    everyone = pl.pick_confident(p, torch.tensor(counts))
    assert everyone.tolist() == by_hand.pick_confident(p, counts, [True] * len(p))


def test_rank_within_counts_earlier_rows_of_the_group():
    assert pl.rank_within(torch.tensor([5, 2, 5, 5, 2, 9])).tolist() == [0, 0, 1, 2, 1, 0]
    assert pl.rank_within(torch.empty(0, dtype=torch.long)).tolist() == []


@pytest.mark.parametrize("similarity", pl.SIMILARITIES)
@pytest.mark.parametrize("same_image", [1.0, None])
def test_positiveness_is_the_printed_similarity(similarity, same_image):
    p = predictions(40, 5, sharpness=2.0)
    fast = pl.positiveness(p, similarity=similarity, same_image=same_image)
    torch.testing.assert_close(fast, by_hand.positiveness(p, similarity, same_image))
    assert fast.min() >= 0
    assert fast.max() <= 1


def test_positiveness_is_the_dot_product_with_a_unit_diagonal_unless_told_otherwise():
    p = predictions(6, 4)
    torch.testing.assert_close(pl.positiveness(p), by_hand.positiveness(p, "dot", 1.0))


def test_positiveness_of_nothing_is_empty_and_unknown_names_list_the_choices():
    assert pl.positiveness(torch.empty(0, 3)).shape == (0, 0)
    with pytest.raises(UserError, match="choose from dot, cosine, l1, l2"):
        pl.positiveness(torch.empty(0, 3), similarity="l3")


def test_hard_positiveness_asks_for_the_same_class_only():
    p = torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])
    assert pl.hard_positiveness(p).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


# Targets.


def test_sharpening_divides_by_the_temperature():
    logits = torch.tensor([[0.2, 0.1]])
    wanted = 1 / (1 + math.exp(-0.1 / 0.04))
    assert pl.sharpen(logits, temperature=0.04)[0, 0].item() == pytest.approx(wanted)


def test_confidence_opens_the_gate_from_the_threshold_on():
    classes, gate = pl.confident(torch.tensor([[0.95, 0.05], [0.06, 0.94]]), threshold=0.95)
    assert classes.tolist() == [0, 1]
    assert gate.tolist() == [True, False]


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_sinkhorn_is_the_plain_scaling_and_its_rounds_count(rounds):
    logits = torch.randn(8, 4, generator=generator(), dtype=torch.float64).tanh()
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    fast = pl.sinkhorn(logits, prior, epsilon=0.05, rounds=rounds)
    torch.testing.assert_close(fast, by_hand.sinkhorn(logits, prior, 0.05, rounds))
    more = pl.sinkhorn(logits, prior, epsilon=0.05, rounds=rounds + 1)
    assert (fast - more).abs().max() > 1e-3


def test_sinkhorn_survives_large_logits_and_a_class_without_prior():
    logits = 1e4 * torch.randn(8, 4, generator=generator())
    q = pl.sinkhorn(logits, torch.tensor([0.5, 0.3, 0.2, 0.0]), epsilon=0.05, rounds=3)
    assert q.isfinite().all()
    torch.testing.assert_close(q.sum(dim=1), torch.ones(8))
    assert pl.sinkhorn(logits[:0], torch.full((4,), 0.25), epsilon=0.05, rounds=3).shape == (0, 4)


def test_the_long_tail_prior_goes_to_classes_by_their_mass():
    mass = [0.1, 5.0, 0.3, 2.0, 0.2]
    fast = pl.long_tail_prior(torch.tensor(mass, dtype=torch.float64), ratio=50.0, n_rows=20)
    wanted = torch.tensor(by_hand.long_tail_prior(mass, 50.0, 20), dtype=torch.float64)
    torch.testing.assert_close(fast, wanted)
    assert pl.long_tail_prior(torch.ones(1), ratio=50.0, n_rows=20).tolist() == [1]


def test_only_sure_novel_rows_become_hard():
    p = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.1, 0.5], [0.3, 0.3, 0.4], [0.0, 0.6, 0.4]])
    hard = pl.harden(p, n_known=1)
    assert hard[1].tolist() == [0, 0, 1]
    assert hard[3].tolist() == [0, 1, 0]
    assert torch.equal(hard[[0, 2]], p[[0, 2]])
    assert torch.equal(pl.harden(p, n_known=3), p)


# What else the baselines need.


def test_partners_are_same_class_if_labeled_and_nearest_otherwise():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0], [1.0, 0.2], [-1.0, 0.1]])
    labels = torch.tensor([0, 0, 1, -1, -1])
    partner = pl.partners(features, labels, generator=generator())
    assert partner[:3].tolist() == [1, 0, 2]  # class 1 is alone
    assert partner[3:].tolist() == [0, 1]  # the nearest other row, labeled or not
    assert pl.partners(features[:0], labels[:0], generator=generator()).tolist() == []
    assert pl.partners(features[:1], labels[3:4], generator=generator()).tolist() == [0]


def test_no_rows_have_no_partners():
    assert pl.nearest_rows(torch.empty(0, 3)).shape == (0,)
    labels = torch.empty(0, dtype=torch.long)
    assert pl.same_class_partners(labels, generator=generator()).shape == (0,)


def test_labeled_partners_are_drawn_evenly_and_repeatably():
    labels = torch.tensor([2, 2, 2, -1, 1])
    draws = [pl.same_class_partners(labels, generator=generator(s)).tolist() for s in range(200)]
    assert {row[0] for row in draws} == {1, 2}
    assert 70 < sum(row[0] == 1 for row in draws) < 130
    assert all(row[3:] == [3, 4] for row in draws)
    assert pl.same_class_partners(labels, generator=generator(5)).tolist() == draws[5]


def test_the_margin_is_the_missing_confidence_up_to_a_half():
    assert pl.uncertainty_margin(torch.tensor([[0.9, 0.1], [0.3, 0.7]])) == pytest.approx(0.2)
    assert pl.uncertainty_margin(torch.full((2, 4), 0.25)) == 0.5
    assert pl.uncertainty_margin(torch.empty(0, 4)) == 0


def test_standardized_rows_have_mean_zero_and_unbiased_deviation_one():
    leaf = torch.randn(3, 5, generator=generator(), requires_grad=True)
    rows = pl.standardize(leaf)
    wanted = (leaf - leaf.mean(dim=1, keepdim=True)) / leaf.std(dim=1, keepdim=True)
    torch.testing.assert_close(rows, wanted)
    assert rows.requires_grad
    flat = torch.ones(2, 3, requires_grad=True)
    pl.standardize(flat).sum().backward()
    assert flat.grad.isfinite().all()


def test_two_views_are_enough_to_differ():
    views = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.9, 0.1], [0.7, 0.3]]])
    assert pl.uncertainty_temperatures(views).tolist() == pytest.approx([0.1, 1.0])


def test_two_scores_are_standardized_by_the_unbiased_deviation():
    half = 0.5**0.5
    assert pl.standardize(torch.tensor([[0.0, 2.0]]))[0].tolist() == pytest.approx([-half, half])


def test_a_score_at_the_quantile_is_not_below_it():
    assert not pl.below_quantile(torch.tensor([0.5]), torch.full((4,), 0.5), quantile=0.3).any()


def test_novel_is_what_scores_below_the_quantile_of_the_labeled_rows():
    reference = torch.tensor([0.0, 1.0, 2.0, 3.0])  # 30th percentile by interpolation: 0.9
    below = pl.below_quantile(torch.tensor([0.89, 0.91]), reference, quantile=0.3)
    assert below.tolist() == [True, False]
    assert pl.below_quantile(torch.ones(2), torch.empty(0), quantile=0.3).tolist() == [False] * 2


def test_the_unlabeled_prior_lacks_what_is_labeled():
    prior = pl.novel_heavy_prior(4, 2, labeled_share=0.5)
    torch.testing.assert_close(prior, torch.tensor([1, 1, 2, 2]) / 6)
    everything = pl.novel_heavy_prior(3, 3, labeled_share=1.0)
    torch.testing.assert_close(everything, torch.full((3,), 1 / 3))


def test_temperatures_grow_with_the_spread_over_views():
    views = torch.stack([predictions(6, 3, seed=s, sharpness=2.0) for s in range(4)])
    views[:, 0] = views[0, 0]  # no spread at all
    wanted = by_hand.spread_temperatures(views, 0.1)
    assert pl.uncertainty_temperatures(views).tolist() == pytest.approx(wanted)
    assert wanted[0] == 0.1
    assert max(wanted) == 1
    assert pl.uncertainty_temperatures(views[:1]).tolist() == [0.1] * 6
    assert pl.uncertainty_temperatures(views[:, :0]).tolist() == []


def test_mixing_keeps_everything_in_step_and_follows_the_beta_law():
    share, order = pl.draw_mix(4, generator=generator(3))
    x, y = torch.arange(4.0), torch.arange(8.0).reshape(4, 2)
    mixed = pl.mixup(share, order, x, y)
    for i, j in enumerate(order.tolist()):
        assert mixed[0][i].item() == pytest.approx(share * i + (1 - share) * j)
        torch.testing.assert_close(mixed[1][i], share * y[i] + (1 - share) * y[j])
    shares = torch.tensor([pl.draw_mix(1, generator=generator(s))[0] for s in range(1500)])
    assert abs(shares.mean() - 0.5) < 0.03
    assert abs(shares.var() - 0.25 / 2.5) < 0.01  # variance of Beta(a, a) is 1 / 4(2a + 1)
    assert pl.draw_mix(4, generator=generator(3))[0] == share


def test_keep_rates_of_the_balanced_head_fall_to_the_inverse_counts():
    counts = torch.tensor([40, 10])
    for progress, wanted in ((0.0, [1, 1, 1]), (0.5, [0.625, 1, 1]), (1.0, [0.25, 1, 1])):
        rates = pl.balanced_keep_rates(counts, 3, progress=progress)
        assert rates.tolist() == pytest.approx(wanted)


def test_gates_are_drawn_with_the_rate_of_the_class():
    classes, rates = torch.tensor([0] * 50 + [1] * 50 + [2] * 1000), torch.tensor([0.0, 1.0, 0.3])
    gate = pl.draw_gate(classes, rates, generator=generator())
    assert gate[:50].sum() == 0
    assert gate[50:100].sum() == 50
    assert 240 < gate[100:].sum() < 360
    assert torch.equal(gate, pl.draw_gate(classes, rates, generator=generator()))
