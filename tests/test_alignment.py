"""Alignment to class sizes: what is kept, the least cost, and targets that are hard to meet."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd import alignment, pseudo_labels
from bacon_gcd.alignment import align, certainty, denoise
from tests.reference import pseudo_labels as by_hand
from tests.test_pseudo_labels import generator, nearly_one_hot, predictions

QUICK = settings(max_examples=40, deadline=None)


def test_denoising_keeps_the_surest_rows_of_each_class():
    p, counts = predictions(12, 4), torch.tensor([5.0, 3.6, 0.4, 3.0], dtype=torch.float64)
    for alpha in (1.0, 2.0):
        fast = denoise(p, counts, alpha=alpha)
        torch.testing.assert_close(fast, by_hand.denoise(p, counts, alpha))
    torch.testing.assert_close(denoise(p, counts), by_hand.denoise(p, counts, 2.0))


def test_certainty_is_one_over_the_entropy():
    p = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert certainty(p).tolist() == pytest.approx([1 / math.log(2), 1e6])


def sums_are_met(q, counts):
    wanted = counts.double() / counts.double().sum() * len(q)
    assert (q.sum(dim=1) - 1).abs().max() <= 1e-6
    assert (q.sum(dim=0) - wanted).abs().max() <= 1e-6


def test_alignment_meets_the_counts_at_the_least_cost():
    """Karush-Kuhn-Tucker: w_n log(q/p) is a sum of a number per row and a number per class."""
    p = predictions(30, 5, sharpness=2.0)
    weights = certainty(p)
    counts = torch.tensor([12.0, 8.0, 5.0, 4.0, 1.0])
    q = align(p, counts, weights)
    sums_are_met(q, counts)
    force = weights[:, None] * (q / p).log()
    force = force - force.mean(dim=1, keepdim=True)
    assert (force - force.mean(dim=0)).abs().max() < 1e-5


def test_aligning_what_fits_changes_nothing():
    p = predictions(30, 5)
    torch.testing.assert_close(align(p, p.sum(dim=0), certainty(p)), p, atol=1e-6, rtol=0)


HARD_TARGETS = {
    "equal": torch.ones(10),
    "long tail": 100.0 ** (-torch.arange(10) / 9),
    "long tail upside down": 100.0 ** (torch.arange(10) / 9),
    "zeros": torch.tensor([0.0] * 5 + [1.0] * 5),
    "near zeros": 10.0 ** -torch.arange(10.0),
    "one class only": torch.tensor([0.0] * 9 + [1.0]),
}


@pytest.mark.parametrize("counts", HARD_TARGETS.values(), ids=HARD_TARGETS)
@pytest.mark.parametrize("kind", ["one-hot", "sharp", "mixed", "one class"])
@pytest.mark.parametrize("rows", [7, 120])
def test_alignment_cannot_fail(counts, kind, rows):
    long_tail = torch.arange(rows) % 10 * (torch.arange(rows) % 3 == 0)
    one_hot = nearly_one_hot(long_tail, 10)
    sharp = predictions(rows, 10, sharpness=30.0)
    p = {
        "one-hot": one_hot,
        "sharp": sharp,
        "mixed": torch.cat([one_hot[: rows // 2], predictions(rows, 10)[rows // 2 :]]),
        "one class": nearly_one_hot([0] * rows, 10),
    }[kind]
    for weights in (certainty(p), torch.ones(rows)):
        sums_are_met(align(p, counts, weights), counts)


@QUICK
@given(seed=st.integers(0, 10_000), sharpness=st.floats(0, 40), tail=st.floats(-8, 8))
def test_alignment_meets_any_counts(seed, sharpness, tail):
    p = predictions(15, 4, seed=seed, sharpness=sharpness)
    counts = 10 ** (tail * torch.rand(4, generator=generator(seed)))
    sums_are_met(align(p, counts, certainty(p)), counts)


def test_impossible_counts_are_refused_and_no_rows_need_no_counts():
    p = predictions(3, 2)
    for counts in ([0.0, 0.0], [-1.0, 2.0], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="class counts must be >= 0 and not all zero"):
            align(p, torch.tensor(counts), torch.ones(3))
    assert align(p[:0], torch.ones(2), torch.ones(0)).shape == (0, 2)


def test_converged_sinkhorn_is_the_alignment_with_unit_weights():
    logits = torch.randn(12, 5, generator=generator(), dtype=torch.float64).tanh()
    prior = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05], dtype=torch.float64)
    limit = pseudo_labels.sinkhorn(logits, prior, epsilon=0.2, rounds=500)
    aligned = align((logits / 0.2).softmax(dim=1), prior, torch.ones(12))
    torch.testing.assert_close(aligned, limit, atol=1e-6, rtol=0)


def test_refined_predictions_let_no_gradient_through():
    leaf = torch.randn(4, 3, generator=generator(), requires_grad=True)
    p, counts = leaf.softmax(dim=1), torch.tensor([4, 2, 1])
    for target in (denoise(p, counts), align(p, counts, certainty(p))):
        assert not target.requires_grad


def test_the_alignment_has_its_stable_name_among_the_pseudo_labels():
    assert pseudo_labels.align is alignment.align
