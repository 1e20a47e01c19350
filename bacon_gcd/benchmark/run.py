"""A run folder from start to end: train, log, checkpoint, resume, score, keep the model."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bacon_gcd.backbone.weights import find
from bacon_gcd.benchmark.evaluation import (
    count_error,
    evaluate,
    quick_scores,
    train_probe,
    unit_features,
)
from bacon_gcd.benchmark.workbench import RunSettings, Workbench, versions, write_config
from bacon_gcd.classes.assign import class_radii
from bacon_gcd.config import UserError
from bacon_gcd.methods.base import Method
from bacon_gcd.model import describe_backbone, novel_names, save_model
from bacon_gcd.system.files import append_line, write_json
from bacon_gcd.system.locks import locked, remove_parts
from bacon_gcd.training.checkpoint import (
    checkpoint_number,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from bacon_gcd.training.loop import Trainer

KEEP = 2  # checkpoints on disk


class RunRecorder:
    """Writes log.jsonl and checkpoints of one run folder; saving never changes a number."""

    def __init__(self, folder: Path, bench: Workbench, *, save_seconds: float = 60.0) -> None:
        self.folder, self.bench, self.save_seconds = folder, bench, save_seconds
        self.last_saved = time.monotonic()
        self.seconds = 0.0  # of training, over all resumes
        self.board = tensorboard_for(folder)

    @property
    def log(self) -> Path:
        """One JSON object per line."""
        return self.folder / "log.jsonl"

    def write(self, **facts: Any) -> None:
        """Append a line to the log."""
        append_line(self.log, json.dumps(facts, allow_nan=False))

    def after_refresh(self, trainer: Trainer) -> None:
        """Log how far the estimated class counts are from the truth, where there is one."""
        counts = trainer.method.class_counts
        if counts is not None:
            error = count_error(
                counts.cpu().numpy(), self.bench.true_counts, self.bench.split.n_known
            )
            self.write(kind="counts", epoch=trainer.position.epoch, error=error)

    def after_step(self, trainer: Trainer) -> None:
        """Save now and then, and when asked to stop."""
        if trainer.stopping or time.monotonic() - self.last_saved >= self.save_seconds:
            self.save(trainer)

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        """Log the mean terms; score the test set when a point of the curve is due."""
        self.seconds += seconds
        done = trainer.position.epoch
        facts: dict[str, Any] = {
            "kind": "epoch",
            "epoch": done,
            "terms": dict(means),
            "loss": sum(means.values()),
            "learning_rate": next(iter(trainer.optimizers.values())).param_groups[0]["lr"],
            "seconds": round(seconds, 3),
            "images_per_second": round(len(self.bench.labels) / max(seconds, 1e-9), 1),
        }
        every = self.bench.settings.evaluate_every
        if every and (done % every == 0 or done == trainer.recipe.epochs):
            facts["test"] = quick_scores(trainer.method, self.bench)
        self.write(**facts)
        if self.board is not None:
            for name, value in means.items():
                self.board.add_scalar(name, value, done)

    def save(self, trainer: Trainer) -> None:
        """A whole checkpoint, with the length of the log it belongs to."""
        tensors, facts = trainer.state()
        facts |= {
            "identity": self.bench.identity(),
            "settings": self.bench.settings.flat(),
            "log_bytes": self.log.stat().st_size if self.log.exists() else 0,
            "seconds": self.seconds,
        }
        position = trainer.position
        number = checkpoint_number(position.epoch, position.step)
        save_checkpoint(self.folder / "checkpoints", number, tensors, facts, keep=KEEP)
        self.last_saved = time.monotonic()

    def resume(self, trainer: Trainer) -> bool:
        """Continue from the newest whole checkpoint; refuse other data and other settings.

        The log is cut to what it was then: nothing in it is said twice.
        """
        newest = newest_checkpoint(self.folder / "checkpoints")
        if newest is None:
            self.log.unlink(missing_ok=True)
            return False
        tensors, facts = load_checkpoint(newest)
        settings = self.bench.settings.flat()
        refuse_changes(
            facts.get("settings", settings), settings, what="settings", folder=self.folder
        )
        refuse_changes(facts["identity"], self.bench.identity(), folder=self.folder)
        trainer.restore(tensors, facts)
        self.seconds = facts["seconds"]
        if self.log.exists():
            os.truncate(self.log, min(facts["log_bytes"], self.log.stat().st_size))
        return True


def refuse_changes(
    recorded: Mapping[str, Any], found: Mapping[str, Any], *, what: str = "the data", folder: Path
) -> None:
    """One line with what differs, if anything does."""
    names = {**recorded, **found}
    changed = [
        f"{k}: {recorded.get(k)} -> {found.get(k)}"
        for k in names
        if recorded.get(k) != found.get(k)
    ]
    if changed:
        raise UserError(f"{folder}: cannot resume, {what} changed: {'; '.join(changed)}")


def train_run(
    bench: Workbench,
    folder: Path,
    *,
    resume: bool = False,
    save_seconds: float = 60.0,
) -> dict[str, Any] | None:
    """Train, score and keep one run; None if a signal stopped it before the end."""
    start_folder(folder, bench.settings, resume=resume)
    with locked(folder / ".lock", busy=f"{folder}: another process is training this run"):
        remove_parts(folder)
        return _train(bench, folder, resume=resume, save_seconds=save_seconds)


def _train(
    bench: Workbench, folder: Path, *, resume: bool, save_seconds: float
) -> dict[str, Any] | None:
    recorder = RunRecorder(folder, bench, save_seconds=save_seconds)
    trainer = bench.new_trainer(recorder)
    method = trainer.method
    if resume:
        recorder.resume(trainer)
    if not trainer.run():
        return None
    recorder.save(trainer)
    method.place_centroids(trainer.probe)
    result = result_of(method, bench, seconds=recorder.seconds)
    write_json(folder / "result.json", result)
    keep_model(folder, method, bench, result)
    return result


def keep_model(folder: Path, method: Method, bench: Workbench, result: Mapping[str, Any]) -> None:
    """The model folder: known classes under their names, novel ones as novel_000, ..."""
    known = bench.class_names[: bench.split.n_known]
    save_model(
        folder / "model",
        method,
        name=bench.settings.method,
        settings=bench.settings.settings,
        backbone=describe_backbone(bench.backbone, tuned=bench.settings.tuned),
        class_names=[*known, *novel_names(bench.split.n_classes - len(known))],
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
        "Novel classes are called novel_000, novel_001, ...; nobody has named them.\n"
    )


def start_folder(folder: Path, settings: RunSettings, *, resume: bool) -> None:
    """A new run folder, or the same one again with the same settings."""
    config = folder / "config.toml"
    if not resume:
        if config.exists():
            raise UserError(f"{folder}: already holds a run; add --resume or name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, settings)
        return
    if not config.exists():
        raise UserError(f"{folder}: no config.toml, so there is no run to resume")
    changed = RunSettings.from_toml(config).differences(settings)
    if changed:
        raise UserError(f"{folder}: cannot resume, settings changed: {'; '.join(changed)}")


def result_of(method: Method, bench: Workbench, *, seconds: float) -> dict[str, Any]:
    """result.json: the blocks of the last epoch, and everything the numbers depend on."""
    s = bench.settings
    counts = method.class_counts
    return {
        **evaluate(method, bench),
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


def tensorboard_for(folder: Path) -> Any | None:
    """A TensorBoard writer where the extra is installed and BACON_TENSORBOARD asks for it."""
    if not os.environ.get("BACON_TENSORBOARD"):
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "TensorBoard is not installed; pip install 'bacon-gcd[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder / "tensorboard"))
