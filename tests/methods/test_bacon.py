"""BaCon as a whole: its step against the literal one, its estimate, its degenerate cases."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.cluster import match
from bacon_gcd.config import UserError
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods import METHODS, build_method, settings_for
from bacon_gcd.methods.bacon import PAPER, RELEASED, BaCon, orca_style
from bacon_gcd.methods.base import Recipe, Task
from bacon_gcd.training.loop import Trainer
from bacon_gcd.training.optimizers import optimizer_for
from tests.method_runs import trainer_for
from tests.planted import planted
from tests.reference import bacon_step, timed_step

SMALL = replace(RELEASED, projector_width=64)


def bacon(problem, settings=SMALL, seed=0):
    torch.manual_seed(seed)
    return BaCon(problem.task, problem.backbone, settings)


def one_batch(problem, size=16, seed=0, epoch=0):
    positions = np.random.default_rng(seed).choice(len(problem.true), size, replace=False)
    tokens = problem.data.source.batch(positions, ("weak", "weak"), seed=seed, step=0)
    labels = torch.from_numpy(problem.data.labels[positions])
    return Batch(tokens, labels, torch.from_numpy(positions), seed=seed, epoch=epoch)


@pytest.mark.parametrize("reference", [bacon_step, timed_step])
@pytest.mark.parametrize("epoch", [0, 3, 90])
def test_a_step_is_the_literal_step_of_the_authors(epoch, reference):
    problem = planted(epochs=200)
    ours = bacon(problem, replace(SMALL, counts="expected")).double()
    ours.class_counts.copy_(torch.tensor(problem.counts))
    theirs = copy.deepcopy(ours)
    batch = one_batch(problem, epoch=epoch)
    batch = replace(batch, tokens=batch.tokens.double())
    recipe = Recipe()
    mine = {g.name: optimizer_for(g, recipe) for g in ours.groups()}
    other = {g.name: optimizer_for(g, recipe) for g in theirs.groups()}
    branches = {
        "classify_tail": theirs.classify_tail,
        "classifier_weight": theirs.classifier.weight,
        "contrast_tail": theirs.contrast_tail,
        "mlp": theirs.projector.mlp,
        "wide": theirs.projector.wide,
    }
    for _ in range(2):  # twice, so that momentum counts
        for optimizer in mine.values():
            optimizer.zero_grad()
        sum(ours.terms(batch).values()).backward()
        for optimizer in mine.values():
            optimizer.step()
        reference.step(
            branches,
            other,
            batch.tokens,
            batch.labels,
            theirs.class_counts,
            teacher=0.07 - 0.03 * min(epoch / 29, 1.0),
            power=1.1,
            warm_up=epoch < 1,
        )
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=name)


def test_advice_carries_no_gradient_and_branches_do_not_touch():
    problem = planted(epochs=200)
    method = bacon(problem)
    terms = method.terms(one_batch(problem, epoch=100))
    contrastive = sum(v for k, v in terms.items() if k.startswith("contrast"))
    contrastive.backward(retain_graph=True)
    assert method.classifier.weight.grad is None
    assert all(p.grad is None for p in method.classify_tail.parameters())
    method.zero_grad()
    sum(v for k, v in terms.items() if k.startswith("classify")).backward()
    assert all(p.grad is None for p in method.projector.parameters())


@pytest.mark.parametrize(
    ("epochs", "at", "expected"),
    [
        *((200, 0, 0.07), (200, 29, 0.04), (200, 199, 0.04), (200, 10, 0.07 - 0.03 * 10 / 29)),
        *((30, 4, 0.07 - 0.03 * 4 / 29), (30, 29, 0.04), (3, 0, 0.07), (3, 1, 0.055)),
        *((3, 2, 0.04), (1, 0, 0.07)),
    ],
)
@pytest.mark.parametrize("name", ["bacon-s", "simgcd"])
def test_the_teachers_ramp_has_its_own_length_but_ends_with_the_run(name, epochs, at, expected):
    method = trainer_for(name, planted(epochs=epochs), epochs=epochs).method
    assert method.teacher_temperature(at) == pytest.approx(expected)


@pytest.mark.parametrize("prior", ["contrastive", "classifier", "labeled", "balanced", "oracle"])
def test_each_prior_gives_the_counts_it_promises(prior):
    problem = planted(spread=0.05, epochs=200)
    oracle = torch.tensor(problem.counts).float()
    method = bacon(problem, replace(SMALL, prior=prior, restarts=5))
    method.oracle_counts = oracle if prior == "oracle" else None
    trainer = Trainer(method, problem.data, Recipe(epochs=1), seed=0)
    method.refresh(0, trainer.probe)
    counts = method.class_counts.numpy()
    if prior == "balanced":
        assert np.allclose(counts, len(problem.true) / 6)
    elif prior == "labeled":
        assert counts[:4].tolist() == list(problem.task.labeled_counts)
    else:  # planted clusters: the estimate is the truth, novel classes in order of size
        assert counts[:4].tolist() == problem.counts[:4].tolist()
        novel = counts[4:] if prior == "oracle" else np.sort(counts[4:])
        truth = problem.counts[4:] if prior == "oracle" else np.sort(problem.counts[4:])
        assert novel.tolist() == truth.tolist()


@pytest.mark.parametrize("style", ["S", "O"])
def test_training_on_planted_clusters_finds_them(style):
    problem = planted(spread=0.5, epochs=15)
    settings = SMALL if style == "S" else orca_style(SMALL)
    method = bacon(problem, settings)
    trainer = Trainer(
        method, problem.data, Recipe(epochs=15, batch_size=64, learning_rate=0.02), seed=0
    )
    trainer.run()
    method.place_centroids(trainer.probe)
    ids = method.predictor().predict(problem.test.test(np.arange(len(problem.true_test))))
    assert (ids == problem.true_test)[problem.true_test < 4].mean() > 0.95  # known: by name
    mapping = match(ids, problem.true_test, 6)
    assert (mapping[ids] == problem.true_test).mean() > 0.95


def test_novel_classes_are_numbered_by_size():
    problem = planted(n_classes=8, n_known=3, spread=0.1, ratio=8.0)
    method = bacon(problem)
    method.place_centroids(Trainer(method, problem.data, Recipe(epochs=1), seed=0).probe)
    ids = method.predictor().predict(problem.data.source.test(np.arange(len(problem.true))))
    sizes = np.bincount(ids, minlength=8)
    assert sizes[:3].tolist() == problem.counts[:3].tolist()
    assert sizes[3:].tolist() == sorted(problem.counts[3:], reverse=True)


def test_a_class_of_one_image_and_as_many_known_as_classes_work():
    problem = planted(n_classes=4, n_known=4, epochs=2)
    labels = problem.data.labels.copy()
    labels[np.flatnonzero(labels == 0)[1:]] = -1
    task = Task(4, 4, (1, 5, 5, 5), len(labels), 2)
    method = build_method("bacon-s", task, problem.backbone, SMALL)
    data = replace(problem.data, labels=labels)
    trainer = Trainer(method, data, Recipe(epochs=2, batch_size=16), seed=0)
    trainer.run()
    method.place_centroids(trainer.probe)
    assert torch.isfinite(method.centroids).all()


def test_presets_are_frozen_and_say_what_the_documents_say():
    assert (RELEASED.power, RELEASED.alpha, RELEASED.beta, RELEASED.debias) == (1.1, 0.0, 0.5, 0.5)
    assert (PAPER.power, PAPER.alpha, PAPER.beta, PAPER.debias) == (0.5, 0.8, 0.5, 0.5)
    assert RELEASED.supervised_temperature == 0.07 != PAPER.supervised_temperature == 1.0
    assert METHODS["bacon-o"].presets["released"].settings.style == "O"
    with pytest.raises(AttributeError):
        RELEASED.alpha = 1.0


def test_settings_come_from_text_and_unknown_ones_list_the_choices():
    changed = settings_for(
        "bacon-s", changes={"alpha": "0.8", "sampling": "false", "restarts": "3"}
    )
    assert (changed.alpha, changed.sampling, changed.restarts) == (0.8, False, 3)
    with pytest.raises(UserError, match="'alfa' is not a setting; choose from style, prior"):
        settings_for("bacon-s", changes={"alfa": "1"})
    with pytest.raises(UserError, match="'x' is not a float"):
        settings_for("bacon-s", changes={"alpha": "x"})
    with pytest.raises(UserError, match="released, paper"):
        settings_for("bacon-s", preset="mine", changes={})
    with pytest.raises(UserError, match="bacon-s, bacon-o"):
        settings_for("bacon", changes={})
