"""Run one cell: train, score, and keep what tables and figures need of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bacon_gcd.benchmark.cells import ENGINE, FORMAT, PLACED, Cell, CellResult, today
from bacon_gcd.benchmark.evaluation import (
    class_features,
    evaluate,
    placed_blocks,
    test_probe,
    train_probe,
    unit_features,
)
from bacon_gcd.benchmark.measures import evenly, feature_measures
from bacon_gcd.benchmark.run import Seconds, facts_of, keep_model, trained_method
from bacon_gcd.benchmark.workbench import Workbench, prepare
from bacon_gcd.methods.base import Method
from bacon_gcd.methods.stored import load_state
from bacon_gcd.model import WEIGHTS
from bacon_gcd.report.figures import read_log
from bacon_gcd.system.files import read_tensors
from bacon_gcd.system.processes import agreed, alone, is_first

KEPT_ESTIMATES = 5  # of the class counts, spread over the run
DETAILED = ("test_kmeans", "classifier", "placed")  # blocks that keep the accuracy of every class


def run_cell(
    cell: Cell,
    folder: Path,
    *,
    data: Path | None,
    command: str,
    save_seconds: float = 120.0,
    device: torch.device | None = None,
) -> CellResult | None:
    """Train and score a cell in its folder, from where it was left; None if it was stopped."""
    with agreed():
        bench = prepare(cell.settings, data=data, device=device)
    folder.mkdir(parents=True, exist_ok=True)
    trained = trained_method(bench, folder, resume=True, save_seconds=save_seconds)
    if trained is None:
        return None
    method, seconds = trained
    begun = time.monotonic()
    blocks = evaluate(method, bench)
    result = _result(cell, method, bench, blocks, seconds, read_logs(folder), command)
    result.seconds["score"] = round(time.monotonic() - begun, 1)
    best = {result.headline: result.blocks[result.headline]}
    if is_first():
        with alone():
            keep_model(folder, method, bench, vars(result) | best | {"identity": bench.identity()})
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # large, and no longer needed
    return result


def place_again(
    result: CellResult, folder: Path, *, data: Path | None, device: torch.device | None = None
) -> CellResult | None:
    """The same with its `placed` blocks by today's engine; None where the model is not kept."""
    kept = kept_method(result, folder, data=data, device=device)
    if kept is None:
        return None
    method, bench = kept
    test, train = (unit_features(method, probe(bench)) for probe in (test_probe, train_probe))
    placed = placed_blocks(test, train, bench, found_on=class_features(method, bench))
    blocks = result.blocks | {name: shortened(name, placed[name]) for name in PLACED}
    content = result.content() | {"blocks": blocks, "engine": ENGINE}
    return CellResult(**content)


def kept_method(
    result: CellResult, folder: Path, *, data: Path | None, device: torch.device | None = None
) -> tuple[Method, Workbench] | None:
    """The trained method of a finished cell, on its data; None where its model is not kept."""
    weights = folder / "model" / WEIGHTS
    if not weights.exists():
        return None
    bench = prepare(result.run_settings, data=data, device=device)
    method = bench.new_trainer().method
    load_state(method, read_tensors(weights), spare=method.training_only)
    return method.eval(), bench


def _result(
    cell: Cell,
    method: Method,
    bench: Workbench,
    blocks: Mapping[str, Any],
    seconds: Seconds,
    log: Mapping[str, list[dict[str, Any]]],
    command: str,
) -> CellResult:
    facts = facts_of(method, bench, seconds=seconds.train)
    return CellResult(
        format=FORMAT,
        name=cell.name,
        protocol=cell.protocol.title,
        settings=cell.settings.flat(),
        identity=bench.identity(),
        engine=ENGINE,
        backbone=facts["backbone"],
        task=task_facts(bench),
        headline=method.headline,
        blocks={name: shortened(name, block) for name, block in blocks.items()},
        measures={k: _rounded(v, 4) for k, v in feature_measures(method, bench).items()},
        curve=curve(log["epoch"]),
        counts=counts(log["counts"], bench),
        seconds=times(seconds, epochs=cell.settings.recipe.epochs),
        versions=facts["versions"],
        command=command,
        date=today(),
    )


def times(seconds: Seconds, *, epochs: int) -> dict[str, float]:
    """Seconds of the whole training and of an epoch, by the clock and of computing."""
    each = max(epochs, 1)
    return {
        "train": round(seconds.train, 1),
        "per_epoch": round(seconds.train / each, 2),
        "cpu_per_epoch": round(seconds.cpu / each, 2),
    }


def read_logs(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The log of a run by kind of line; empty for a method without training."""
    path = folder / "log.jsonl"
    return {kind: read_log(path, kind) if path.exists() else [] for kind in ("epoch", "counts")}


def task_facts(bench: Workbench) -> dict[str, Any]:
    """How large the problem is."""
    sizes = np.bincount(bench.true_test, minlength=bench.split.n_classes)
    return {
        "n_classes": bench.split.n_classes,
        "n_known": bench.split.n_known,
        "n_train": len(bench.labels),
        "n_labeled": int((bench.labels >= 0).sum()),
        "n_test": len(bench.true_test),
        "balanced_test": bool(sizes.min() == sizes.max()),
    }


def shortened(name: str, block: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A block without its mapping, rounded; the accuracy of every class where figures need it."""
    if block is None:
        return None
    kept: dict[str, Any] = {
        k: _rounded(v, 3) for k, v in block.items() if isinstance(v, float) or v is None
    }
    kept["anchored"] = {k: _rounded(v, 3) for k, v in block["anchored"].items()}
    if name in DETAILED:
        kept["per_class"] = [_rounded(v, 1) for v in block["per_class"]]
    return kept


def curve(epochs: list[dict[str, Any]]) -> list[list[float | None]]:
    """Epoch, all, old and new of the epochs that were scored."""
    parts = ("all", "old", "new")
    scored = [(line["epoch"], line["test"]) for line in epochs if line.get("test")]
    return [[epoch, *(_rounded(test[part], 2) for part in parts)] for epoch, test in scored]


def counts(lines: list[dict[str, Any]], bench: Workbench) -> dict[str, Any]:
    """True class sizes, some of the estimates, and the error of all that differ."""
    last: dict[int, dict[str, Any]] = {}
    for line in lines:  # a method that estimates every few epochs is asked before each
        if not last or line["estimated"] != last[max(last)]["estimated"]:
            last[line["epoch"]] = line
    epochs = sorted(last)
    chosen = [epochs[i] for i in evenly(len(epochs), KEPT_ESTIMATES)]
    return {
        "true": bench.true_counts.tolist(),
        "estimated": {str(e): [round(c) for c in last[e]["estimated"]] for e in chosen},
        "error": [[e, round(last[e]["error"]["all"], 4)] for e in epochs],
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
