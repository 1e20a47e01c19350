"""One loop for all methods: step, log, refresh, save, resume. No method's name appears in it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.sources import TokenSource
from bacon_gcd.backbone.vit import native_bfloat16
from bacon_gcd.config import UserError
from bacon_gcd.data.batches import Batch, sample_epoch
from bacon_gcd.methods.base import Method, Recipe
from bacon_gcd.methods.stored import load_state
from bacon_gcd.system.memory import keep_freed_memory
from bacon_gcd.system.processes import agreed, any_says
from bacon_gcd.system.progress import Advance, no_progress, progress
from bacon_gcd.training.checkpoint import optimizer_tensors, restore_optimizers
from bacon_gcd.training.distributed import average_gradients, check_batch
from bacon_gcd.training.embed import TrainProbe as TrainProbe
from bacon_gcd.training.loader import Loader
from bacon_gcd.training.optimizers import optimizer_for, set_learning_rate

IntArray = npt.NDArray[np.int64]


class NonFiniteError(UserError):
    """A term became NaN or infinite; nothing was updated with it."""


@dataclass(frozen=True)
class TrainingData:
    """The training images as a method meets them: tokens and visible labels."""

    source: TokenSource
    labels: IntArray
    """(N,) class ids, -1 = unlabeled."""


@dataclass
class Position:
    """Where a run is: the next step to do, and the sums of this epoch's terms so far."""

    epoch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)


class Recorder(Protocol):
    """What happens around the mathematics: logs and checkpoints."""

    def after_refresh(self, trainer: Trainer) -> None:
        """The method has looked at the whole training set."""

    def after_step(self, trainer: Trainer) -> None:
        """One step is done; `trainer.position` names the next."""

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        """One epoch is done."""


class Silent:
    """A recorder that keeps nothing."""

    def after_refresh(self, trainer: Trainer) -> None:
        """Nothing."""

    def after_step(self, trainer: Trainer) -> None:
        """Nothing."""

    def after_epoch(self, trainer: Trainer, means: Mapping[str, float], seconds: float) -> None:
        """Nothing."""


class Trainer:
    """A method, its data and its optimizers, at one position of the run.

    device: where the method is trained; torch's default device unless given.

    All randomness comes from (seed, epoch, step), so the position is the whole generator state and
    a resumed run is bit-equal to one that never stopped.
    """

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        recipe: Recipe,
        *,
        seed: int,
        bfloat16: bool = False,
        device: torch.device | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.device = device or torch.get_default_device()
        self.method, self.data, self.recipe = method.to(self.device), data, recipe
        self.seed = seed
        # GPUs compute bfloat16 several times as fast; the parameters stay in float32.
        self.bfloat16 = bfloat16 or (self.device.type == "cuda" and native_bfloat16(self.device))
        self.recorder: Recorder = recorder or Silent()
        self.position = Position()
        self.optimizers = {g.name: optimizer_for(g, recipe) for g in method.groups()}
        self.probe = TrainProbe(data.source, data.labels, seed, self.device)
        self.loader = Loader(data.source, data.labels, method.views, seed, self.device)
        self.advance: Advance = no_progress
        self.asked_to_stop = self.stopping = False
        with agreed():
            check_batch(self.batch_size)

    def run(self) -> bool:
        """Train to the end, or until a signal asks to stop; True if the end was reached."""
        keep_freed_memory()
        total = self.recipe.epochs - self.position.epoch
        images = total * self.steps_per_epoch * self.batch_size
        with stop_after_step(self), progress("training", images, unit="images") as self.advance:
            while self.position.epoch < self.recipe.epochs and not self.stopping:
                self.run_epoch()
        return self.position.epoch >= self.recipe.epochs

    def run_epoch(self) -> None:
        """The rest of the current epoch."""
        start, epoch = time.monotonic(), self.position.epoch
        if self.position.step == 0:  # otherwise its outcome is part of the restored state
            self.method.refresh(epoch, self.probe)
            self.recorder.after_refresh(self)
        set_learning_rate(self.optimizers, self.recipe, epoch)
        every = list(self.batches(epoch))
        first = self.position.step
        note = f"epoch {epoch + 1}/{self.recipe.epochs}"
        following = self.loader.batches(every[first:], epoch=epoch, first=first)
        with closing(following) as batches:
            for batch in batches:
                self.update(batch)
                self.advance(len(batch.labels), note)
                if self.stopping and self.position.step < len(every):
                    return
        steps = max(self.position.step, 1)
        # By name: the order of the first step is not in a checkpoint, and it decides their sum.
        means = {name: total / steps for name, total in sorted(self.position.sums.items())}
        self.position = Position(epoch + 1)
        self.recorder.after_epoch(self, means, time.monotonic() - start)

    @property
    def batch_size(self) -> int:
        """Images per step; never more than there are."""
        return min(self.recipe.batch_size, len(self.data.labels))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of an epoch."""
        return len(self.data.labels) // max(self.batch_size, 1)

    def batches(self, epoch: int) -> Iterator[IntArray]:
        """Which images each step of the epoch sees."""
        return sample_epoch(
            self.data.labels,
            batch_size=self.batch_size,
            kind=self.recipe.sampler,
            seed=self.seed,
            epoch=epoch,
        )

    def step(self, positions: IntArray) -> dict[str, float]:
        """One update from the images at `positions`."""
        return self.update(self.batch(positions))

    def update(self, batch: Batch) -> dict[str, float]:
        """One update from a batch."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            terms = self.method.terms(batch)
        values = finite_values(terms, batch)
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        average_gradients(self.method.parameters())
        for optimizer in self.optimizers.values():
            optimizer.step()
        self.method.after_step(batch)
        for name, value in values.items():
            self.position.sums[name] = self.position.sums.get(name, 0.0) + value
        self.position.step += 1
        self.stopping |= any_says(self.asked_to_stop)  # all processes stop after the same step
        self.recorder.after_step(self)
        return values

    def batch(self, positions: IntArray) -> Batch:
        """What the next step sees of these images."""
        return self.loader.batch(positions, epoch=self.position.epoch, step=self.position.step)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything a resumed run needs."""
        tensors = {f"method/{name}": value for name, value in self.method.state_dict().items()}
        return tensors | optimizer_tensors(self.optimizers), {"position": asdict(self.position)}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        prefix = "method/"
        load_state(
            self.method, {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
        )
        restore_optimizers(self.optimizers, tensors)
        self.position = Position(**facts["position"])


def finite_values(terms: Mapping[str, Tensor], batch: Batch) -> dict[str, float]:
    """Terms as numbers; a NaN or infinite one stops the run and names itself and the images."""
    values = {name: float(term.detach()) for name, term in terms.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            ids = batch.image_ids.tolist()
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise NonFiniteError(f"term {name!r} became {value} on images {shown}; stopped")
    return values


@contextmanager
def stop_after_step(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and SIGTERM let the step finish, so that what is saved is whole."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if trainer.asked_to_stop:
            raise KeyboardInterrupt  # asked twice: now
        trainer.asked_to_stop = True

    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
