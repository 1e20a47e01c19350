"""A split's counts for people: the paper's table, bars in the terminal, bars in a picture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from bacon_gcd.config import choose
from bacon_gcd.data.datasets import FOLDER, TEST_SHARE, MissingDataError, find_dataset, load_dataset
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.index_files import import_index_files
from bacon_gcd.data.longtail import Plan, SplitSettings, make_split, plan_counts
from bacon_gcd.data.split import Split
from bacon_gcd.system.files import write_atomic

BATCH_SIZE = 256  # of the paper; an epoch drops the last, incomplete batch
HEIGHT = 10
BLOCKS, PLAIN = ("█", "░"), ("#", ".")  # known, novel


def summarize(plan: Plan) -> dict[str, Any]:
    """The row of the paper's table of training sets (BaCon App. C.2), and what follows from it."""
    totals = plan.totals
    labeled, total = sum(plan.labeled), sum(totals)
    unlabeled_known = sum(plan.unlabeled[c] for c in plan.known)
    smallest = min(totals)
    return {
        "classes_known": len(plan.known),
        "classes_novel": len(totals) - len(plan.known),
        "labeled": labeled,
        "unlabeled_known": unlabeled_known,
        "unlabeled_novel": total - labeled - unlabeled_known,
        "total": total,
        "largest_class": max(totals),
        "smallest_class": smallest,
        "realized_ratio": round(max(totals) / smallest, 1) if smallest else None,
        "steps_per_epoch_at_256": total // BATCH_SIZE,
    }


def table_text(plan: Plan) -> str:
    """The same, for a person."""
    row = summarize(plan)
    ratio = row["realized_ratio"]
    lines = {
        "classes": f"{row['classes_known']} known + {row['classes_novel']} novel",
        "labeled": f"{row['labeled']:,}",
        "unlabeled, known": f"{row['unlabeled_known']:,}",
        "unlabeled, novel": f"{row['unlabeled_novel']:,}",
        "total": f"{row['total']:,}",
        "largest / smallest": f"{row['largest_class']} / {row['smallest_class']} = {ratio}",
        "steps per epoch": f"{row['steps_per_epoch_at_256']} at batch size {BATCH_SIZE}",
    }
    return "\n".join(f"{name:<20}{value}" for name, value in lines.items())


