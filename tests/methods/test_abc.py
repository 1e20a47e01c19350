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


def test_keep_rates_fall_to_balance_in_the_course_of_the_run():
    problem = planted(epochs=10)
    method = trainer_for("abc", problem, epochs=10).method
    seen = {epoch: method.rates(epoch) for epoch in (0, 5)}
    labeled = torch.tensor(problem.task.labeled_counts, dtype=torch.float32)
    full = torch.cat([labeled.min() / labeled, torch.ones(2)])  # novel classes are always kept
    torch.testing.assert_close(seen[0][0], full)
    torch.testing.assert_close(seen[0][1], torch.ones(6))
    torch.testing.assert_close(seen[5][1], 1 - 0.5 * (1 - full))


def test_an_explicit_prior_reaches_the_unlabeled_rates_of_all_classes():
    counts = torch.tensor([4.0, 8, 16, 32, 64, 4])
    problem = planted(epochs=2)
    method = trainer_for("abc", problem, prior="oracle", oracle_counts=counts).method
    labeled_rates, rates = method.rates(1)
    torch.testing.assert_close(rates, balanced_keep_rates(counts, 6, progress=0.5))
    assert (labeled_rates[4:] == 1).all()


def test_the_rates_decide_who_teaches_the_balanced_head(monkeypatch):
    problem = planted(epochs=10)
    method = trainer_for("abc", problem, epochs=10).method
    seen = {}
    for name in ("classify_balanced", "agree_balanced"):
        spy = lambda *a, name=name, rates, **k: seen.update({name: rates}) or torch.zeros(())  # noqa: E731
        monkeypatch.setattr(f"bacon_gcd.methods.abc.{name}", spy)
    method.terms(batch_of("abc", problem, epoch=5))
    torch.testing.assert_close(tuple(seen.values()), method.rates(5))


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
