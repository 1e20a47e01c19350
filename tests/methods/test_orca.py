import pytest
import torch

from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_the_margin_is_what_confidence_lacks_on_unlabeled_images():
    trainer = trainer_for("orca")
    trainer.method.refresh(0, trainer.probe)
    free = trainer.data.labels < 0
    sure = trainer.probe.run(lambda t: trainer.method.classify(t).softmax(1)).amax(1)[free]
    lacking = 1 - float(sure.mean())
    assert float(trainer.method.margin) == pytest.approx(min(lacking, 0.5))
    capped = trainer_for("orca", margin_cap=0.01)
    capped.method.refresh(0, capped.probe)
    assert float(capped.method.margin) == pytest.approx(0.01)


def test_the_margin_lowers_the_loss_of_labeled_rows_only():
    problem = planted()
    method, batch = trainer_for("orca", problem).method, batch_of("orca", problem)
    terms = {}
    for margin in (0.0, 0.5):
        method.margin.fill_(margin)
        terms[margin] = method.terms(batch)
    assert terms[0.5]["classify/supervised"] < terms[0.0]["classify/supervised"]
    for name in ("classify/pairs", "classify/prior"):
        assert torch.equal(terms[0.5][name], terms[0.0][name])


def test_the_entropy_is_that_of_view_1():
    problem = planted()
    method, batch = trainer_for("orca", problem).method, batch_of("orca", problem)
    mean = method.classify(batch.view(0)).softmax(1).mean(0)
    expected = (mean * (mean * 6).log()).sum()  # log C - H
    torch.testing.assert_close(method.terms(batch)["classify/prior"], expected)
