import pytest
import torch

from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_the_terms_are_the_printed_total():
    """(1 - a)(distill + e (log C - H(mean))) + a labels, each written out."""
    problem = planted(epochs=200)
    method = trainer_for("simgcd", problem, epochs=200, entropy_weight=4.0).method
    batch = batch_of("simgcd", problem, epoch=29)
    terms = method.terms(batch)
    cosines = method.classifier(method.tail(batch.tokens)).detach()
    student = (cosines / 0.1).log_softmax(1)
    teacher = (cosines / 0.04).softmax(1).roll(len(batch.labels), 0)
    mean = student.exp().mean(0)
    both, known = batch.labels.repeat(2), batch.labeled.repeat(2)
    assert terms["classify/distill"].item() == pytest.approx(
        0.65 * float(-(teacher * student).sum(1).mean()), rel=1e-5
    )
    assert terms["classify/prior"].item() == pytest.approx(
        0.65 * 4 * float((mean * (mean * 6).log()).sum()), rel=1e-4
    )
    assert terms["classify/supervised"].item() == pytest.approx(
        -0.35 * float(student[known].gather(1, both[known, None]).mean()), rel=1e-5
    )


def test_vectors_are_not_decayed():
    (group,) = trainer_for("simgcd").method.groups()
    assert not group.decay_vectors
    assert any(p.ndim == 1 for p in group.parameters)
    assert all(isinstance(p, torch.nn.Parameter) for p in group.parameters)
