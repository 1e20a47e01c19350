"""Small discover runs, written directly: tiny images, planted features, no training."""

from dataclasses import replace

import numpy as np
from PIL import Image

from bacon_gcd.config import to_toml
from bacon_gcd.discovery.folder import (
    FoundClass,
    Prediction,
    write_matrix,
    write_predictions,
)
from bacon_gcd.system.files import write_atomic

CLASSES = (
    FoundClass(0, "cat", True, labeled=2, count=4.0),
    FoundClass(1, "dog", True, labeled=2, count=4.0),
    FoundClass(2, "novel_000", False, count=4.0),
    FoundClass(3, "novel_001", False, count=4.0),
)


def predictions(classes=CLASSES, per_class=4):
    rows = []
    for number, each in enumerate(classes):
        for k in range(per_class):
            labeled = each.known and k < 2
            rows.append(
                Prediction(
                    f"in/{number}_{k}.png",
                    each.name,
                    each.known,
                    confidence=0.95 - 0.2 * k - 0.01 * number,
                    labeled=labeled,
                    label=each.name if labeled else "",
                    x=float(k),
                    y=float(number),
                    neighbors=(f"in/{number}_{(k + 1) % per_class}.png",),
                )
            )
    return rows


def make_run(folder, rows=None, classes=CLASSES, *, next_id=4, images=True, second=None):
    """A run folder and its source folder; every class has its own color and direction."""
    rows = predictions(classes) if rows is None else rows
    names = {row.file_name for row in rows}
    rows = [replace(row, neighbors=tuple(names.intersection(row.neighbors))) for row in rows]
    source, run = folder / "source", folder / "run"
    source.mkdir(parents=True)
    write_atomic(run / "config.toml", to_toml({"source": str(source)}).encode())
    write_predictions(run, rows, classes, next_id=next_id, second=second)
    names = [each.name for each in classes]
    features = np.zeros((len(rows), 8), np.float32)
    for number, row in enumerate(rows):
        home = names.index(row.class_name)
        features[number, home % 8] = 1.0
        features[number, 7] = 0.5 * (number % 2)
        if images:
            path = source / row.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            color = (60 * home % 256, 40 + 13 * number % 200, 5 * number % 256)
            Image.new("RGB", (12, 10), color).save(path)
    features[:, 6] += 1e-3  # no row is zero
    write_matrix(run / "features.npy", features / np.linalg.norm(features, axis=1, keepdims=True))
    return run
