import math

import numpy as np
import pytest
import torch

from bacon_gcd.backbone.sources import FreshTokens
from bacon_gcd.backbone.vit import ViT, ViTConfig
from bacon_gcd.config import UserError
from bacon_gcd.data.images import from_arrays
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.methods import build_method, settings_for
from bacon_gcd.methods.base import Group, Recipe, Task
from bacon_gcd.training.loop import NonFiniteError, Trainer, TrainingData
from bacon_gcd.training.optimizers import learning_rate, optimizer_for
from tests.planted import planted
from tests.reference.vit import random_state

SMALL = {"projector_width": 64, "interval": 100}


def small_trainer(problem=None, *, epochs=4, changes=None, method="bacon-s", seed=0, **recipe):
    problem = problem or planted(epochs=epochs)
    settings = settings_for(method, changes=SMALL | (changes or {}))
    torch.manual_seed(seed)
    built = build_method(method, problem.task, problem.backbone, settings)
    recipe = Recipe(epochs=epochs, batch_size=32, learning_rate=0.05, **recipe)
    return Trainer(built, problem.data, recipe, seed=seed)


def everything(trainer):
    tensors, facts = trainer.state()
    return {k: v.clone() for k, v in tensors.items()}, facts


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def stop_after(trainer, steps):
    """Run exactly so many steps of the whole run, then behave as if a signal had come."""
    done = 0

    class Stopper:
        def after_refresh(self, trainer):
            pass

        def after_step(self, trainer):
            nonlocal done
            done += 1
            trainer.stopping = done >= steps

        def after_epoch(self, trainer, means, seconds):
            pass

    trainer.recorder = Stopper()
    trainer.run()


# epochs=4 of 200 makes: warm-up ends after epoch 0, counts are re-estimated every 2 epochs.
@pytest.mark.parametrize("method", ["bacon-s", "bacon-o"])
@pytest.mark.parametrize("where", ["mid epoch", "end of warm-up", "re-estimation", "last step"])
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(method, where):
    whole = small_trainer(method=method)
    per_epoch = len(list(whole.batches(0)))
    steps = {
        "mid epoch": per_epoch + per_epoch // 2,
        "end of warm-up": per_epoch,
        "re-estimation": 2 * per_epoch,
        "last step": 4 * per_epoch - 1,
    }[where]
    assert whole.run()
    first = small_trainer(method=method)
    stop_after(first, steps)
    tensors, facts = everything(first)
    torch.manual_seed(999)  # nothing may depend on the global generator
    second = small_trainer(method=method, seed=0)
    second.restore(tensors, facts)
    assert second.run()
    assert_same(everything(whole)[0], everything(second)[0])


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    runs = []
    for seed in (0, 0, 1):
        trainer = small_trainer(epochs=1, seed=seed)
        trainer.run()
        runs.append(everything(trainer)[0])
    assert_same(runs[0], runs[1])
    assert not torch.equal(runs[0]["method/classifier.weight"], runs[2]["method/classifier.weight"])


def test_a_nan_stops_the_run_with_the_terms_name_and_the_images_and_changes_nothing():
    trainer = small_trainer(epochs=1)
    before = everything(trainer)[0]
    tokens = trainer.data.source._tokens
    tokens[:, 1:] = float("nan")
    with pytest.raises(
        NonFiniteError, match=r"term 'classify/supervised' became nan on images \d+"
    ):
        trainer.run()
    after = everything(trainer)[0]
    names = [n for n in before if n.startswith("method/") and "class_counts" not in n]
    assert_same({n: before[n] for n in names}, {n: after[n] for n in names})


@pytest.mark.parametrize(
    ("recipe", "epoch", "expected"),
    [
        (Recipe(epochs=200), 0, 0.1),
        (Recipe(epochs=200), 100, 1e-4 + (0.1 - 1e-4) / 2),
        (Recipe(epochs=200), 199, 1e-4 + (0.1 - 1e-4) * (1 + math.cos(math.pi * 199 / 200)) / 2),
        (Recipe(epochs=100, schedule="step", milestones=(0.5, 0.9)), 49, 0.1),
        (Recipe(epochs=100, schedule="step", milestones=(0.5, 0.9)), 50, 0.01),
        (Recipe(epochs=100, schedule="step", milestones=(0.5, 0.9)), 95, 0.001),
        (Recipe(schedule="constant"), 150, 0.1),
    ],
)
def test_the_learning_rate_follows_its_schedule(recipe, epoch, expected):
    assert learning_rate(recipe, epoch) == pytest.approx(expected, rel=1e-12)


def test_an_unknown_schedule_or_optimizer_lists_the_choices():
    with pytest.raises(UserError, match="cosine, step, constant"):
        learning_rate(Recipe(schedule="linear"), 0)
    with pytest.raises(UserError, match="sgd, adam"):
        optimizer_for(Group("all", []), Recipe(optimizer="lion"))


@pytest.mark.parametrize("decay_vectors", [True, False])
def test_vectors_are_decayed_only_where_the_group_says_so(decay_vectors):
    matrix, vector = (torch.nn.Parameter(torch.ones(s)) for s in ((2, 2), (2,)))
    group = Group("all", [matrix, vector], decay_vectors=decay_vectors)
    optimizer = optimizer_for(group, Recipe(learning_rate=1.0, weight_decay=0.5))
    (matrix.sum() * 0 + vector.sum() * 0).backward()
    optimizer.step()
    assert matrix.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert vector.tolist() == ([0.5, 0.5] if decay_vectors else [1.0, 1.0])


@pytest.mark.parametrize("labeled", ["none", "all"])
def test_batches_without_labels_or_without_unlabeled_images_train(labeled):
    problem = planted(n_known=6 if labeled == "all" else 4, epochs=2)
    labels = problem.true if labeled == "all" else np.full_like(problem.true, -1)
    data = TrainingData(problem.data.source, labels)
    trainer = small_trainer(problem, epochs=2)
    trainer = Trainer(trainer.method, data, trainer.recipe, seed=0)
    assert trainer.run()
    state = everything(trainer)[0]
    assert all(torch.isfinite(v).all() for v in state.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_fresh_views_resume_to_the_same_bits_whatever_the_number_of_workers(workers):
    """Mid-epoch, with views rendered anew at every step; the reference run has one worker."""
    whole = fresh_trainer(workers=1)
    assert whole.run()
    first = fresh_trainer(workers=workers)
    stop_after(first, len(list(first.batches(0))) + 1)
    second = fresh_trainer(workers=workers)
    second.restore(*everything(first))
    assert second.run()
    assert_same(everything(whole)[0], everything(second)[0])


def fresh_trainer(*, workers):
    rng = np.random.default_rng(0)
    table = from_arrays(rng.integers(0, 256, size=(36, 10, 10, 3), dtype=np.uint8))
    size = {"patch": 4, "dim": 8, "depth": 2}
    config = ViTConfig("tiny", heads=2, pretrained_grid=4, image_size=16, **size)
    state = random_state(grid=4, dtype=torch.float32, **size)
    backbone = ViT.from_state(config, state, image_size=16)
    weak = ViewSettings("weak", 16)
    source = FreshTokens(table, np.arange(36), backbone, weak, workers=workers)
    labels = np.where(np.arange(36) < 12, np.arange(36) % 2, -1)
    task = Task(4, 2, (6, 6), 36, 2)
    torch.manual_seed(0)
    method = build_method("bacon-s", task, backbone, settings_for("bacon-s", changes=SMALL))
    recipe = Recipe(epochs=2, batch_size=12, learning_rate=0.01)
    return Trainer(method, TrainingData(source, labels), recipe, seed=0)
