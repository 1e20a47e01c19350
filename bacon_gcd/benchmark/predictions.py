"""predictions.csv and predictions.parquet of a run: every image with its class and the true one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from bacon_gcd.benchmark.evaluation import test_probe, train_probe
from bacon_gcd.benchmark.workbench import Workbench
from bacon_gcd.methods.base import Method
from bacon_gcd.system.tables import write_csv, write_parquet
from bacon_gcd.training.embed import TrainProbe

IntArray = npt.NDArray[np.int64]
SCHEMA = pa.schema(
    [
        ("file_name", pa.string()),
        ("split", pa.string()),
        ("class", pa.string()),
        ("known", pa.bool_()),
        ("confidence", pa.float64()),
        ("known_probability", pa.float64()),
        ("labeled", pa.bool_()),
        ("true_class", pa.string()),
    ]
)


def write_predictions(folder: Path, method: Method, bench: Workbench) -> None:
    """Write the answers of the method on all training and test images, as `bacon predict` would.

    A labeled image keeps its class.
    """
    train = prediction_rows("train", method, train_probe(bench), bench)
    test = prediction_rows("test", method, test_probe(bench), bench)
    write_csv(folder / "predictions.csv", train + test, columns=SCHEMA.names)
    write_parquet(folder / "predictions.parquet", train + test, schema=SCHEMA)


def prediction_rows(
    split: str, method: Method, probe: TrainProbe, bench: Workbench
) -> list[dict[str, Any]]:
    """One row per image of a split, in its order."""
    images, true = {
        "train": (bench.split.train, bench.true_train),
        "test": (bench.split.test, bench.true_test),
    }[split]
    class_ids, confidence, known = answers(class_probabilities(method, probe), probe.labels, bench)
    return [
        {
            "file_name": bench.table.ids[image],
            "split": split,
            "class": bench.found_names[class_ids[row]],
            "known": bool(class_ids[row] < bench.split.n_known),
            "confidence": round(float(confidence[row]), 4),
            "known_probability": round(float(known[row]), 4),
            "labeled": bool(probe.labels[row] >= 0),
            "true_class": bench.class_names[true[row]],
        }
        for row, image in enumerate(images)
    ]


@torch.no_grad()
def class_probabilities(method: Method, probe: TrainProbe) -> Tensor:
    """(N, C) of the method's own way to answer, of every image of the probe."""
    logits = method.predictor().logits
    return probe.run(lambda tokens: logits(tokens).softmax(dim=1)).float().cpu()


def answers(
    probabilities: Tensor, labels: IntArray, bench: Workbench
) -> tuple[IntArray, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """(N,) class, its probability and that of all known classes; a label is taken as it is."""
    confidence, ids = (part.numpy() for part in probabilities.max(dim=1))
    known = probabilities[:, : bench.split.n_known].sum(dim=1).clamp(max=1.0).numpy()
    labeled = labels >= 0
    return (
        np.where(labeled, labels, ids),
        np.where(labeled, np.float32(1), confidence),
        np.where(labeled, np.float32(1), known),
    )
