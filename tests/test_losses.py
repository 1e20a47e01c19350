"""Every loss against its printed equation, known answers, and the cases where nothing is left."""

import math

import pytest
import torch
import torch.nn.functional as F

from bacon_gcd import losses
from bacon_gcd.config import UserError
from tests.reference import losses as by_hand


def random(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def cosines(rows, columns, seed=0):
    return random(rows, columns, seed=seed).tanh().requires_grad_()


def same_value_and_gradient(fast, slow, leaf):
    torch.testing.assert_close(fast, slow)
    (fast_gradient,) = torch.autograd.grad(fast, leaf, retain_graph=True)
    (slow_gradient,) = torch.autograd.grad(slow, leaf)
    torch.testing.assert_close(fast_gradient, slow_gradient)


def zero_with_gradient(loss, leaf):
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert (gradient == 0).all()


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_contrast_is_the_printed_equation(temperature):
    similarity = cosines(6, 6)
    positives = random(6, 6, seed=1).abs()
    positives[2] = 0
    positives[2, 2] = 5.0  # only itself: no positive at all
    fast = losses.contrast(similarity, positives, temperature=temperature)
    slow = by_hand.contrast(similarity, positives, temperature)
    same_value_and_gradient(fast, slow, similarity)


def test_contrast_takes_yes_and_no_as_weights():
    similarity, groups = cosines(6, 6), torch.tensor([0, 1, 0, 1, 2, 0])
    same = groups[:, None] == groups
    yes_no = losses.contrast(similarity, same, temperature=0.5)
    torch.testing.assert_close(yes_no, by_hand.contrast(similarity, same, 0.5))


def test_contrast_of_two_views_alone_is_zero():
    """One other row only: it has probability 1, whatever the similarity."""
    similarity = cosines(2, 2)
    loss = losses.contrast(similarity, torch.ones(2, 2), temperature=0.07)
    assert abs(loss.item()) < 1e-12


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_contrast_without_positives_is_zero_with_gradient(rows):
    similarity = cosines(rows, rows)
    loss = losses.contrast(similarity, torch.eye(rows), temperature=0.07)
    zero_with_gradient(loss, similarity)


def test_claim_1_free_similarities_reach_the_normalized_weights():
    """At the least Eq. (6), the contrastive probability of j for i is w_ij / sum_k w_ik."""
    weights = random(5, 5, seed=3).abs() + 0.05
    similarity = torch.zeros(5, 5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([similarity], max_iter=500, tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        loss = losses.contrast(similarity, weights, temperature=0.5)
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    reached = (similarity.detach() / 0.5).fill_diagonal_(-torch.inf).softmax(dim=1)
    wanted = weights.fill_diagonal_(0.0)
    torch.testing.assert_close(reached, wanted / wanted.sum(1, keepdim=True), atol=1e-5, rtol=0)


def test_cross_entropy_on_labeled_rows_is_the_printed_sum():
    logits, labels = cosines(5, 4), torch.tensor([0, -1, 3, 2, -1])
    fast = losses.cross_entropy(logits / 0.1, labels)
    same_value_and_gradient(fast, by_hand.cross_entropy(logits / 0.1, labels), logits)


def test_closed_gates_count_in_the_mean_and_open_ones_weigh():
    logits, target = cosines(5, 4), random(5, 4, seed=1).softmax(dim=1)
    gate = torch.tensor([1.0, 0.0, 1.0, 0.5, 0.0])
    fast = losses.cross_entropy(logits, target, gate=gate)
    same_value_and_gradient(fast, by_hand.soft_cross_entropy(logits, target, gate), logits)
    labels = torch.tensor([0, -1, 3, 2, 1])
    gated = losses.cross_entropy(logits, labels, gate=gate)
    hot = F.one_hot(labels.clamp_min(0), 4)[labels >= 0]
    slow = by_hand.soft_cross_entropy(logits[labels >= 0], hot, gate[labels >= 0])
    torch.testing.assert_close(gated, slow)


def test_a_single_labeled_row_counts_in_full():
    logits = cosines(3, 4)
    loss = losses.cross_entropy(logits, torch.tensor([-1, 2, -1]))
    torch.testing.assert_close(loss, -logits[1].log_softmax(dim=0)[2])


def test_cross_entropy_without_labels_is_zero_with_gradient():
    logits = cosines(3, 4)
    zero_with_gradient(losses.cross_entropy(logits, torch.full((3,), -1)), logits)


def test_self_distillation_is_the_printed_sum_and_the_teacher_gets_no_gradient():
    leaf = cosines(6, 4)
    fast = losses.self_distillation(leaf, teacher_temperature=0.05)
    same_value_and_gradient(fast, by_hand.self_distillation(leaf, 0.05, 0.1), leaf)
    other = losses.self_distillation(leaf, teacher_temperature=0.07, student_temperature=0.2)
    same_value_and_gradient(other, by_hand.self_distillation(leaf, 0.07, 0.2), leaf)


def test_self_distillation_needs_two_views_and_may_be_empty():
    with pytest.raises(ValueError, match="even number of rows, not 3"):
        losses.self_distillation(cosines(3, 4), teacher_temperature=0.05)
    nothing = cosines(0, 4)
    zero_with_gradient(losses.self_distillation(nothing, teacher_temperature=0.05), nothing)


@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize("power", [0.5, 1.1])
def test_prior_penalty_is_the_printed_equation(form, power):
    leaf, counts = cosines(6, 4), torch.tensor([100, 30, 7, 1])
    fast = losses.prior_penalty(leaf, counts, power=power, form=form)
    slow = by_hand.prior_penalty(by_hand.mean_prediction(leaf), counts, power, form)
    same_value_and_gradient(fast, slow, leaf)
    warmer = losses.prior_penalty(leaf, counts, power=power, form=form, temperature=0.3)
    warm = by_hand.mean_prediction(leaf, temperature=0.3)
    torch.testing.assert_close(warmer, by_hand.prior_penalty(warm, counts, power, form))


@pytest.mark.parametrize("form", ["released", "paper"])
def test_prior_penalty_is_least_where_the_mean_follows_the_counts(form):
    counts = torch.tensor([100.0, 30.0, 7.0], dtype=torch.float64)
    share = counts**0.5 / (counts**0.5).sum()
    leaf = (0.1 * share.log()).expand(4, 3).clone().requires_grad_()
    loss = losses.prior_penalty(leaf, counts, power=0.5, form=form)
    assert abs(loss.item()) < 1e-12
    assert torch.autograd.grad(loss, leaf)[0].abs().max() < 1e-12


@pytest.mark.parametrize("form", ["released", "paper"])
def test_prior_penalty_under_equal_counts_is_the_missing_entropy(form):
    leaf = cosines(6, 4)
    mean = (leaf / 0.1).softmax(dim=1).mean(dim=0)
    missing = math.log(4) + (mean * mean.log()).sum()
    for counts, power in ((torch.full((4,), 9.0), 1.1), (torch.tensor([5.0, 4, 2, 1]), 0.0)):
        penalty = losses.prior_penalty(leaf, counts, power=power, form=form)
        torch.testing.assert_close(penalty, missing)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_prior_penalty_is_finite_at_zero_mass_and_without_rows(form):
    leaf = torch.tensor([[1e4, -1e4, 0.0]] * 4, requires_grad=True)
    loss = losses.prior_penalty(leaf, torch.tensor([3.0, 2.0, 0.0]), power=1.1, form=form)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, leaf)[0].isfinite().all()
    nothing = cosines(0, 3)
    zero_with_gradient(losses.prior_penalty(nothing, torch.ones(3), power=1.1), nothing)
    zero_with_gradient(losses.known_prior_penalty(nothing, torch.ones(2), power=1.1), nothing)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_known_prior_penalty_sees_only_the_known_share(form):
    leaf, labeled = cosines(6, 5), torch.tensor([30, 7, 2])
    fast = losses.known_prior_penalty(leaf, labeled, power=0.5, form=form)
    known = by_hand.mean_prediction(leaf)[:3]
    share = [m / sum(known) for m in known]
    same_value_and_gradient(fast, by_hand.prior_penalty(share, labeled, 0.5, form), leaf)


def test_an_unknown_form_lists_the_choices():
    with pytest.raises(UserError, match="'papre' is not known; choose from released, paper"):
        losses.prior_penalty(cosines(2, 3), torch.ones(3), power=1.0, form="papre")


def test_prior_kl_is_the_divergence_of_the_mean():
    leaf, prior = cosines(6, 4), torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    loss = losses.prior_kl((leaf / 0.1).softmax(dim=1), prior)
    mean = by_hand.mean_prediction(leaf)
    slow = sum(m * (m.log() - math.log(q)) for m, q in zip(mean, prior, strict=True))
    same_value_and_gradient(loss, slow, leaf)


def test_prior_kl_is_finite_where_a_class_has_no_mass():
    probabilities = torch.tensor([[1.0, 0.0]] * 2, requires_grad=True)
    loss = losses.prior_kl(probabilities, torch.tensor([0.5, 0.5]), floor=1e-5)
    assert loss.item() == pytest.approx(math.log(2) + 1e-5 * math.log(1e-5 / 0.5))
    assert torch.autograd.grad(loss, probabilities)[0].isfinite().all()
    usual = losses.prior_kl(probabilities.double(), torch.tensor([0.5, 0.5]))
    assert usual.item() == pytest.approx(math.log(2) + 1e-8 * math.log(1e-8 / 0.5), abs=1e-10)
    nothing = cosines(0, 2)
    zero_with_gradient(losses.prior_kl(nothing, torch.ones(2) / 2), nothing)


def test_pair_agreement_is_the_printed_sum():
    leaf = cosines(5, 4)
    first, second = (leaf / 0.1).softmax(dim=1), (leaf.flip(0) / 0.1).softmax(dim=1)
    fast = losses.pair_agreement(first, second)
    same_value_and_gradient(fast, by_hand.pair_agreement(first, second), leaf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pair_agreement_of_contradicting_rows_is_held_at_100(dtype):
    first = torch.tensor([[1.0, 0.0]], dtype=dtype, requires_grad=True)
    loss = losses.pair_agreement(first, torch.tensor([[0.0, 1.0]], dtype=dtype))
    assert loss.item() == 100
    hardly = torch.full((1, 2), 1e-30, dtype=torch.float64)
    assert losses.pair_agreement(hardly, hardly).item() == 100
    assert torch.autograd.grad(loss, first)[0].isfinite().all()
    nothing = cosines(0, 2)
    zero_with_gradient(losses.pair_agreement(nothing, nothing), nothing)


def test_a_margin_raises_only_the_own_class_of_labeled_rows():
    raised = losses.add_margin(torch.zeros(3, 3), torch.tensor([2, -1, 0]), 0.5)
    assert raised.tolist() == [[0, 0, 0.5], [0, 0, 0], [0.5, 0, 0]]


def test_an_empty_class_counts_as_the_smallest_other_one():
    assert losses.fill_empty(torch.tensor([8, 0, 2])).tolist() == [8, 2, 2]
    assert losses.fill_empty(torch.zeros(2)).tolist() == [1, 1]


def test_large_logits_give_finite_losses_and_gradients():
    leaf = (1e4 * torch.randn(6, 6, generator=torch.Generator().manual_seed(0))).requires_grad_()
    total = (
        losses.contrast(leaf, torch.ones(6, 6), temperature=0.07)
        + losses.self_distillation(leaf, teacher_temperature=0.04)
        + losses.prior_penalty(leaf, torch.ones(6), power=1.1)
        + losses.prior_penalty(leaf, torch.ones(6), power=0.5, form="paper")
        + losses.prior_kl(leaf.softmax(dim=1), torch.full((6,), 1 / 6))
        + losses.pair_agreement(leaf.softmax(dim=1), leaf.flip(0).softmax(dim=1))
        + losses.cross_entropy(leaf, torch.arange(6))
    )
    total.backward()
    assert total.isfinite()
    assert leaf.grad.isfinite().all()
