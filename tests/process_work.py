"""What processes do in tests/training/test_distributed.py; forked ones have it imported."""

import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from bacon_gcd import cli, points
from bacon_gcd.backbone import bank, catalogue, embed, filling
from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.vit import ViTConfig
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.benchmark import run as _  # noqa: F401  imported once for all forked processes
from bacon_gcd.cluster import kmeans
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import inputs, pipeline, predict  # noqa: F401
from bacon_gcd.methods import METHODS, recipe_for
from bacon_gcd.system import processes
from bacon_gcd.system.launch import restarted
from bacon_gcd.training.loop import Trainer
from bacon_gcd.training.start import new_trainer
from tests.method_runs import small_settings
from tests.planted import planted
from tests.small_backbone import SIZE


class Curve:
    """The loss of every step."""

    def __init__(self):
        self.losses = []

    def after_refresh(self, trainer):
        pass

    def after_step(self, trainer):
        self.losses.append(sum(trainer.position.sums.values()))

    def after_epoch(self, trainer, means, seconds):
        pass


def trained(name, *, batch_size=16):
    """The loss curve and the final answers of a method on a planted set, in float64."""
    problem, curve = planted(n_max=24, epochs=2), Curve()
    recipe = recipe_for(name, changes={"epochs": 2, "batch_size": batch_size})
    trainer = new_trainer(
        name,
        small_settings(name),
        recipe,
        problem.data.source,
        problem.data.labels,
        problem.backbone,
        n_classes=problem.task.n_classes,
        n_known=problem.task.n_known,
        seed=0,
        device=torch.device("cpu"),
        recorder=curve,
    )
    trainer.method.double()
    trainer.run()
    trainer.method.place_centroids(trainer.probe)
    counts = trainer.method.class_counts
    with processes.alone():
        tokens = problem.test.test(np.arange(len(problem.true_test)))
        answers = trainer.method.predictor().predict(tokens)
    return {
        "losses": curve.losses,
        "answers": answers.tolist(),
        "counts": None if counts is None else counts.tolist(),
        "centroids": trainer.method.centroids.double().sum(dim=1).tolist(),
    }


def clustered():
    """k-means with so few rows to share that it is shared: plain and with labels."""
    points.SHARED_ROWS = 10
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(301, 5)).astype(np.float32))
    labels = np.where(np.arange(301) < 40, np.arange(301) % 3, -1)
    found = [kmeans(rows, 6, labels=own, n_init=2, seed=0) for own in (None, labels)]
    return [[each.labels.tolist(), each.inertia] for each in found]


def share_work():
    """Every method, and k-means: prints what this process has computed."""
    processes.join(torch.device("cpu"))
    results = {name: trained(name) for name in METHODS}
    results["kmeans on shared rows"] = clustered()
    json.dump(results, sys.stdout)


def use_small_backbone():
    """A tiny ViT in place of a catalogue entry; its weights are in the cache already."""
    name = "resnet18.pypi_in1k"
    config = ViTConfig(name, pretrained_grid=4, image_size=64, heads=2, **SIZE)
    entry = catalogue.Weights(name, "nothing", False, "none", "none", 64, vit=config)
    catalogue.CATALOGUE[name] = entry
    return name


def fill_bank():
    """Prints how many views were computed by all, and how many images this process opened."""
    opened, render = [], filling.render_images

    def count(table, rows, *more, **others):
        opened.extend(rows.tolist())
        return render(table, rows, *more, **others)

    filling.render_images = count
    processes.join(torch.device("cpu"))
    table, folder = read_images(sys.argv[1]), Path(sys.argv[2])
    backbone, rows = load_backbone(use_small_backbone()), np.arange(len(table))
    filled = build_bank(table, rows, backbone, n_views=2, chunk=7, folder=folder, workers=1)
    print(filled.n_computed, len(opened))


def bacon():
    """The command, with the tiny backbone."""
    use_small_backbone()
    cli.main()


def bacon_that_is_killed():
    """The command; process 1 is killed at the step that KILL_AT names, unless started again."""
    update, kill_at = Trainer.update, int(os.environ["KILL_AT"])

    def killed(trainer, batch):
        here = batch.epoch * 100 + batch.step == kill_at
        if here and os.environ["RANK"] == "1" and not restarted():
            os.kill(os.getpid(), signal.SIGKILL)
        return update(trainer, batch)

    Trainer.update = killed
    bacon()


def bacon_of_another_version():
    """The command; process 1 has another version of the package."""
    if os.environ["RANK"] == "1":
        sys.modules["bacon_gcd.cli.app"].__version__ = "0.0.1"
    bacon()


def bacon_beside_a_writer():
    """The command, while something else holds the lock of every bank."""
    seen = bank.only_writer

    @contextmanager
    def held(folder, *, wait=True):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / bank.LOCK, is_singleton=False), seen(folder, wait=wait):
            yield

    bank.only_writer = held
    bacon()


def bacon_without_images():
    """The command; process 1 does not see the images."""
    if os.environ["RANK"] == "1":
        for module in (inputs, embed, predict):
            module.read_images = lambda source, *more: read_images(f"{source}-elsewhere", *more)
    bacon()


def bacon_with_fewer_images():
    """The command; process 1 does not see the last image."""
    if os.environ["RANK"] == "1":
        for module in (inputs, embed, predict):
            module.read_images = lambda source, *more: without_the_last(read_images(source, *more))
    bacon()


def without_the_last(table):
    return table.take(np.arange(len(table) - 1))


if __name__ == "__main__":
    bacon_that_is_killed()
