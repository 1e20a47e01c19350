"""What a run works on, made from its settings: images, split, backbone, tokens, trainer."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bacon_gcd import __version__
from bacon_gcd.backbone.bank import FreshTokens, ReadyTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone, trunk_dtype
from bacon_gcd.benchmark.settings import FRESH, RunSettings
from bacon_gcd.data import planted
from bacon_gcd.data.datasets import find_dataset, load_dataset
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.longtail import Split, SplitSettings, class_rows, make_split, plan_counts
from bacon_gcd.data.views import ViewSettings, strong_settings
from bacon_gcd.methods import METHODS, settings_for
from bacon_gcd.model import novel_names
from bacon_gcd.training.loop import Recorder, Trainer
from bacon_gcd.training.start import new_trainer

IntArray = npt.NDArray[np.int64]
PROTOCOL = "bacon-gcd protocol 1"
PLANTED_NOISE = 0.1  # of a view, as a share of the vectors' own standard deviation


@dataclass(frozen=True)
class Workbench:
    """Everything a run works on, made from its settings."""

    settings: RunSettings
    table: ImageTable
    split: Split
    backbone: Backbone
    workers: int = 0
    banks: Path | None = None
    device: torch.device = field(default_factory=torch.get_default_device)
    """Where methods are trained and scored; torch's default device unless given."""

    @cached_property
    def labels(self) -> IntArray:
        """(N,) visible labels of the training images, -1 = unlabeled."""
        return self.split.visible_labels(self.table)

    @cached_property
    def true_train(self) -> IntArray:
        """(N,) true classes of the training images: for scores only, never for a method."""
        return self.split.true_labels(self.table, self.split.train)

    @cached_property
    def true_test(self) -> IntArray:
        """True classes of the test images."""
        return self.split.true_labels(self.table, self.split.test)

    @cached_property
    def true_counts(self) -> IntArray:
        """(C,) true class sizes in training."""
        return np.bincount(self.true_train, minlength=self.split.n_classes)

    @cached_property
    def group_counts(self) -> IntArray:
        """(C,) class sizes that part many, median and few: true ones, or of the long tail.

        A balanced split has the classes of its long-tailed counterpart in the same groups, or
        there would be nothing to compare. BaCon Table 1.
        """
        asked = self.settings.split
        if asked.profile != "balanced" or find_dataset(self.settings.dataset) is None:
            return self.true_counts
        tailed = SplitSettings(dataset=self.settings.dataset, seed=asked.seed)
        sizes = [len(rows) for rows in class_rows(self.table).values()]
        totals = plan_counts(tailed, sizes).totals
        return np.array([totals[c] for c in self.split.class_order])

    @cached_property
    def class_names(self) -> list[str]:
        """Names in the method's class order: known first."""
        return [self.table.class_names[c] for c in self.split.class_order]

    @property
    def found_names(self) -> list[str]:
        """Names of a method's classes: the known ones, then novel_000, ..."""
        n_known = self.split.n_known
        return [*self.class_names[:n_known], *novel_names(self.split.n_classes - n_known)]

    @cached_property
    def train_source(self) -> TokenSource:
        """Tokens of the training images: stored views, or new ones at every step."""
        views, size = self.settings.views, self.backbone.image_size
        rows, weak = self.split.train, ViewSettings(kind="weak", image_size=size)
        strong = "strong" in METHODS[self.settings.method].method.views
        if views == FRESH:
            return FreshTokens(
                self.table,
                rows,
                self.backbone,
                weak,
                strong=strong_settings(size) if strong else None,
                stored=self._bank(rows, n_views=0),  # test views never change
                seed=self.settings.seed,
                workers=self.workers,
            )
        count = self.settings.n_views if self.settings.recipe.epochs else 0
        return self._bank(rows, n_views=count, strong_views=count if strong else 0)

    @cached_property
    def test_source(self) -> TokenSource:
        """Tokens of the test images, test view only."""
        return self._bank(self.split.test, n_views=0)

    def _bank(self, rows: IntArray, *, n_views: int, strong_views: int = 0) -> TokenSource:
        return build_bank(
            self.table,
            rows,
            self.backbone,
            n_views=n_views,
            strong_views=strong_views,
            seed=self.settings.split.seed,  # stored views belong to the images, not to the training
            workers=self.workers,
            folder=self.banks,
        )

    def new_trainer(self, recorder: Recorder | None = None) -> Trainer:
        """The method with fresh parameters drawn from the run's seed, ready to train."""
        s = self.settings
        own = settings_for(s.method, preset=s.preset, changes=s.settings)
        return new_trainer(
            s.method,
            own,
            s.recipe,
            self.train_source,
            self.labels,
            self.backbone,
            n_classes=self.split.n_classes,
            n_known=self.split.n_known,
            seed=s.seed,
            oracle_counts=torch.from_numpy(self.true_counts).float(),
            bfloat16=s.bfloat16,
            device=self.device,
            recorder=recorder,
        )

    def facts(self) -> dict[str, Any]:
        """What must be the same in all processes of a run."""
        return self.settings.flat() | self.identity()

    def identity(self) -> dict[str, str]:
        """Hashes of what the numbers depend on; a resumed run must find the same."""
        return {
            "protocol": PROTOCOL,
            "table": self.table.fingerprint,
            "split": self.split.hash,
            "backbone": self.backbone.hash,
        }


class PlantedBench(Workbench):
    """A workbench on planted vectors: nothing goes through a trunk, views are noise."""

    @cached_property
    def train_source(self) -> TokenSource:
        """Vectors of the training rows; every view gets its own noise."""
        return ReadyTokens(planted.vectors()[self.split.train], noise=PLANTED_NOISE)

    @cached_property
    def test_source(self) -> TokenSource:
        """Vectors of the test rows."""
        return ReadyTokens(planted.vectors()[self.split.test])


def prepare(
    settings: RunSettings,
    *,
    data: Path | None,
    workers: int = 0,
    device: torch.device | None = None,
) -> Workbench:
    """Find the data, draw the split, load the backbone."""
    device = device or torch.get_default_device()
    table = load_dataset(settings.dataset, data)
    split = make_split(table, settings.split)
    if settings.dataset == "planted":
        vectors = Vectors(planted.DIM, device=device)
        return PlantedBench(settings, table, split, vectors, workers=workers, device=device)
    backbone = load_backbone(
        settings.backbone,
        image_size=settings.image_size,
        tuned=settings.tuned,
        trunk_dtype=trunk_dtype(settings.trunk, device=device),
        device=device,
    )
    return Workbench(settings, table, split, backbone, workers=workers, device=device)


def versions() -> dict[str, str]:
    """Versions that a number may depend on."""
    import PIL

    return {
        "bacon_gcd": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
    }
