"""Each objective against the literal loss, gradients included.

A changed temperature, row or detach changes a value or a gradient here.
"""

import pytest
import torch
import torch.nn.functional as F

from bacon_gcd import objectives
from bacon_gcd.data.batches import Batch
from bacon_gcd.objectives import Prior
from bacon_gcd.pseudo_labels import draw_gate, partners, positiveness
from tests.reference import losses as by_hand

LABELS = torch.tensor([0, -1, 1, 0, -1, 2])
COUNTS = torch.tensor([50.0, 20.0, 8.0, 2.0])


def batch(labels=LABELS, views=2):
    return Batch(torch.zeros(views * len(labels), 1), labels, torch.arange(len(labels)))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def outputs(rows, columns, seed=0):
    values = torch.randn(rows, columns, generator=generator(seed), dtype=torch.float64)
    return values.tanh().requires_grad_()


def check(loss, literal, *leaves):
    torch.testing.assert_close(loss, literal)
    gradients = [
        torch.autograd.grad(
            each, leaves, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for each in (loss, literal)
    ]
    torch.testing.assert_close(*gradients, msg=lambda message: f"gradient: {message}")


def same(values):
    return (values[:, None] == values).double()


@pytest.mark.parametrize("temperature", [1.0, 0.07])
def test_the_contrast_of_images_pairs_the_views_of_each(temperature):
    similarity = outputs(12, 12)
    literal = by_hand.contrast(similarity, same(torch.arange(6).repeat(2)), temperature)
    fast = objectives.contrast_images(similarity, batch(), temperature=temperature)
    check(fast, literal, similarity)


def test_the_contrast_of_images_may_be_among_some_of_them():
    similarity = outputs(12, 12)
    rows = [1, 4, 7, 10]  # both views of the unlabeled images
    literal = by_hand.contrast(similarity[rows][:, rows], same(torch.tensor([0, 1, 0, 1])), 0.5)
    free = ~batch().labeled
    fast = objectives.contrast_images(similarity, batch(), temperature=0.5, rows=free)
    check(fast, literal, similarity)


@pytest.mark.parametrize("temperature", [0.07, 0.2])
def test_the_contrast_of_labels_is_among_labeled_rows(temperature):
    similarity, labels = outputs(12, 12), LABELS.repeat(2)
    rows = [i for i in range(12) if labels[i] >= 0]
    literal = by_hand.contrast(similarity[rows][:, rows], same(labels[rows]), temperature)
    fast = objectives.contrast_labels(similarity, batch(), temperature=temperature)
    check(fast, literal, similarity)


def test_an_image_drawn_twice_is_two_images():
    similarity = outputs(4, 4)
    twice = Batch(torch.zeros(4, 1), torch.tensor([-1, -1]), torch.tensor([7, 7]))
    literal = by_hand.contrast(similarity, same(torch.tensor([0, 1, 0, 1])), 1.0)
    check(objectives.contrast_images(similarity, twice, temperature=1.0), literal, similarity)


@pytest.mark.parametrize("temperature", [0.07, 0.3])
def test_the_soft_contrast_is_among_kept_images(temperature):
    similarity = outputs(12, 12)
    kept = torch.tensor([True, False, True, True, True, True])
    weights = positiveness(outputs(5, 4, seed=1).detach().softmax(dim=1))
    rows = [i for i in range(12) if kept[i % 6]]
    tiled = torch.cat([torch.cat([weights, weights], dim=1)] * 2)
    literal = by_hand.contrast(similarity[rows][:, rows], tiled, temperature)
    fast = objectives.contrast_softly(similarity, weights, kept, temperature=temperature)
    check(fast, literal, similarity)


@pytest.mark.parametrize("temperature", [0.1, 0.2])
def test_labels_are_learned_in_both_views(temperature):
    cosines = outputs(12, 4)
    literal = by_hand.cross_entropy(cosines / temperature, LABELS.repeat(2))
    check(objectives.classify_labels(cosines, batch(), temperature=temperature), literal, cosines)


@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize("power", [1.1, 0.5])
def test_the_penalty_of_a_prior_is_equation_2(form, power):
    cosines = outputs(12, 4)
    mean = by_hand.mean_prediction(cosines, temperature=0.2)
    literal = by_hand.prior_penalty(mean, COUNTS, power, form)
    fast = Prior(COUNTS, power=power, form=form).penalty(cosines, temperature=0.2)
    check(fast, literal, cosines)


def test_a_uniform_prior_gives_simgcds_mean_entropy():
    cosines = outputs(12, 4)
    mean = torch.stack(by_hand.mean_prediction(cosines))
    missing = torch.tensor(4.0).log() + (mean * mean.log()).sum()
    check(Prior.uniform(4).penalty(cosines, temperature=0.1), missing, cosines)


def test_a_known_only_prior_leaves_novel_classes_free():
    cosines = outputs(12, 4)
    known = by_hand.mean_prediction(cosines)[:3]
    share = [m / sum(known) for m in known]
    prior = Prior(COUNTS[:3], power=0.5, form="paper", known_only=True)
    fast = prior.penalty(cosines, temperature=0.1)
    torch.testing.assert_close(fast, by_hand.prior_penalty(share, COUNTS[:3], 0.5, "paper"))


def test_the_margin_is_added_to_the_labeled_class_of_view_1():
    first, margin = outputs(6, 4), 0.3
    raised = torch.stack(
        [
            10 * row + (10 * margin * F.one_hot(label, 4) if label >= 0 else 0)
            for row, label in zip(first, LABELS, strict=True)
        ]
    )
    fast = objectives.classify_with_margin(first, batch(), margin=margin, temperature=0.1)
    check(fast, by_hand.cross_entropy(raised, LABELS), first)


def test_partners_agree_as_in_orca():
    first, second, features = outputs(6, 4), outputs(6, 4, seed=2), outputs(12, 3, seed=1)
    partner = partners(features[:6], LABELS, generator=batch().generator())
    assert partner[0] == 3
    assert partner[3] == 0
    p = [by_hand.softmax(10 * row) for row in first]
    q = [by_hand.softmax(10 * second[j]) for j in partner]
    fast = objectives.agree_with_partners(first, second, features, batch(), temperature=0.1)
    check(fast, by_hand.pair_agreement(p, q), first, second, features)  # found without gradient


def fixmatch_logits():
    """Weak views: rows 1 and 4 are unlabeled; only row 4 is sure (of class 3)."""
    logits = outputs(18, 4).detach()
    logits[4, 3] = 8.0
    logits[0, 1] = 9.0  # sure but labeled: must not count
    return logits.requires_grad_()


def test_strong_views_learn_what_the_weak_one_is_sure_of():
    logits = fixmatch_logits()
    strong = -sum(by_hand.softmax(logits[row])[3].log() for row in (10, 16)) / 4
    check(objectives.agree_when_confident(logits, batch(views=3)), strong, logits)
    supervised = by_hand.cross_entropy(logits[:6], LABELS)
    check(objectives.classify_weak(logits, batch(views=3)), supervised, logits)


def test_refined_pseudo_labels_replace_the_weak_predictions():
    logits = fixmatch_logits()
    refined = torch.full((6, 4), 0.01)
    refined[1, 2] = 0.97
    strong = -sum(by_hand.softmax(logits[row])[2].log() for row in (7, 13)) / 4
    fast = objectives.agree_when_confident(logits, batch(views=3), pseudo=refined)
    check(fast, strong, logits)
    strict = {"pseudo": refined, "threshold": 0.98}
    assert objectives.agree_when_confident(logits, batch(views=3), **strict) == 0


@pytest.mark.parametrize("seed", range(6))
def test_the_balanced_head_leaves_out_large_classes_and_adds_the_strong_views(seed):
    logits, draws = fixmatch_logits(), generator(seed)
    labeled_rates, rates = torch.tensor([0.5, 1, 1, 1]), torch.tensor([1.0, 1, 1, 0.7])
    labeled_gate = draw_gate(LABELS.clamp_min(0), labeled_rates, generator=draws)
    rows = [i for i in range(6) if LABELS[i] >= 0]
    supervised = by_hand.soft_cross_entropy(
        logits[rows], F.one_hot(LABELS[rows], 4), labeled_gate[rows]
    )
    fast = objectives.classify_balanced(
        logits, batch(views=3), rates=labeled_rates, generator=generator(seed)
    )
    check(fast, supervised, logits)
    gate = float(draw_gate(logits[:6].argmax(dim=1), rates, generator=generator(seed))[4])
    soft = by_hand.softmax(logits[4].detach())
    agreement = sum(
        -s * p.log()
        for row in (10, 16)
        for s, p in zip(soft, by_hand.softmax(logits[row]), strict=True)
    )
    fast = objectives.agree_balanced(logits, batch(views=3), rates=rates, generator=generator(seed))
    check(fast, gate * agreement / 2, logits)  # two unlabeled images; views are added


@pytest.mark.parametrize("labels", [[-1, -1, -1], [0, 1, 1], [2], [-1], []])
def test_every_objective_survives_any_mix_of_labels(labels):
    labels = torch.tensor(labels, dtype=torch.long)
    n = len(labels)
    two, three = batch(labels), batch(labels, views=3)
    similarity, cosines, features = outputs(2 * n, 2 * n), outputs(2 * n, 4), outputs(2 * n, 3)
    logits = outputs(3 * n, 4)
    prior, rates = Prior(COUNTS, power=1.1), torch.ones(4)
    kept = labels >= 0
    soft = positiveness(torch.full((int(kept.sum()), 4), 0.25))
    first, second = cosines.chunk(2) if n else (cosines, cosines)
    heat, draw = {"temperature": 0.1}, {"rates": rates, "generator": generator()}
    supervised = [
        objectives.contrast_labels(similarity, two, **heat),
        objectives.classify_labels(cosines, two, **heat),
        objectives.classify_with_margin(first, two, margin=0.2, **heat),
        objectives.classify_weak(logits, three),
        objectives.classify_balanced(logits, three, **draw),
    ]
    others = [
        objectives.contrast_images(similarity, two, **heat),
        objectives.contrast_softly(similarity, soft, kept, **heat),
        prior.penalty(cosines, **heat),
        objectives.agree_with_partners(first, second, features, two, **heat),
        objectives.agree_when_confident(logits, three),
        objectives.agree_balanced(logits, three, **draw),
    ]
    total = sum(supervised) + sum(others)
    assert total.isfinite()
    for gradient in torch.autograd.grad(total, [similarity, cosines, logits]):
        assert gradient.isfinite().all()
    if not kept.any():
        assert all(loss == 0 for loss in supervised)


def test_a_single_image_has_its_views_and_nothing_else():
    similarity, one = outputs(2, 2), torch.tensor([True])
    alone = objectives.contrast_softly(similarity, torch.ones(1, 1), one, temperature=0.07)
    assert abs(alone.item()) < 1e-12  # the other view is the only choice
    sure = torch.tensor([[9.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    single = batch(torch.tensor([-1]), views=3)
    fast = objectives.agree_balanced(sure, single, rates=torch.ones(2), generator=generator())
    both = by_hand.soft_cross_entropy(sure[1:], sure[:1].softmax(dim=1).expand(2, 2), [1, 1])
    torch.testing.assert_close(fast, 2 * both)


def test_a_prior_follows_the_counts_as_they_are_unless_told_otherwise():
    cosines = outputs(12, 4)
    fast = Prior(COUNTS).penalty(cosines, temperature=0.1)
    mean = by_hand.mean_prediction(cosines)
    torch.testing.assert_close(fast, by_hand.prior_penalty(mean, COUNTS, 1.0, "released"))
