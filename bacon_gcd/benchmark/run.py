"""A run from start to end: train, score, and write everything that is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bacon_gcd.backbone.catalogue import find
from bacon_gcd.benchmark.evaluation import evaluate, frozen_kmeans, train_probe, unit_features
from bacon_gcd.benchmark.predictions import write_predictions
from bacon_gcd.benchmark.recorder import RunRecorder
from bacon_gcd.benchmark.report import write_run_report
from bacon_gcd.benchmark.settings import start_folder
from bacon_gcd.benchmark.workbench import Workbench, versions
from bacon_gcd.classes.assign import class_radii
from bacon_gcd.methods.base import Method
from bacon_gcd.model import describe_backbone, save_model
from bacon_gcd.system.files import write_json
from bacon_gcd.system.locks import locked, remove_parts
from bacon_gcd.system.processes import agreed, alone, is_first, refuse_differences


class Seconds(NamedTuple):
    """How long a training took, over all resumes."""

    train: float
    cpu: float
    """Of all threads of the process: what other work on the machine hardly changes."""


def train_run(
    bench: Workbench,
    folder: Path,
    *,
    resume: bool = False,
    save_seconds: float = 60.0,
) -> dict[str, Any] | None:
    """Train, score and keep one run; None if a signal stopped it before the end."""
    refuse_differences("data or settings", bench.facts(), "all must see the same files")
    with ExitStack() as held:
        with agreed():
            if is_first():  # of several processes, one writes
                start_folder(folder, bench.settings, resume=resume)
                busy = f"{folder}: another process is training this run"
                held.enter_context(locked(folder / ".lock", busy=busy))
                remove_parts(folder)
        return _train(bench, folder, resume=resume, save_seconds=save_seconds)


def _train(
    bench: Workbench, folder: Path, *, resume: bool, save_seconds: float
) -> dict[str, Any] | None:
    trained = trained_method(bench, folder, resume=resume, save_seconds=save_seconds)
    if trained is None:
        return None
    method, seconds = trained
    result = result_of(method, bench, seconds=seconds.train)
    if is_first():
        with alone():
            _keep(folder, method, bench, result)
    return result


def _keep(folder: Path, method: Method, bench: Workbench, result: Mapping[str, Any]) -> None:
    """Everything that is kept of a run besides log and checkpoints."""
    write_json(folder / "result.json", result)
    keep_model(folder, method, bench, result)
    write_predictions(folder, method, bench)
    write_run_report(folder, method, bench, result)


def trained_method(
    bench: Workbench, folder: Path, *, resume: bool, save_seconds: float
) -> tuple[Method, Seconds] | None:
    """The method at its last epoch and how long it was trained; None if it was stopped."""
    recorder = RunRecorder(folder, bench, save_seconds=save_seconds)
    trainer = bench.new_trainer(recorder)
    if resume:
        recorder.resume(trainer)
    recorder.start()
    if not trainer.run():
        return None
    recorder.save(trainer)
    trainer.method.place_centroids(trainer.probe)
    return trainer.method, Seconds(recorder.seconds, recorder.cpu_seconds)


def keep_model(folder: Path, method: Method, bench: Workbench, result: Mapping[str, Any]) -> None:
    """The model folder: known classes under their names, novel ones as novel_000, ..."""
    save_model(
        folder / "model",
        method,
        name=bench.settings.method,
        settings=bench.settings.settings,
        backbone=describe_backbone(bench.backbone, tuned=bench.settings.tuned),
        class_names=bench.found_names,
        card=model_card(bench, result),
        radii=class_radii(
            unit_features(method, train_probe(bench)), bench.labels, method.centroids
        ),
    )


def model_card(bench: Workbench, result: Mapping[str, Any]) -> str:
    """What the model is, what it was scored with, and its limits, in a page."""
    s, best = bench.settings, result[result["headline"]]
    seen = "; its backbone was trained with labels that cover many of the novel classes"
    numbers = ", ".join(f"{part} {best[part]:.1f}" for part in ("all", "old", "new") if best[part])
    return (
        f"# {s.method} on {s.dataset}\n\n"
        f"Preset {s.preset}, backbone {s.backbone}, {s.recipe.epochs} epochs, seed {s.seed}.\n\n"
        f"Accuracy in percent at the last epoch ({result['headline']}): {numbers}"
        f"{seen if result['backbone']['trained_with_labels'] else ''}.\n\n"
        f"{bench.split.n_known} known classes of {bench.split.n_classes}. "
        f"Protocol: {result['identity']['protocol']}; split {result['identity']['split']}.\n\n"
        "Novel classes are called novel_000, novel_001, ...; they have no other names yet.\n"
    )


def result_of(method: Method, bench: Workbench, *, seconds: float) -> dict[str, Any]:
    """result.json: the blocks of the last epoch, and everything the numbers depend on."""
    blocks = evaluate(method, bench) | {"frozen_kmeans": frozen_kmeans(bench)}
    return blocks | facts_of(method, bench, seconds=seconds)


def facts_of(method: Method, bench: Workbench, *, seconds: float) -> dict[str, Any]:
    """Everything that scores depend on, and what the method estimated."""
    s = bench.settings
    counts = method.class_counts
    return {
        "headline": method.headline,
        "dataset": s.dataset,
        "method": s.method,
        "preset": s.preset,
        "seed": s.seed,
        "epoch": s.recipe.epochs,
        "identity": bench.identity(),
        "backbone": {
            "name": s.backbone,
            "trained_with_labels": find(s.backbone).supervised,
            "image_size": s.image_size,
        },
        "class_counts": {
            "estimated": None if counts is None else np.round(counts.cpu().numpy(), 3).tolist(),
            "true": bench.true_counts.tolist(),
        },
        "versions": versions(),
        "seconds": {"train": round(seconds, 1)},
    }
