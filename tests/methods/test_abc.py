import pytest
import torch
from torch import nn

from bacon_gcd.heads import CosineClassifier
from bacon_gcd.methods import abc, darp, fixmatch
from bacon_gcd.methods.abc import ABC
from bacon_gcd.methods.darp import DARP
from bacon_gcd.pseudo_labels import balanced_keep_rates
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_keep_rates_fall_to_balance_in_the_course_of_the_run(monkeypatch):
    problem = planted(epochs=10)
    trainer = trainer_for("abc", problem, epochs=10)
    seen = {}

    def spy(logits, batch, *, labeled_rates, rates, **rest):
        seen[int(trainer.method.epoch)] = (labeled_rates, rates)
        return {}

    monkeypatch.setattr("bacon_gcd.methods.abc.balanced_terms", spy)
    for epoch in (0, 5):
        trainer.method.refresh(epoch, trainer.probe)
        trainer.method.terms(batch_of("abc", problem))
    labeled = torch.tensor(problem.task.labeled_counts, dtype=torch.float32)
    full = torch.cat([labeled.min() / labeled, torch.ones(2)])  # novel classes are always kept
    torch.testing.assert_close(seen[0][0], full)
    torch.testing.assert_close(seen[0][1], torch.ones(6))
    torch.testing.assert_close(seen[5][1], 1 - 0.5 * (1 - full))


def test_an_explicit_prior_reaches_the_unlabeled_rates_of_all_classes(monkeypatch):
    counts = torch.tensor([4.0, 8, 16, 32, 64, 4])
    problem = planted(epochs=2)
    trainer = trainer_for("abc", problem, prior="oracle", oracle_counts=counts)
    seen = {}
    monkeypatch.setattr(
        "bacon_gcd.methods.abc.balanced_terms", lambda *a, **k: seen.update(k) or {}
    )
    trainer.method.refresh(1, trainer.probe)
    trainer.method.terms(batch_of("abc", problem))
    torch.testing.assert_close(seen["rates"], balanced_keep_rates(counts, 6, progress=0.5))
    assert (seen["labeled_rates"][4:] == 1).all()


def test_the_balanced_head_answers_and_both_heads_train_the_tail():
    problem = planted()
    method = trainer_for("abc", problem).method
    batch = batch_of("abc", problem)
    tokens = problem.test.test([0, 1])
    expected = method.slow.module["balanced"](method.slow.module["tail"](tokens)) / 0.1
    assert torch.equal(method.classify(tokens), expected)
    for part in ("classify", "balanced"):
        method.zero_grad()
        sum(v for k, v in method.terms(batch).items() if k.startswith(part)).backward()
        assert method.live["tail"].fc2.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("method", "native"), [(ABC, abc.NATIVE_SETTINGS), (DARP, darp.NATIVE_SETTINGS)]
)
def test_what_both_take_from_fixmatch(method, native):
    assert method.views == ("weak", "strong", "strong")
    assert native.shrink == pytest.approx(4e-5)  # 0.02 of Adam's rate 0.002
    assert type(fixmatch.new_classifier(native.classifier, 8, 3)) is nn.Linear
    assert type(fixmatch.new_classifier("cosine", 8, 3)) is CosineClassifier
