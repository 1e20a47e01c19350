import dataclasses

import numpy as np
import torch

from bacon_gcd.methods import build_method, recipe_for, settings_for
from bacon_gcd.methods.base import Task
from bacon_gcd.training.loop import Trainer
from bacon_gcd.training.start import new_trainer
from tests.planted import planted
from tests.training.test_loop import assert_same, everything


def start(problem, **others):
    settings = settings_for("bacon-s", changes={"projector_width": 64})
    recipe = recipe_for("bacon-s", changes={"epochs": 1, "batch_size": 32})
    given = {"n_classes": 6, "n_known": 4, "seed": 3} | others
    data = problem.data
    return new_trainer(
        "bacon-s", settings, recipe, data.source, data.labels, problem.backbone, **given
    )


def test_a_new_trainer_is_method_task_and_data_put_together_by_hand():
    problem = planted(epochs=1)
    ours = start(problem)
    torch.manual_seed(3)
    settings = settings_for("bacon-s", changes={"projector_width": 64})
    method = build_method("bacon-s", problem.task, problem.backbone, settings)
    by_hand = Trainer(method, problem.data, ours.recipe, seed=3)
    assert ours.method.task == problem.task
    for trainer in (ours, by_hand):
        trainer.run()
    assert_same(everything(ours)[0], everything(by_hand)[0])


def test_the_caller_s_random_numbers_are_left_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    start(planted(epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_the_method_and_its_batches_are_on_the_device_that_is_given():
    trainer = start(planted(epochs=1), device=torch.device("meta"))
    assert {p.device.type for p in trainer.method.parameters()} == {"meta"}
    batch = trainer.batch(np.arange(8))
    assert {x.device.type for x in (batch.tokens, batch.labels, batch.image_ids)} == {"meta"}


def test_a_batch_says_where_in_the_run_it_is():
    trainer = start(planted(epochs=1))
    trainer.position = dataclasses.replace(trainer.position, epoch=5, step=2)
    batch = trainer.batch(np.arange(8))
    assert (batch.epoch, batch.step) == (5, 2)


def test_a_task_counts_the_labels_of_every_known_class_also_of_one_without_any():
    task = Task.from_labels(np.array([0, -1, 2, 2]), n_classes=5, n_known=4, n_epochs=9)
    assert task == Task(5, 4, (1, 0, 2, 0), 4, 9)
