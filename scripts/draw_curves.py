"""Draw the accuracy of finished runs over their epochs, from log.jsonl.

python scripts/draw_curves.py docs/images/curves.png runs/a="BaCon-S" runs/b="BaCon-O"
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

PARTS = ("all", "old", "new")


def scores(run: Path) -> tuple[list[int], dict[str, list[float]]]:
    """Epochs at which the test set was scored, and the scores there."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    scored = [line for line in lines if line["kind"] == "epoch" and "test" in line]
    return [line["epoch"] for line in scored], {
        part: [line["test"][part] for line in scored] for part in PARTS
    }


def draw(target: Path, runs: dict[str, Path]) -> None:
    """One panel per group of classes, one line per run."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, len(PARTS), sharex=True)
    for name, run in runs.items():
        epochs, found = scores(run)
        for panel, part in zip(panels, PARTS, strict=True):
            panel.plot(epochs, found[part], marker="o", markersize=3, label=name)
            panel.set(title=f"{part} classes", xlabel="epoch")
    panels[0].set_ylabel("k-means accuracy on test images, %")
    panels[-1].legend(fontsize=8)
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pairs = [given.partition("=") for given in sys.argv[2:]]
    draw(Path(sys.argv[1]), {name or folder: Path(folder) for folder, _, name in pairs})
