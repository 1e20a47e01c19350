"""The report of a trained run: what its model makes of the training images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.benchmark.evaluation import block, test_probe, train_probe, unit_features
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.classes.map import project
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.cluster import kmeans
from bacon_gcd.methods.base import Method
from bacon_gcd.model import novel_names
from bacon_gcd.report.contents import ClassInfo, ReportData, Rows, Score
from bacon_gcd.report.figures import read_log, training_curves
from bacon_gcd.report.page import write_report


def write_run_report(
    folder: Path,
    method: Method,
    bench: Workbench,
    result: Mapping[str, Any],
    *,
    frozen: Mapping[str, Any],
) -> Path:
    """report.html of a run: sorted training images, and scores beside `frozen_kmeans`."""
    baseline = Score("frozen k-means", frozen["all"], frozen["old"], frozen["new"])
    features = unit_features(method, train_probe(bench))
    probabilities = train_probe(bench).run(lambda t: method.predictor().logits(t).softmax(dim=1))
    data = ReportData(
        title=f"{bench.settings.method} on {bench.settings.dataset}",
        rows=sorted_rows(features, probabilities, bench),
        classes=class_infos(bench),
        estimated_counts=estimated_counts(method),
        thumbnail=lambda row: bench.table.image(int(bench.split.train[row])),
        notes=notes(result),
        scores=[baseline, Score(bench.settings.method, *headline(result))],
        quarantine=[(bad.id, bad.reason) for bad in bench.table.quarantine],
        training=training_curves(read_log(folder / "log.jsonl")),
        settings=bench.settings.flat(),
    )
    return write_report(data, folder / "report.html")


def sorted_rows(features: Tensor, probabilities: Tensor, bench: Workbench) -> Rows:
    """Every training image with its class; labeled ones stay in theirs."""
    confidence, ids = (part.numpy() for part in probabilities.max(dim=1))
    held = bench.labels >= 0
    return Rows(
        ids=[bench.table.ids[row] for row in bench.split.train],
        class_ids=np.where(held, bench.labels, ids),
        labeled=held,
        confidence=np.where(held, 1.0, confidence),
        xy=project(features),
        neighbors=nearest(features),
    )


def class_infos(bench: Workbench) -> list[ClassInfo]:
    """Known classes under their names, novel ones under ours."""
    n_known = bench.split.n_known
    names = [*bench.class_names[:n_known], *novel_names(bench.split.n_classes - n_known)]
    return [ClassInfo(name, number < n_known) for number, name in enumerate(names)]


def estimated_counts(method: Method) -> list[float] | None:
    """Class sizes as the training estimated them, where it does."""
    counts = method.class_counts
    return None if counts is None else [float(count) for count in counts]


def frozen_kmeans(bench: Workbench, *, restarts: int = 10) -> dict[str, Any]:
    """Untrained features, k-means on the test images: the honest baseline of every table."""
    features = F.normalize(test_probe(bench).run(bench.backbone.new_tail()), dim=1)
    found = kmeans(features, bench.split.n_classes, n_init=restarts, seed=0)
    return block(found.labels, bench.true_test, bench)


def headline(result: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """All, old and new of the block the method is judged by."""
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
