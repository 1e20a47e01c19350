"""Each objective against literal terms with the published numbers written out, gradients included.

A changed coefficient, temperature or detach changes a value or a gradient here.
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


def check(terms, literal, *leaves):
    assert terms.keys() == literal.keys()
    for name in terms:
        torch.testing.assert_close(terms[name], literal[name], msg=lambda m, n=name: f"{n}: {m}")
        gradients = [
            torch.autograd.grad(
                term[name], leaves, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for term in (terms, literal)
        ]
        torch.testing.assert_close(*gradients, msg=lambda m, n=name: f"gradient of {n}: {m}")


def same(values):
    return (values[:, None] == values).double()


def test_contrastive_terms_are_those_of_gcd():
    similarity = outputs(12, 12)
    images, labels = torch.arange(6).repeat(2), LABELS.repeat(2)
    rows = [i for i in range(12) if labels[i] >= 0]
    known = similarity[rows][:, rows]
    literal = {
        "contrast/unsupervised": 0.65 * by_hand.contrast(similarity, same(images), 1.0),
        "contrast/supervised": 0.35 * by_hand.contrast(known, same(labels[rows]), 0.07),
    }
    check(objectives.contrastive_terms(similarity, batch()), literal, similarity)


def test_contrastive_terms_take_other_weights_and_temperatures():
    similarity, images, labels = outputs(12, 12), torch.arange(6).repeat(2), LABELS.repeat(2)
    rows = [i for i in range(12) if labels[i] >= 0]
    known = similarity[rows][:, rows]
    literal = {
        "contrast/unsupervised": 3.0 * by_hand.contrast(similarity, same(images), 0.5),
        "contrast/supervised": 5.0 * by_hand.contrast(known, same(labels[rows]), 0.2),
    }
    terms = objectives.contrastive_terms(
        similarity,
        batch(),
        unsupervised_weight=3.0,
        supervised_weight=5.0,
        unsupervised_temperature=0.5,
        supervised_temperature=0.2,
    )
    check(terms, literal, similarity)


def test_an_image_drawn_twice_is_two_images():
    similarity = outputs(4, 4)
    twice = Batch(torch.zeros(4, 1), torch.tensor([-1, -1]), torch.tensor([7, 7]))
    terms = objectives.contrastive_terms(similarity, twice)
    literal = 0.65 * by_hand.contrast(similarity, same(torch.tensor([0, 1, 0, 1])), 1.0)
    torch.testing.assert_close(terms["contrast/unsupervised"], literal)


def test_the_advice_term_is_the_soft_contrast_among_kept_images():
    similarity = outputs(12, 12)
    kept = torch.tensor([True, False, True, True, True, True])
    weights = positiveness(outputs(5, 4, seed=1).detach().softmax(dim=1))
    rows = [i for i in range(12) if kept[i % 6]]
    tiled = torch.cat([torch.cat([weights, weights], dim=1)] * 2)
    literal = 0.175 * by_hand.contrast(similarity[rows][:, rows], tiled, 0.07)
    terms = objectives.advice_terms(similarity, weights, kept)
    check(terms, {"contrast/advice": literal}, similarity)
    other = objectives.advice_terms(similarity, weights, kept, weight=2.0, temperature=0.3)
    literal = 2.0 * by_hand.contrast(similarity[rows][:, rows], tiled, 0.3)
    check(other, {"contrast/advice": literal}, similarity)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_self_distillation_terms_are_the_classifier_branch_of_bacon_s(form):
    cosines = outputs(12, 4)
    penalty = by_hand.prior_penalty(by_hand.mean_prediction(cosines), COUNTS, 1.1, form)
    literal = {
        "classify/supervised": 0.35 * by_hand.cross_entropy(cosines / 0.1, LABELS.repeat(2)),
        "classify/distill": 0.65 * by_hand.self_distillation(cosines, 0.06, 0.1),
        "classify/prior": 0.65 * penalty,
    }
    prior = Prior(COUNTS, power=1.1, form=form)
    terms = objectives.self_distillation_terms(cosines, batch(), prior, teacher_temperature=0.06)
    check(terms, literal, cosines)


def test_self_distillation_terms_take_other_weights_and_temperature():
    cosines = outputs(12, 4)
    warm = by_hand.mean_prediction(cosines, temperature=0.2)
    literal = {
        "classify/supervised": 2.0 * by_hand.cross_entropy(cosines / 0.2, LABELS.repeat(2)),
        "classify/distill": 3.0 * by_hand.self_distillation(cosines, 0.06, 0.2),
        "classify/prior": 5.0 * by_hand.prior_penalty(warm, COUNTS, 0.5, "released"),
    }
    terms = objectives.self_distillation_terms(
        cosines,
        batch(),
        Prior(COUNTS, power=0.5),
        teacher_temperature=0.06,
        student_temperature=0.2,
        supervised_weight=2.0,
        distill_weight=3.0,
        prior_weight=5.0,
    )
    check(terms, literal, cosines)


def test_a_uniform_prior_gives_simgcds_mean_entropy():
    cosines = outputs(12, 4)
    terms = objectives.self_distillation_terms(
        cosines, batch(), Prior.uniform(4), teacher_temperature=0.06
    )
    mean = torch.stack(by_hand.mean_prediction(cosines))
    missing = torch.tensor(4.0).log() + (mean * mean.log()).sum()
    torch.testing.assert_close(terms["classify/prior"], 0.65 * missing)


def test_a_known_only_prior_leaves_novel_classes_free():
    cosines = outputs(12, 4)
    known = by_hand.mean_prediction(cosines)[:3]
    share = [m / sum(known) for m in known]
    prior = Prior(COUNTS[:3], power=0.5, form="paper", known_only=True)
    fast = prior.penalty(cosines, temperature=0.1)
    torch.testing.assert_close(fast, by_hand.prior_penalty(share, COUNTS[:3], 0.5, "paper"))


@pytest.mark.parametrize("views", [1, 2])
def test_pairwise_terms_are_those_of_orca(views):
    cosines, features = outputs(12, 4), outputs(12, 3, seed=1)
    first, second = cosines[:6], cosines[6:]
    margin = 0.3
    raised = torch.stack(
        [
            10 * row + (10 * margin * F.one_hot(label, 4) if label >= 0 else 0)
            for row, label in zip(first, LABELS, strict=True)
        ]
    )
    partner = partners(features[:6], LABELS, generator=generator(4))
    assert partner[0] == 3
    assert partner[3] == 0
    p = [by_hand.softmax(10 * row) for row in first]
    q = [by_hand.softmax(10 * second[j]) for j in partner]
    mean = by_hand.mean_prediction(cosines[: 6 * views])
    literal = {
        "classify/supervised": by_hand.cross_entropy(raised, LABELS),
        "classify/pairs": by_hand.pair_agreement(p, q),
        "classify/prior": by_hand.prior_penalty(mean, COUNTS, 0.5, "released"),
    }
    terms = objectives.pairwise_terms(
        cosines,
        features,
        batch(),
        Prior(COUNTS, power=0.5),
        margin=margin,
        generator=generator(4),
        prior_views=views,
    )
    check(terms, literal, cosines, features)  # neighbors are found without gradient
    weighted = objectives.pairwise_terms(
        cosines,
        features,
        batch(),
        Prior(COUNTS, power=0.5),
        margin=margin,
        generator=generator(4),
        supervised_weight=2.0,
        pairs_weight=3.0,
        prior_weight=5.0,
        prior_views=views,
    )
    for name, weight in zip(literal, (2.0, 3.0, 5.0), strict=True):
        torch.testing.assert_close(weighted[name], weight * literal[name])


def fixmatch_logits():
    """Weak views: rows 1 and 4 are unlabeled; only row 4 is sure (of class 3)."""
    logits = outputs(18, 4).detach()
    logits[4, 3] = 8.0
    logits[0, 1] = 9.0  # sure but labeled: must not count
    return logits.requires_grad_()


def test_fixmatch_terms_teach_strong_views_what_the_weak_one_is_sure_of():
    logits = fixmatch_logits()
    strong = -sum(by_hand.softmax(logits[row])[3].log() for row in (10, 16)) / 4
    literal = {
        "classify/supervised": by_hand.cross_entropy(logits[:6], LABELS),
        "classify/confident": strong,
    }
    check(objectives.fixmatch_terms(logits, batch(views=3)), literal, logits)
    weighted = objectives.fixmatch_terms(
        logits, batch(views=3), supervised_weight=2.0, confident_weight=3.0
    )
    torch.testing.assert_close(weighted["classify/confident"], 3 * strong)
    torch.testing.assert_close(weighted["classify/supervised"], 2 * literal["classify/supervised"])


def test_refined_pseudo_labels_replace_the_weak_predictions():
    logits = fixmatch_logits()
    refined = torch.full((6, 4), 0.01)
    refined[1, 2] = 0.97
    terms = objectives.fixmatch_terms(logits, batch(views=3), pseudo=refined)
    strong = -sum(by_hand.softmax(logits[row])[2].log() for row in (7, 13)) / 4
    torch.testing.assert_close(terms["classify/confident"], strong)
    strict = objectives.fixmatch_terms(logits, batch(views=3), pseudo=refined, threshold=0.98)
    assert strict["classify/confident"] == 0


def test_balanced_terms_gate_large_classes_and_add_the_strong_views():
    logits = fixmatch_logits()
    labeled_rates, rates = torch.tensor([0.5, 1, 1, 1]), torch.tensor([1.0, 1, 1, 0.7])
    for seed in range(6):
        terms = objectives.balanced_terms(
            logits,
            batch(views=3),
            labeled_rates=labeled_rates,
            rates=rates,
            generator=generator(seed),
        )
        draws = generator(seed)
        labeled_gate = draw_gate(LABELS.clamp_min(0), labeled_rates, generator=draws)
        predicted = logits[:6].argmax(dim=1)
        gate = float(draw_gate(predicted, rates, generator=draws)[4])
        rows = [i for i in range(6) if LABELS[i] >= 0]
        supervised = by_hand.soft_cross_entropy(
            logits[rows], F.one_hot(LABELS[rows], 4), labeled_gate[rows]
        )
        soft = by_hand.softmax(logits[4].detach())
        agreement = sum(
            -s * p.log()
            for row in (10, 16)
            for s, p in zip(soft, by_hand.softmax(logits[row]), strict=True)
        )
        literal = {
            "balanced/supervised": supervised,
            "balanced/confident": gate * agreement / 2,  # two unlabeled images; views are added
        }
        check(terms, literal, logits)


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
    terms = (
        objectives.contrastive_terms(similarity, two)
        | objectives.advice_terms(similarity, soft, kept)
        | objectives.self_distillation_terms(cosines, two, prior, teacher_temperature=0.05)
        | {
            f"orca {name}": term
            for name, term in objectives.pairwise_terms(
                cosines, features, two, prior, margin=0.2, generator=generator()
            ).items()
        }
        | {f"weak {k}": v for k, v in objectives.fixmatch_terms(logits, three).items()}
        | objectives.balanced_terms(
            logits, three, labeled_rates=rates, rates=rates, generator=generator()
        )
    )
    total = sum(terms.values())
    assert total.isfinite()
    for gradient in torch.autograd.grad(total, [similarity, cosines, logits]):
        assert gradient.isfinite().all()
    if not kept.any():
        for name, term in terms.items():
            assert ("supervised" not in name.split("/")) or term == 0


def test_a_single_image_has_its_views_and_nothing_else():
    similarity, one = outputs(2, 2), torch.tensor([True])
    alone = objectives.advice_terms(similarity, torch.ones(1, 1), one)
    assert abs(alone["contrast/advice"].item()) < 1e-12  # the other view is the only choice
    sure = torch.tensor([[9.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    rates = torch.ones(2)
    terms = objectives.balanced_terms(
        sure,
        batch(torch.tensor([-1]), views=3),
        labeled_rates=rates,
        rates=rates,
        generator=generator(),
    )
    both = by_hand.soft_cross_entropy(sure[1:], sure[:1].softmax(dim=1).expand(2, 2), [1, 1])
    torch.testing.assert_close(terms["balanced/confident"], 2 * both)


def test_a_prior_follows_the_counts_as_they_are_unless_told_otherwise():
    cosines = outputs(12, 4)
    fast = Prior(COUNTS).penalty(cosines, temperature=0.1)
    mean = by_hand.mean_prediction(cosines)
    torch.testing.assert_close(fast, by_hand.prior_penalty(mean, COUNTS, 1.0, "released"))
