"""Draw finished runs over their epochs, from log.jsonl: accuracy and error of the class counts.

python scripts/draw_curves.py docs/images/curves.png runs/a="BaCon-S" runs/b="BaCon-O"
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

from bacon_gcd.report.figures import read_log

PARTS = ("all", "old", "new")


def scores(run: Path) -> dict[int, dict[str, float]]:
    """Epochs at which the test set was scored, the last one included, and the scores there."""
    found = {each["epoch"]: each["test"] for each in read_log(run / "log.jsonl") if "test" in each}
    result = json.loads((run / "result.json").read_text())
    return {result["epoch"]: result["test_kmeans"]} | found


def count_errors(run: Path) -> dict[int, float]:
    """Total variation between estimated and true class sizes."""
    return {each["epoch"]: each["error"]["all"] for each in read_log(run / "log.jsonl", "counts")}


def draw(target: Path, runs: dict[str, Path]) -> None:
    """One panel per group of classes and one for the class counts, one line per run."""
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PARTS) + 1, sharex=True)
    for name, run in runs.items():
        found = dict(sorted(scores(run).items()))
        for panel, part in zip(panels, PARTS, strict=False):
            values = [each[part] for each in found.values()]
            panel.plot(list(found), values, marker="o", markersize=3, label=name)
            panel.set(title=f"{part} classes", xlabel="epoch")
        errors = count_errors(run)
        panels[-1].plot(list(errors), list(errors.values()), label=name)
    panels[0].set_ylabel("k-means accuracy on test images, %")
    panels[-1].set(title="class counts", xlabel="epoch", ylabel="total variation from the truth")
    lines, names = panels[-1].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names))
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pairs = [given.partition("=") for given in sys.argv[2:]]
    draw(Path(sys.argv[1]), {name or folder: Path(folder) for folder, _, name in pairs})
