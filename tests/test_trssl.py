import pytest
import torch

from bacon_gcd.methods.trssl import ADAPTED, NATIVE_SETTINGS
from bacon_gcd.pseudo_labels import harden, sinkhorn, uncertainty_temperatures
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_three_rounds_are_three():
    """Three are far from the limit: more rounds give other pseudo-labels."""
    assert ADAPTED.rounds == NATIVE_SETTINGS.rounds == 3
    problem = planted()
    method, batch = trainer_for("trssl", problem).method, batch_of("trssl", problem)
    cosines = method.live(batch.view(0)).detach()
    three, many = (sinkhorn(cosines, torch.ones(6), epsilon=0.05, rounds=n) for n in (3, 50))
    assert (three - many).abs().max() > 0.05
    assert torch.equal(method.pseudo(batch.view(0)), harden(three, n_known=4))


def test_each_view_learns_what_the_other_is_taken_for():
    problem = planted()
    method = trainer_for("trssl", problem, mixup=0.0).method
    batch = batch_of("trssl", problem)
    free = ~batch.labeled
    first, second = batch.view(0), batch.view(1)
    logits = {
        v: (method.live(t) / 0.1).log_softmax(1).detach() for v, t in ((1, first), (2, second))
    }
    losses = torch.cat(
        [
            -logits[1][batch.labeled].gather(1, batch.labels[batch.labeled, None]).squeeze(1),
            -(method.pseudo(second[free]) * logits[1][free]).sum(1),
            -(method.pseudo(first[free]) * logits[2][free]).sum(1),
        ]
    )
    torch.testing.assert_close(method.terms(batch)["classify/mixed"].detach(), losses.mean())


def test_temperatures_of_unlabeled_images_follow_their_views_from_the_second_epoch_on():
    trainer = trainer_for("trssl")
    method, free = trainer.method, torch.from_numpy(trainer.data.labels < 0)
    method.refresh(0, trainer.probe)
    assert (method.temperatures == 0.1).all()
    method.refresh(1, trainer.probe)
    assert (method.temperatures[~free] == 0.1).all()
    assert method.temperatures.max() == 1.0
    views = [trainer.probe.run(lambda t: method.classify(t).softmax(1), v) for v in (1, 2, 3)]
    expected = uncertainty_temperatures(torch.stack(views)[:, free])
    torch.testing.assert_close(method.temperatures[free], expected)


def test_a_long_tailed_prior_gives_the_largest_share_to_the_class_with_most_mass():
    problem = planted()
    batch = batch_of("trssl", problem)
    masses = {}
    for prior in ("uniform", "long-tail"):
        method = trainer_for("trssl", problem, prior=prior, rounds=50, hard=2.0).method
        masses[prior] = method.pseudo(batch.view(0)).mean(0)
    assert masses["uniform"].tolist() == pytest.approx([1 / 6] * 6, abs=1e-3)
    method = trainer_for("trssl", problem).method
    mass = (method.live(batch.view(0)) / 0.05).exp().sum(0)
    assert masses["long-tail"].argmax() == mass.argmax()
    assert masses["long-tail"].max() > 0.3


def test_the_slow_copy_answers():
    problem = planted()
    trainer = trainer_for("trssl", problem)
    tokens = problem.test.test([0, 1, 2])
    trainer.run()
    with torch.no_grad():
        slow, live = trainer.method.classify(tokens), trainer.method.live(tokens) / 0.1
    assert not torch.allclose(slow, live)
    assert torch.allclose(slow, trainer.method.slow.module(tokens) / 0.1)
