from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bacon_gcd.backbone.sources import FreshTokens
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.config import UserError
from bacon_gcd.data import demo
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.methods.base import Task
from bacon_gcd.methods.trssl import ADAPTED, NATIVE_SETTINGS
from bacon_gcd.pseudo_labels import harden, sinkhorn, uncertainty_temperatures
from bacon_gcd.training.loop import TrainingData
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted
from tests.small_backbone import use_small_backbone
from tests.training.test_loop import assert_same, everything, stop_after


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


# Mixing pixels instead of tokens.


@pytest.fixture
def photos(monkeypatch, tmp_path):
    """48 images with a tiny ViT: its fresh views, and a problem around them."""
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    backbone = load_backbone(use_small_backbone(monkeypatch), image_size=64)
    table = demo.load()
    rows = np.flatnonzero(np.asarray(table.splits) == "train")[::30][:48]
    true = np.asarray(table.labels)[rows]
    labels = np.where((true < 5) & (np.arange(48) % 2 == 0), true, -1)
    counts = np.bincount(labels[labels >= 0], minlength=5)
    return SimpleNamespace(
        backbone=backbone,
        data=TrainingData(FreshTokens(table, rows, backbone, ViewSettings("weak", 64)), labels),
        task=Task(10, 5, tuple(counts.tolist()), 48, 2),
    )


def test_pixels_are_mixed_before_the_trunk(photos, monkeypatch):
    source, seen, trunk = photos.data.source, [], photos.backbone.trunk
    monkeypatch.setattr(
        photos.backbone, "trunk", lambda images: seen.append(images) or trunk(images)
    )
    positions, views = np.array([3, 8, 8, 40]), ("weak", "weak")
    plain = source.batch(positions, views, seed=1, step=7)
    pixels = torch.cat(seen)  # 2 views of 4 images, view-major
    rows, partners = torch.tensor([0, 5, 2]), torch.tensor([5, 0, 7])
    mixed = source.mixed(positions, views, 0.3, rows, partners, seed=1, step=7)
    torch.testing.assert_close(mixed, trunk(0.3 * pixels[rows] + 0.7 * pixels[partners]))
    assert not torch.allclose(mixed, 0.3 * plain[rows] + 0.7 * plain[partners], atol=1e-3)
    whole = source.mixed(positions, views, 1.0, rows, partners, seed=1, step=7)
    torch.testing.assert_close(whole, plain[rows])


def test_targets_follow_the_mix_whatever_is_mixed():
    """A trunk that changes nothing: mixing before it or after it is the same."""
    problem = planted()
    batch = batch_of("trssl", problem)

    def linear(share, rows, partners):
        return share * batch.tokens[rows] + (1 - share) * batch.tokens[partners]

    usual = trainer_for("trssl", problem).method.terms(batch)
    method = trainer_for("trssl", problem, mix="pixels").method
    assert method.terms(replace(batch, mix_pixels=linear)) == usual
    with pytest.raises(UserError, match="mix 'pixels' needs new views at every step: add"):
        method.terms(batch)


def test_a_run_with_mixed_pixels_is_its_own_and_resumes_bit_equal(photos):
    def trainer(mix):
        return trainer_for("trssl", photos, batch_size=16, mix=mix)

    whole, tokens, first, second = (trainer(m) for m in ("pixels", "tokens", "pixels", "pixels"))
    whole.run()
    tokens.run()
    assert not torch.equal(whole.method.live[1].weight, tokens.method.live[1].weight)
    stop_after(first, 2)
    second.restore(*everything(first))
    second.run()
    assert_same(everything(whole)[0], everything(second)[0])


def test_stored_views_have_no_pixels_to_mix():
    settings = RunSettings(dataset="demo", method="trssl", views="4")
    with pytest.raises(UserError, match=r"views '4': mix 'pixels' .*--views fresh, or .* tokens$"):
        resolve(settings, changes={"mix": "pixels"}, recipe={})
    fresh = resolve(replace(settings, views="fresh"), changes={"mix": "pixels"}, recipe={})
    assert fresh.settings["mix"] == "pixels"
