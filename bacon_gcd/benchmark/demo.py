"""`bacon demo`: the whole line on the embedded images, from pixels to a page to look at."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from bacon_gcd.backbone import fetch
from bacon_gcd.backbone.catalogue import OFFLINE, cached
from bacon_gcd.benchmark.evaluation import frozen_placed
from bacon_gcd.benchmark.run import train_run
from bacon_gcd.benchmark.settings import RunSettings, resolve
from bacon_gcd.benchmark.workbench import prepare
from bacon_gcd.config import UserError

BACKBONE = "resnet18.pypi_in1k"
# Small and quick, not faithful: 96 px images, the last convolution, no wide projector.
SMALL = {"image_size": 96, "tuned": "conv", "views": "2"}
CHANGES = {"projector_width": 0, "interval": 20}
PARTS = ("all", "old", "new")
ROWS = {
    "frozen": "k-means, untrained features",
    "bacon": "BaCon as published (k-means)",
    "ours_frozen": "our classes, untrained features",
    "ours": "our classes, BaCon's features",
}


def run_demo(folder: Path, *, epochs: int, seed: int) -> dict[str, Any]:
    """Train BaCon on the demo set, score it beside frozen k-means, write the report."""
    start = time.monotonic()
    clear_old_demo(folder)
    for name in (BACKBONE, OFFLINE):  # the second one is for `bacon discover` afterwards
        if cached(name) is None:
            fetch.get(name)  # running the demo counts as asking for the download
    asked = RunSettings(
        dataset="demo",
        backbone=BACKBONE,
        seed=seed,
        evaluate_every=max(epochs // 3, 1),
        **SMALL,  # type: ignore[arg-type]
    )
    recipe = {"epochs": epochs, "batch_size": 128, "learning_rate": 0.01}
    settings = resolve(asked, changes=CHANGES, recipe=recipe)
    bench = prepare(settings, data=None, workers=2)
    say(
        f"{len(bench.labels)} images, {(bench.labels >= 0).sum()} of them labeled: "
        f"{bench.split.n_known} classes are known, {bench.split.n_classes} are there"
    )
    result = train_run(bench, folder, save_seconds=3600)
    if result is None:
        raise KeyboardInterrupt
    page = folder / "report.html"
    rows = {
        "frozen": result["frozen_kmeans"],
        "bacon": result[result["headline"]],
        "ours_frozen": frozen_placed(bench),
        "ours": result["placed"],
    }
    scores = {name: {part: found[part] for part in PARTS} for name, found in rows.items()}
    seconds = time.monotonic() - start
    return {
        **scores,
        "report": str(page),
        "seconds": round(seconds, 1),
        "text": summary_text(scores, page, seconds),
    }


def clear_old_demo(folder: Path) -> None:
    """A demo starts anew; a folder that holds anything but an earlier demo is left alone."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    config = folder / "config.toml"
    if not config.exists() or RunSettings.from_toml(config).dataset != "demo":
        raise UserError(f"{folder}: holds something else than a demo; name another folder with -o")
    shutil.rmtree(folder)


def summary_text(scores: dict[str, dict[str, float]], page: Path, seconds: float) -> str:
    """What was found, beside what the untrained features give."""
    lines = [f"{'':<32}{'all':>8}{'known':>8}{'new':>8}"]
    for name, words in ROWS.items():
        lines.append(f"{words:<32}" + "".join(f"{scores[name][part]:>8.1f}" for part in PARTS))
    table = "\n".join(lines)
    return (
        f"Accuracy on 1,000 test images, in percent:\n{table}\n"
        f"Report: {page}  ({seconds:.0f} s)\n"
        "Next: open it in a browser, or try your own folder: bacon discover FOLDER"
    )


def say(line: str) -> None:
    """A line for the person who watches, beside the progress bars."""
    sys.stderr.write(line + "\n")
