"""What a discovery found, as the folder it is kept in: predictions, classes, report, model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bacon_gcd.backbone.weights import find
from bacon_gcd.classes.assign import Sorted
from bacon_gcd.classes.calibration import Reliability
from bacon_gcd.classes.number import ClassNumber
from bacon_gcd.classes.tree import ClassTree, grow_tree
from bacon_gcd.config import to_toml
from bacon_gcd.data.joined import file_of
from bacon_gcd.discovery.duplicates import Twins
from bacon_gcd.discovery.folder import (
    FoundClass,
    Prediction,
    first_number,
    write_csv,
    write_features,
    write_predictions,
)
from bacon_gcd.discovery.material import AUTO, Material
from bacon_gcd.methods.base import Method
from bacon_gcd.model import describe_backbone, save_model
from bacon_gcd.report.contents import ClassInfo, Duplicate, ReportData, Rows, Suspect
from bacon_gcd.report.figures import read_log, training_curves
from bacon_gcd.report.page import write_report
from bacon_gcd.system.files import write_atomic, write_json

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DiscoverSettings:
    """All that decides the result; config.toml of the run."""

    source: str
    labels: str | None = None
    features: str | None = None
    classes: str = AUTO
    """auto, a number, or a range such as 5-20; known and novel together."""
    threshold: float | None = None
    """Of the probability from which an image is known; None: its likeliest class decides."""
    backbone: str = AUTO
    image_size: int | None = None
    """Side of the images as the backbone sees them, in pixels."""
    effort: str = "normal"
    seed: int = 0
    views: int = 0
    epochs: int = 0
    recut: str | None = None
    """The run whose features were sorted again."""
    refit: str | None = None
    """The run whose corrections were learned."""
    update: str | None = None
    """The run that images were added to."""
    added: Mapping[str, Mapping[str, str]] | None = None
    """Images that were added: what their ids begin with -> source, labels, features."""

    def __post_init__(self) -> None:
        to_toml(dataclasses.asdict(self))  # refuses what config.toml cannot hold, before any work


@dataclass(frozen=True, eq=False)
class Found:
    """The answer, before it is written."""

    material: Material
    method: Method
    name: str
    """Of the method."""
    number: ClassNumber
    features: Tensor
    """(N, D) unit features that were clustered."""
    sorted: Sorted
    neighbors: IntArray
    xy: npt.NDArray[np.float32]
    twins: list[Twins]
    reliability: Reliability | None

    novel: tuple[int, ...]
    """Numbers of the novel classes, in their order; no number is ever given to another class."""
    next_novel: int = 0
    """At least this number is the next one."""
    kept: tuple[FoundClass, ...] = ()
    """All classes, when they have their ids and names from an earlier run."""
    tree: ClassTree | None = None
    """Coarser and finer cuts, when they are those of an earlier run."""
    certain: npt.NDArray[np.bool_] | None = None
    """(N,) rows that stay in their class in every cut; None: those with a label."""
    given: tuple[str, ...] | None = None
    """(N,) labels as they came, when classes have other names by now; "" = none."""

    @cached_property
    def class_names(self) -> list[str]:
        """Known names, then novel_000, ..."""
        if self.kept:
            return [each.name for each in self.kept]
        return [*self.material.known, *(f"novel_{number:03d}" for number in self.novel)]


def fresh_numbers(known: tuple[str, ...], n_novel: int) -> tuple[int, ...]:
    """0, 1, ...; or after the largest number that a person has used as the name of a class."""
    first = first_number(known)
    return tuple(range(first, first + n_novel))


def write_run(folder: Path, settings: DiscoverSettings, found: Found) -> None:
    """Everything a later command needs."""
    table = found.material.table
    write_atomic(folder / "config.toml", to_toml(dataclasses.asdict(settings)).encode())
    classes = found_classes(found)
    following = max(found.next_novel, first_number(tuple(found.class_names)))
    write_predictions(folder, predictions(found), classes, next_novel=following)
    write_features(folder, found.features.numpy())
    twins = [{"kind": t.kind, "files": [table.ids[row] for row in t.rows]} for t in found.twins]
    write_json(folder / "duplicates.json", twins)
    bad = [{"file_name": q.id, "reason": q.reason} for q in table.quarantine]
    write_csv(folder / "quarantine.csv", bad, columns=["file_name", "reason"])
    tree = found.tree or tree_of(found, seed=settings.seed)
    write_json(folder / "tree.json", tree.as_dict())
    write_atomic(folder / "edits.jsonl", b"")
    save_model(
        folder / "model",
        found.method,
        name=found.name,
        settings=dataclasses.asdict(found.method.settings),
        backbone=describe_backbone(found.material.backbone, tuned=found.material.tuned),
        class_names=found.class_names,
        radii=found.sorted.radii,
        threshold=settings.threshold,
        card="\n\n".join([f"# {found.name}, found by bacon discover", *notes(settings, found)])
        + "\n",
    )
    write_report(report_data(folder, settings, found, tree), folder / "report.html")


def tree_of(found: Found, *, seed: int) -> ClassTree:
    """Coarser and finer cuts of the classes that were found."""
    certain = found.material.labels >= 0 if found.certain is None else found.certain
    return grow_tree(
        found.features,
        found.sorted.class_ids,
        certain,
        n_known=len(found.material.known),
        n_classes=len(found.class_names),
        seed=seed,
    )


def found_classes(found: Found) -> list[FoundClass]:
    """Known classes first, then novel ones by size."""
    n_known = len(found.material.known)
    first = first_number(found.material.known)
    ids = [*range(n_known), *(n_known + number - first for number in found.novel)]
    ids = [each.id for each in found.kept] or ids
    sizes = np.bincount(found.sorted.class_ids, minlength=len(found.class_names))
    labels = found.material.labels
    labeled = np.bincount(labels[labels >= 0], minlength=len(found.class_names))
    return [
        FoundClass(ids[c], name, c < n_known, int(labeled[c]), float(sizes[c]))
        for c, name in enumerate(found.class_names)
    ]


def predictions(found: Found) -> list[Prediction]:
    """One row per image, in the order of the table."""
    ids, names, labels = found.material.table.ids, found.class_names, found.material.labels
    s = found.sorted
    given = found.given or tuple(names[label] if label >= 0 else "" for label in labels)
    return [
        Prediction(
            file_name=ids[row],
            class_name=names[s.class_ids[row]],
            known=bool(s.class_ids[row] < len(found.material.known)),
            confidence=round(float(s.confidence[row]), 4),
            known_probability=round(float(s.known_probability[row]), 4),
            labeled=bool(labels[row] >= 0),
            label=given[row],
            outlier=bool(s.outlier[row]),
            suspected=bool(s.suggested[row] >= 0),
            suggested=names[s.suggested[row]] if s.suggested[row] >= 0 else "",
            x=round(float(found.xy[row, 0]), 3),
            y=round(float(found.xy[row, 1]), 3),
            neighbors=tuple(ids[other] for other in found.neighbors[row]),
        )
        for row in range(len(ids))
    ]


def report_data(
    folder: Path, settings: DiscoverSettings, found: Found, tree: ClassTree
) -> ReportData:
    """What the page shows."""
    s, names = found.sorted, found.class_names
    suspected = [
        Suspect(int(row), names[s.class_ids[row]], names[s.suggested[row]])
        for row in np.flatnonzero(s.suggested >= 0)
    ]
    table = found.material.table
    return ReportData(
        title=f"Discovered in {Path(settings.source).name}",
        rows=Rows(
            ids=table.ids,
            class_ids=s.class_ids,
            labeled=found.material.labels >= 0,
            confidence=s.confidence,
            known_probability=s.known_probability,
            outlier=s.outlier,
            xy=found.xy,
            neighbors=found.neighbors,
        ),
        classes=[ClassInfo(c.name, c.known) for c in found_classes(found)],
        thumbnail=table.image,
        file=lambda row: file_of(table.source, row),
        notes=notes(settings, found),
        suspected=suspected,
        duplicates=[Duplicate(t.rows, t.kind) for t in found.twins],
        quarantine=[(bad.id, bad.reason) for bad in table.quarantine],
        tree=tree,
        threshold=settings.threshold,
        training=training_curves(read_log(folder / "log.jsonl")),
        settings={k: v for k, v in dataclasses.asdict(settings).items() if v is not None},
    )


def notes(settings: DiscoverSettings, found: Found) -> list[str]:
    """What a reader of the result must know."""
    number, entry = found.number, find(settings.backbone)
    told = [_number_note(settings, number), f"{found.material.table.summary()}."]
    if not settings.update:
        told.append(_reliability_note(found.reliability))
    if entry.supervised:
        told.append(
            f"The backbone {entry.name} was trained with ImageNet labels; classes like those of "
            "ImageNet are found more easily than others."
        )
    return told


def _number_note(settings: DiscoverSettings, number: ClassNumber) -> str:
    if settings.update:
        return (
            f"Images were added to {settings.update}, which now has {number.estimate} classes; "
            "its own images stayed in theirs, and the confidence of new ones is measured as there."
        )
    if settings.recut:
        return f"The images of {settings.recut} were sorted again, into {number.estimate} classes."
    if settings.refit:
        return f"The corrections of {settings.refit} were learned; classes: {settings.classes}."
    others = ", ".join(f"{name} {count}" for name, count in sorted(number.beside.items()))
    return (
        f"{number.estimate} classes were looked for (setting: {settings.classes}); between "
        f"{number.interval[0]} and {number.interval[1]} are plausible. "
        f"Other ways of counting say: {others}."
    )


def _reliability_note(found: Reliability | None) -> str:
    if found is None:
        return "No label could be held out, so the confidence is not calibrated."
    low, high = found.interval
    bins = "; ".join(f"{b.confidence:.0%} sure, {b.accuracy:.0%} right" for b in found.bins)
    return (
        f"Expected accuracy on images of known classes: {found.accuracy:.0%} ({low:.0%} to "
        f"{high:.0%}), from {found.n_images} labels that were held out. Their confidence, "
        f"beside what came true: {bins} (mean gap {found.error:.0%})."
    )
