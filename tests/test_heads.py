"""Heads: cosines, the wide layer in both forms, prototypes, the slow copy."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bacon_gcd import heads
from tests.reference import heads as by_hand


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def small_projector(width=40, seed=0):
    torch.manual_seed(seed)
    return heads.Projector(6, hidden=16, bottleneck=8, width=width).double()


def value_and_gradients(projector, features):
    leaf = features.clone().requires_grad_()
    cosines = projector.cosines(leaf)
    mixed = (cosines * torch.randn(cosines.shape, generator=generator(1)).double()).sum()
    return cosines, torch.autograd.grad(mixed, [leaf, *projector.parameters()])


def test_the_classifier_gives_cosines_whatever_the_lengths():
    head = heads.CosineClassifier(5, 3)
    features = 7 * torch.randn(4, 5, generator=generator())
    cosines = head(features)
    for i in range(4):
        for c in range(3):
            wanted = F.cosine_similarity(features[i], head.weight[c], dim=0)
            assert cosines[i, c].item() == pytest.approx(wanted.item(), abs=1e-6)
    with torch.no_grad():
        head.weight.mul_(3.0)
    torch.testing.assert_close(head(2 * features), cosines)
    assert [tuple(p.shape) for p in head.parameters()] == [(3, 5)]


def test_classifier_and_wide_layer_start_like_a_linear_layer():
    bound = 1 / math.sqrt(64)
    for weight in (heads.CosineClassifier(64, 500).weight, small_wide(64, 500)):
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def small_wide(bottleneck, width):
    return heads.Projector(4, hidden=8, bottleneck=bottleneck, width=width).wide


def test_the_projector_starts_narrow_and_without_bias():
    mlp = heads.Projector(64, hidden=64, bottleneck=64, width=None).mlp
    for layer in (mlp[0], mlp[2], mlp[4]):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert (layer.bias == 0).all()
    assert isinstance(mlp[1], nn.GELU)


def test_the_default_projector_has_the_size_of_the_paper():
    with torch.device("meta"):
        projector = heads.Projector(768)
    trainable = sum(p.numel() for p in projector.parameters())
    assert trainable == 768 * 2048 + 2048**2 + 2048 * 256 + 2 * 2048 + 256 + 256 * 65536


@pytest.mark.parametrize("width", [40, None])
def test_projections_are_unit_vectors_and_their_products_the_cosines(width):
    projector = small_projector(width)
    features = torch.randn(5, 6, generator=generator(), dtype=torch.float64)
    z = projector(features)
    assert z.shape == (5, width or 8)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(projector.cosines(features), z @ z.T)


@pytest.mark.parametrize("gram_rows", [0, 1000])
def test_cosines_are_those_of_the_full_width_projections(gram_rows, monkeypatch):
    monkeypatch.setattr(heads, "GRAM_ROWS", gram_rows)
    projector = small_projector()
    features = torch.randn(5, 6, generator=generator(), dtype=torch.float64)
    u = F.normalize(projector.mlp(features), dim=1)
    slow = by_hand.projection_cosines(u, projector.wide)
    torch.testing.assert_close(projector.cosines(features), slow)


def test_both_forms_agree_in_value_and_every_gradient(monkeypatch):
    monkeypatch.setattr(heads._UnitRowGram, "ROWS", 16)  # several chunks, the last one short
    monkeypatch.setattr(heads._UnitRowGram, "COLUMNS", 3)
    projector = small_projector()
    features = torch.randn(9, 6, generator=generator(), dtype=torch.float64)
    monkeypatch.setattr(heads, "GRAM_ROWS", 0)
    gram, gram_gradients = value_and_gradients(projector, features)
    monkeypatch.setattr(heads, "GRAM_ROWS", 1000)
    direct, direct_gradients = value_and_gradients(projector, features)
    torch.testing.assert_close(gram, direct)
    assert len(gram_gradients) == 8
    torch.testing.assert_close(gram_gradients, direct_gradients)


def test_the_gram_form_is_chosen_for_many_rows_only(monkeypatch):
    used = []
    plain = heads.unit_row_gram
    monkeypatch.setattr(heads, "unit_row_gram", lambda w: used.append(1) or plain(w))
    projector = small_projector()
    projector.cosines(torch.randn(heads.GRAM_ROWS - 1, 6).double())
    assert not used
    projector.cosines(torch.randn(heads.GRAM_ROWS, 6).double())
    assert used


def test_the_gram_form_is_exact_enough_in_single_precision():
    torch.manual_seed(0)
    projector = heads.Projector(16, hidden=32, bottleneck=32, width=4096)
    features = torch.randn(80, 16, generator=generator())
    with torch.no_grad():
        gram = projector.cosines(features)
        z = projector.double()(features.double())
    assert (gram.double() - z @ z.T).abs().max() < 2e-6


def test_the_gradient_of_the_gram_matrix_passes_the_numeric_check(monkeypatch):
    monkeypatch.setattr(heads._UnitRowGram, "ROWS", 3)
    weight = torch.randn(7, 4, generator=generator(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(heads.unit_row_gram, weight)


def test_prototypes_move_one_member_after_the_other():
    prototypes = heads.Prototypes(4, 6, generator=generator())
    torch.testing.assert_close(prototypes.vectors.norm(dim=1), torch.ones(4))
    z = F.normalize(torch.randn(12, 6, generator=generator(1)), dim=1)
    labels = torch.tensor([0, 1, 0, 0, 3, 1, 0, 3, 0, 0, 1, 0])
    order = torch.randperm(12, generator=generator(2))
    wanted = by_hand.move_prototypes(prototypes.vectors, z, labels, order, 0.9)
    untouched = prototypes.vectors[2].clone()
    prototypes.update(z, labels, generator=generator(2))
    torch.testing.assert_close(prototypes.vectors, wanted)
    assert torch.equal(prototypes.vectors[2], untouched)
    torch.testing.assert_close(prototypes.scores(z), z @ wanted.T)


def test_no_members_leave_the_prototypes_alone():
    prototypes = heads.Prototypes(2, 3, generator=generator())
    before = prototypes.vectors.clone()
    prototypes.update(torch.empty(0, 3), torch.empty(0, dtype=torch.long), generator=generator())
    assert torch.equal(prototypes.vectors, before)
    assert list(prototypes.state_dict()) == ["vectors"]


def test_the_small_projector_gives_unit_vectors():
    z = heads.SmallProjector(5)(torch.randn(3, 5, generator=generator()))
    assert z.shape == (3, 128)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(3))


def test_a_slow_copy_is_quick_at_first_and_slow_in_the_end():
    assert heads.early_decay(1, final=0.999) == pytest.approx(2 / 11)
    assert heads.early_decay(90, final=0.999) == pytest.approx(0.91)
    assert heads.early_decay(10**6, final=0.999) == 0.999


def test_the_slow_copy_counts_its_steps_and_keeps_the_count():
    live = nn.Linear(1, 1, bias=False)
    slow = heads.Ema(live)
    start = slow.module.weight.clone()
    with torch.no_grad():
        live.weight.add_(1.0)
    slow.update(live)
    torch.testing.assert_close(slow.module.weight, start + 9 / 11)
    again = heads.Ema(live)
    again.load_state_dict(slow.state_dict())
    for copied in (slow, again):
        copied.update(live)
        assert int(copied.steps) == 2
        torch.testing.assert_close(copied.module.weight, start + 1 - (2 / 11) * (3 / 12))


def test_the_slow_copy_follows_and_shrinks_the_live_weights():
    live = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    live[1].weight.requires_grad_(False)
    slow = heads.Ema(live, decay=0.1)  # below what the first step allows: this one holds
    assert not any(p.requires_grad for p in slow.parameters())
    start, before = live[0].weight.detach().clone(), live[1].weight.detach().clone()
    with torch.no_grad():
        live[0].weight.add_(1.0)
        live[1].running_mean.fill_(5.0)
    moved = live[0].weight.detach().clone()
    slow.update(live, shrink=0.25)
    torch.testing.assert_close(slow.module[0].weight, 0.1 * start + 0.9 * moved)
    torch.testing.assert_close(live[0].weight.detach(), 0.75 * moved)
    assert torch.equal(live[1].weight, before)  # frozen weights do not shrink
    assert (slow.module[1].running_mean == 5).all()
    x = torch.ones(3, 2)
    assert torch.equal(slow.eval()(x), slow.module(x))
