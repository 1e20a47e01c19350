"""One cell of a table: which run it is, and the small file that is kept of it.

The file holds scores, what they depend on, and a hash, so that a changed one is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bacon_gcd.benchmark.protocols import Protocol
from bacon_gcd.benchmark.settings import RunSettings
from bacon_gcd.config import UserError, checked_as, settings_from
from bacon_gcd.data.longtail import SplitSettings
from bacon_gcd.methods import METHODS, on_dataset, preset_of
from bacon_gcd.methods.base import Recipe
from bacon_gcd.system.files import digest, read_json, write_atomic

FORMAT = 2
ENGINE = 7
"""Version of what places classes, `bacon_gcd/classes/`: raised when it places images otherwise."""
SCORES = ("all", "old", "new", "nmi", "ari")
PLACED = ("placed", "placed_train")
WITH_ENGINE = {"classes", "untrained"}  # values of settings by which a method uses the engine


@dataclass(frozen=True)
class Cell:
    """A run of a grid."""

    protocol: Protocol
    settings: RunSettings

    @property
    def name(self) -> str:
        """Name of its files: what a person looks for, and a hash of all that decides it."""
        s = self.settings
        dataset = s.dataset.replace(":", "-").replace("/", "-")
        key = digest(self.protocol.title, s.flat(), ENGINE if trains_with_engine(s) else None)
        return f"{self.protocol.name}-{dataset}-{s.method}-{s.preset}-s{s.seed}-{key[:8]}"

    @property
    def label(self) -> str:
        """For lines that a person reads: with what its row and column change."""
        s = self.settings
        changed = [f"{name} {value}" for name, value in self._changed().items()]
        return ", ".join([f"{s.method} {s.preset} on {s.dataset}", *changed, f"seed {s.seed}"])

    def _changed(self) -> dict[str, Any]:
        """Settings of the method and of the split that the preset and the protocol do not have."""
        s = self.settings
        preset = METHODS[s.method].presets[preset_of(s.method, s.preset)].settings
        own = on_dataset(s.method, s.preset, s.dataset).settings
        usual = {**asdict(preset), **own, **self.protocol.changes}
        split, plain = asdict(s.split), asdict(SplitSettings(dataset=s.dataset))
        changed = {name: value for name, value in s.settings.items() if value != usual.get(name)}
        return changed | {n: v for n, v in split.items() if v != plain[n] and n != "seed"}


def trains_with_engine(settings: RunSettings) -> bool:
    """Whether the placing of classes takes part in the training, not only in a block of scores."""
    return any(value in WITH_ENGINE for value in settings.settings.values())


@dataclass(frozen=True)
class CellResult:
    """What is kept of a finished cell."""

    format: int
    name: str
    protocol: str
    settings: dict[str, Any]
    """Of the run, under dotted names."""
    identity: dict[str, str]
    """Hashes of data, split and backbone."""
    engine: int
    """Version of what placed the classes."""
    backbone: dict[str, Any]
    task: dict[str, Any]
    """n_classes, n_known, n_train, n_labeled, n_test, balanced_test."""
    headline: str
    blocks: dict[str, dict[str, Any] | None]
    measures: dict[str, float | None]
    curve: list[list[float | None]]
    """Epoch, all, old, new; by the quick check."""
    counts: dict[str, Any]
    """true: class sizes; estimated: epoch -> class sizes; error: [epoch, total variation]."""
    seconds: dict[str, float]
    versions: dict[str, str]
    command: str
    date: str
    hash: str = ""

    def content(self) -> dict[str, Any]:
        """Everything but the hash."""
        return {k: v for k, v in vars(self).items() if k != "hash"}

    @property
    def run_settings(self) -> RunSettings:
        """The settings as a run takes them."""
        nested: dict[str, Any] = {"split": {}, "recipe": {}, "settings": {}}
        for name, value in self.settings.items():
            part, dot, inner = name.partition(".")
            if dot:
                nested[part][inner] = value
            else:
                nested[name] = value
        nested["split"] = settings_from(SplitSettings, nested["split"], where=self.name)
        nested["recipe"] = settings_from(Recipe, nested["recipe"], where=self.name)
        return settings_from(RunSettings, nested, where=self.name)

    def block(self, name: str) -> Mapping[str, Any] | None:
        """Scores of a block; None where it is missing, or placed by another version."""
        wanted = self.headline if name == "headline" else name
        if wanted in PLACED and self.engine != ENGINE:
            return None
        return self.blocks.get(wanted)


def write_result(folder: Path, result: CellResult) -> Path:
    """Keep a finished cell: one line per entry, so that a change can be read."""
    content = result.content()
    entries = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True, allow_nan=False)}"
        for key, value in (content | {"hash": content_hash(content)}).items()
    ]
    path = folder / f"{result.name}.json"
    write_atomic(path, ("{\n" + ",\n".join(entries) + "\n}\n").encode())
    return path


def read_result(path: Path) -> CellResult:
    """A finished cell; a damaged or edited file is refused."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    stored = read_json(path, dict[str, Any], what="a result of a benchmark")
    if "format" not in stored:  # such as result.json of bacon train
        raise UserError(f"{path}: not a result of a benchmark; bacon benchmark run writes those")
    if stored["format"] != FORMAT:
        raise UserError(f"{path}: result format {stored['format']} is not {FORMAT}")
    said = stored.pop("hash", None)
    found = content_hash(stored)  # of what is in the file, before any type is converted
    if found != said:
        raise UserError(f"{path}: changed since it was written: hash {found}, not {said}")
    where = f"{path}: not a result of a benchmark"
    return checked_as(CellResult, stored | {"hash": said}, where=where)


def content_hash(content: Mapping[str, Any]) -> str:
    """Identifies all that a result says."""
    return digest({key: content[key] for key in sorted(content)})


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()
