"""The log and the checkpoints of a run, and how a run is continued from them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bacon_gcd.benchmark.evaluation import count_error, quick_scores
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.config import UserError
from bacon_gcd.system.files import append_line
from bacon_gcd.system.processes import agreed, is_first, refuse_differences
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
        self.seconds = self.cpu_seconds = 0.0  # of training, over all resumes
        self.cpu_before = time.process_time()
        self.board = tensorboard_for(folder) if is_first() else None

    @property
    def log(self) -> Path:
        """One JSON object per line."""
        return self.folder / "log.jsonl"

    def write(self, **facts: Any) -> None:
        """Append a line to the log; of several processes, the first does."""
        if is_first():
            append_line(self.log, json.dumps(facts, allow_nan=False))

    def start(self) -> None:
        """Training begins now; what was computed before is not part of its time."""
        self.cpu_before = time.process_time()

    def after_refresh(self, trainer: Trainer) -> None:
        """Log how far the estimated class counts are from the truth, where there is one."""
        counts = trainer.method.class_counts
        if counts is not None:
            estimated = counts.cpu().numpy()
            error = count_error(estimated, self.bench.true_counts, self.bench.split.n_known)
            rounded = [round(float(count), 1) for count in estimated]
            self.write(kind="counts", epoch=trainer.position.epoch, error=error, estimated=rounded)

    def after_step(self, trainer: Trainer) -> None:
        """Save now and then, and when asked to stop."""
        if trainer.stopping or time.monotonic() - self.last_saved >= self.save_seconds:
            self.save(trainer)

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        """Log the mean terms; score the test set when a point of the curve is due."""
        self.seconds += seconds
        self.cpu_seconds += time.process_time() - self.cpu_before
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
        self.cpu_before = time.process_time()

    def save(self, trainer: Trainer) -> None:
        """A whole checkpoint, with the length of the log it belongs to; the first process does."""
        if not is_first():
            return
        tensors, facts = trainer.state()
        facts |= {
            "identity": self.bench.identity(),
            "settings": self.bench.settings.flat(),
            "log_bytes": self.log.stat().st_size if self.log.exists() else 0,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        }
        position = trainer.position
        number = checkpoint_number(position.epoch, position.step)
        save_checkpoint(self.folder / "checkpoints", number, tensors, facts, keep=KEEP)
        self.last_saved = time.monotonic()

    def resume(self, trainer: Trainer) -> bool:
        """Continue from the newest whole checkpoint; refuse other data and other settings.

        The log is cut to what it was then: nothing in it is said twice.
        """
        with agreed():
            newest = newest_checkpoint(self.folder / "checkpoints")
        found = None if newest is None else newest.name
        refuse_differences("a newest checkpoint", found, "all must see the same folder")
        if newest is None:
            if is_first():
                self.log.unlink(missing_ok=True)
            return False
        tensors, facts = load_checkpoint(newest)
        settings = self.bench.settings.flat()
        refuse_changes(
            facts.get("settings", settings), settings, what="settings", folder=self.folder
        )
        refuse_changes(facts["identity"], self.bench.identity(), folder=self.folder)
        trainer.restore(tensors, facts)
        self.seconds, self.cpu_seconds = facts["seconds"], facts.get("cpu_seconds", 0.0)
        if is_first() and self.log.exists():
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
