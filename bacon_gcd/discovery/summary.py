"""What a reader of a result is told: the sentences of its summary, and its report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from bacon_gcd.backbone.weights import find
from bacon_gcd.classes.calibration import Reliability
from bacon_gcd.classes.tree import ClassTree
from bacon_gcd.data.joined import file_of
from bacon_gcd.discovery.result import Found
from bacon_gcd.discovery.settings import DiscoverSettings
from bacon_gcd.report.contents import ClassInfo, Duplicate, ReportData, Rows, Suspect
from bacon_gcd.report.figures import read_log, training_curves
from bacon_gcd.report.page import write_report


def write_page(folder: Path, settings: DiscoverSettings, found: Found, tree: ClassTree) -> None:
    """Write report.html."""
    write_report(report_data(folder, settings, found, tree), folder / "report.html")


def report_data(
    folder: Path, settings: DiscoverSettings, found: Found, tree: ClassTree
) -> ReportData:
    """What the page shows."""
    table = found.inputs.table
    return ReportData(
        title=f"Discovered in {Path(settings.source).name}",
        rows=rows_of(found),
        classes=[ClassInfo(c.name, c.known) for c in found.sized_classes],
        thumbnail=table.image,
        file=lambda row: file_of(table.source, row),
        notes=notes(settings, found),
        suspected=suspected(found),
        duplicates=[Duplicate(each.rows, each.kind) for each in found.duplicates],
        quarantine=[(bad.id, bad.reason) for bad in table.quarantine],
        tree=tree,
        threshold=settings.threshold,
        training=training_curves(read_log(folder / "log.jsonl")),
        settings={k: v for k, v in dataclasses.asdict(settings).items() if v is not None},
    )


def rows_of(found: Found) -> Rows:
    """One entry per image."""
    return Rows(
        ids=found.inputs.table.ids,
        class_ids=found.images.class_ids,
        labeled=found.inputs.labels >= 0,
        confidence=found.images.confidence,
        known_probability=found.images.known_probability,
        outlier=found.images.outlier,
        xy=found.xy,
        neighbors=found.neighbors,
    )


def suspected(found: Found) -> list[Suspect]:
    """Labeled images that look like another class."""
    names, images = found.class_names, found.images
    return [
        Suspect(int(row), names[images.class_ids[row]], names[images.suggested[row]])
        for row in np.flatnonzero(images.suggested >= 0)
    ]


def notes(settings: DiscoverSettings, found: Found) -> list[str]:
    """What a reader of the result must know."""
    entry = find(settings.backbone)
    told = [number_note(settings, found), f"{found.inputs.table.summary()}."]
    if found.number is not None:
        told.append(reliability_note(found.reliability))
    if entry.supervised:
        told.append(
            f"The backbone {entry.name} was trained with ImageNet labels; classes like those of "
            "ImageNet are found more easily than others."
        )
    return told


def number_note(settings: DiscoverSettings, found: Found) -> str:
    """Where the number of classes comes from."""
    n_classes, number = len(found.classes), found.number
    if settings.update:
        return (
            f"Images were added to {settings.update}, which now has {n_classes} classes; "
            "its own images stayed in theirs, and the confidence of new ones is measured as there."
        )
    if settings.recut:
        return (
            f"The images of {settings.recut} were sorted again, into {n_classes} classes; "
            "the confidence is measured as there."
        )
    if settings.refit:
        return f"The corrections of {settings.refit} were learned; classes: {settings.classes}."
    if number is None or not number.beside:
        return f"{n_classes} classes were looked for, as was asked."
    others = ", ".join(f"{name} {count}" for name, count in sorted(number.beside.items()))
    low, high = number.interval
    plausible = f"between {low} and {high} are plausible" if low < high else "no other is plausible"
    return (
        f"{n_classes} classes were looked for (setting: {settings.classes}); {plausible}. "
        f"Other ways of counting say: {others}."
    )


def reliability_note(found: Reliability | None) -> str:
    """How far the confidence can be trusted."""
    if found is None:
        return "No label could be held out, so the confidence is not calibrated."
    low, high = found.interval
    bins = "; ".join(f"{b.confidence:.0%} sure, {b.accuracy:.0%} right" for b in found.bins)
    return (
        f"Expected accuracy on images of known classes: {found.accuracy:.0%} ({low:.0%} to "
        f"{high:.0%}), from {found.n_images} labels that were held out. Their confidence, "
        f"beside what came true: {bins} (mean gap {found.error:.0%})."
    )