def draw(plan: Plan, *, width: int = 100, plain: bool = False) -> str:
    """Bars of all classes, largest first, one column or more each; known and novel differ.

    Where there are more classes than columns, evenly spaced ranks are shown.
    """
    marks = PLAIN if plain else BLOCKS
    ranked = _ranked(plan)
    shown = [ranked[i * len(ranked) // width] for i in range(width)]
    if len(ranked) < width:
        shown = [bar for bar in ranked for _ in range(width // len(ranked))]
    top = max(ranked[0][0], 1)
    margin = len(str(top))
    lines = [
        f"{_axis(level, top):>{margin}} |" + "".join(_cell(bar, level, top, marks) for bar in shown)
        for level in range(HEIGHT, 0, -1)
    ]
    kept = f", {width} of them drawn" if len(ranked) > width else ""
    legend = f"{marks[0]} known  {marks[1]} novel   {len(ranked)} classes, largest first{kept}"
    return "\n".join([*lines, f"{0:>{margin}} +" + "-" * len(shown), " " * (margin + 2) + legend])


def _ranked(plan: Plan) -> list[tuple[int, bool]]:
    """(images, is it known) of each class, largest first."""
    bars = [(count, c in set(plan.known)) for c, count in enumerate(plan.totals)]
    return sorted(bars, reverse=True)


def _axis(level: int, top: int) -> str:
    return str(round(top * level / HEIGHT)) if level in (HEIGHT, HEIGHT // 2) else ""


def _cell(bar: tuple[int, bool], level: int, top: int, marks: tuple[str, str]) -> str:
    count, known = bar
    height = max(round(count / top * HEIGHT), int(count > 0))  # a class is never invisible
    return marks[0 if known else 1] if height >= level else " "


def save_picture(plan: Plan, path: Path, *, title: str, class_names: Sequence[str] = ()) -> None:
    """The profile as PNG, SVG or PDF: labeled, unlabeled-known, unlabeled-novel images by class."""
    from matplotlib.figure import Figure  # heavy, and only this function wants it

    choose("picture", path.suffix, (".png", ".svg", ".pdf"))
    order = sorted(range(len(plan.totals)), key=lambda c: -plan.totals[c])
    known = set(plan.known)
    labeled = [plan.labeled[c] for c in order]
    hidden = [plan.unlabeled[c] if c in known else 0 for c in order]
    novel = [0 if c in known else plan.unlabeled[c] for c in order]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    ranks = range(len(order))
    axes.bar(ranks, labeled, width=0.9, color="#1f5a94", label="labeled")
    axes.bar(ranks, hidden, bottom=labeled, width=0.9, color="#8db9e0", label="unlabeled, known")
    axes.bar(ranks, novel, width=0.9, color="#e08214", label="unlabeled, novel")
    axes.set(title=title, ylabel="training images", xlabel="class, largest first")
    if len(order) <= 30 and class_names:
        axes.set_xticks(ranks, [class_names[c] for c in order], rotation=45, ha="right")
    axes.legend(frameon=False)
    buffer = BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=150)
    write_atomic(path, buffer.getvalue())


@dataclass(frozen=True)
class Inspection:
    """What `bacon data show` has to say about one split."""

    settings: Mapping[str, Any]
    plan: Plan
    split_hash: str | None
    note: str

    def values(self) -> dict[str, Any]:
        """For a script."""
        per_class = {"labeled": self.plan.labeled, "unlabeled": self.plan.unlabeled}
        return summarize(self.plan) | {
            "settings": dict(self.settings),
            "known": list(self.plan.known),
            "per_class": {name: list(counts) for name, counts in per_class.items()},
            "split_hash": self.split_hash,
            "note": self.note,
        }

    def text(self) -> str:
        """For a person: table, bars, and where the numbers come from."""
        width = min(shutil.get_terminal_size().columns - 10, 100)
        plain = not (sys.stdout.encoding or "").lower().startswith("utf")
        bars = draw(self.plan, width=max(width, 20), plain=plain)
        return "\n".join([self.title(), "", table_text(self.plan), "", bars, "", self.note])

    def title(self) -> str:
        """The settings that matter, in one line."""
        shown = {k: v for k, v in self.settings.items() if v is not None and k != "known"}
        if shown.get("labeled_ratio") == shown.get("unlabeled_ratio"):
            shown = {k: v for k, v in shown.items() if not k.endswith("labeled_ratio")}
        words = (f"{v:g}" if isinstance(v, float) else str(v) for v in shown.values())
        return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in zip(shown, words, strict=True))


def inspect_split(
    settings: SplitSettings,
    data: Path | None,
    *,
    index_files: Path | None = None,
    save: Path | None = None,
    plot: Path | None = None,
) -> Inspection:
    """Make the split if its images are there, count it without them otherwise."""
    names: Sequence[str] = ()
    try:
        table = load_dataset(settings.dataset, data)
    except MissingDataError as missing:
        if save or index_files:
            raise
        found = _without_images(settings, missing)
    else:
        names = table.class_names
        found = _with_images(table, _split_of(table, settings, index_files), save)
    if plot:
        save_picture(found.plan, plot, title=settings.dataset, class_names=names)
    return found


def _with_images(table: ImageTable, split: Split, save: Path | None) -> Inspection:
    note = f"split {split.hash} of images {table.fingerprint}, {len(split.test)} test images"
    if str(split.settings.get("dataset", "")).startswith(FOLDER):
        note += f" ({TEST_SHARE:.0%} of each class unless the folder has test/)"
    if save:
        split.save(save)
        note += f", saved as {save}"
    return Inspection(split.settings, Plan.of(split, table), split.hash, note)


def _without_images(settings: SplitSettings, missing: MissingDataError) -> Inspection:
    plan = plan_counts(settings)
    complete = asdict(replace(settings.complete(), known=len(plan.known)))
    note = f"Counts only, no image was read. {missing}"
    dataset = find_dataset(settings.dataset)
    if dataset is not None and dataset.listed:
        note = f"A generated profile: the published list is not the same. {note}"
    return Inspection(complete, plan, None, note)


def _split_of(table: ImageTable, settings: SplitSettings, index_files: Path | None) -> Split:
    if index_files is None:
        return make_split(table, settings)
    return import_index_files(index_files, table, dataset=settings.dataset)
