"""report.html of a run: its training images sorted, its scores, its curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.benchmark.evaluation import train_probe, unit_features
from bacon_gcd.benchmark.predictions import answers, class_probabilities
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.classes.map import project
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.methods.base import Method
from bacon_gcd.report.contents import ClassInfo, ReportData, Rows, Score
from bacon_gcd.report.figures import read_log, training_curves
from bacon_gcd.report.page import write_report


def write_run_report(
    folder: Path, method: Method, bench: Workbench, result: Mapping[str, Any]
) -> Path:
    """Write report.html of a run: its training images sorted, its scores beside frozen k-means."""
    probe = train_probe(bench)
    features = unit_features(method, probe).cpu()
    class_ids, confidence, known = answers(class_probabilities(method, probe), probe.labels, bench)
    data = ReportData(
        title=f"{bench.settings.method} on {bench.settings.dataset}",
        rows=Rows(
            ids=[bench.table.ids[row] for row in bench.split.train],
            class_ids=class_ids,
            labeled=bench.labels >= 0,
            confidence=confidence,
            known_probability=known,
            xy=map_of(features, seed=bench.settings.seed),
            neighbors=nearest(features),
        ),
        classes=class_infos(bench),
        estimated_counts=estimated_counts(method),
        thumbnail=lambda row: bench.table.image(int(bench.split.train[row])),
        notes=notes(result),
        scores=[frozen_score(result), Score(bench.settings.method, *headline(result))],
        quarantine=[(bad.id, bad.reason) for bad in bench.table.quarantine],
        training=curves(folder / "log.jsonl"),
        settings=bench.settings.flat(),
    )
    return write_report(data, folder / "report.html")


def map_of(features: Tensor, *, seed: int) -> npt.NDArray[np.float32]:
    """(N, 2) coordinates on the map, the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return np.nan_to_num(project(features))


def class_infos(bench: Workbench) -> list[ClassInfo]:
    """Known classes under their names, novel ones under ours."""
    n_known = bench.split.n_known
    return [ClassInfo(name, number < n_known) for number, name in enumerate(bench.found_names)]


def estimated_counts(method: Method) -> list[float] | None:
    """Class sizes as the training estimated them, for methods that do."""
    counts = method.class_counts
    return None if counts is None else [float(count) for count in counts]


def curves(log: Path) -> str | None:
    """The training curves as SVG; None for a method without training."""
    return training_curves(read_log(log)) if log.exists() else None


def frozen_score(result: Mapping[str, Any]) -> Score:
    """The scores of untrained features, which every run is shown beside."""
    frozen = result["frozen_kmeans"]
    return Score("frozen k-means", frozen["all"], frozen["old"], frozen["new"])


def headline(result: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """All, old and new of the block that is the paper's number for the method."""
    best = result[result["headline"]]
    return best["all"], best["old"], best["new"]


def notes(result: Mapping[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    told = [f"Scores are of the last epoch ({result['epoch']}), one seed ({result['seed']})."]
    if result["backbone"]["trained_with_labels"]:
        told.append(
            f"The backbone {result['backbone']['name']} was trained with ImageNet labels, which "
            "cover many of the classes that count as novel here."
        )
    return told
