"""What a reader of a result is told: the sentences of its summary, and its report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bacon_gcd.backbone.catalogue import find
from bacon_gcd.backbone.weights import MIRRORED, untrained
from bacon_gcd.classes.reliability import Expected as Measured
from bacon_gcd.classes.tree import ClassTree
from bacon_gcd.data.joined import file_of
from bacon_gcd.discovery.result import Found
from bacon_gcd.discovery.settings import DiscoverSettings
from bacon_gcd.discovery.trial import Trial
from bacon_gcd.report.contents import (
    ClassInfo,
    Duplicate,
    Expected,
    ReportData,
    Rows,
    Share,
    Suspect,
)
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
        classes=class_infos(found),
        thumbnail=table.image,
        file=lambda row: file_of(table.source, row),
        notes=notes(settings, found),
        chosen=chosen(settings, len(found.inputs.known), found.trial),
        expected=expected_of(found.expected),
        suspected=suspected(found),
        duplicates=[Duplicate(each.rows, each.kind) for each in found.duplicates],
        quarantine=[(bad.id, bad.reason) for bad in table.quarantine],
        tree=tree,
        threshold=settings.threshold,
        training=training_curves(read_log(folder / "log.jsonl")),
        settings={k: v for k, v in dataclasses.asdict(settings).items() if v not in (None, 0)},
    )


def rows_of(found: Found) -> Rows:
    """One entry per image."""
    return Rows(
        ids=found.inputs.table.ids,
        class_ids=found.images.class_ids,
        labeled=found.inputs.labels >= 0,
        confidence=found.images.confidence,
        known_probability=found.images.known_probability,
        second_choice=found.images.second_choice,
        nearest_known=found.images.nearest_known,
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
    table = found.inputs.table
    told = [number_note(settings, found), *unmeasured_note(found)]
    if table.quarantine or table.ignored:
        told.append(f"{table.summary()}.")
    if entry.supervised:
        told.append(
            f"The backbone {entry.name} was trained with ImageNet labels; classes like those of "
            "ImageNet are found more easily than others."
        )
    return told


def unmeasured_note(found: Found) -> list[str]:
    """Why nothing is said of how many images are right, where that is so."""
    if found.number is None or found.expected is not None:
        return []
    labels = found.inputs.labels
    why = "Too few labels could be hidden" if (labels >= 0).any() else "There was no label to hide"
    return [
        f"{why} to measure how many images are right: the confidence is a guess from other sets of "
        "images. Three or more labels for each of several classes are enough to measure it."
    ]


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
    ways = sorted({round(count) for count in number.beside.values()})
    ends = f"{ways[0]} to {ways[-1]}" if len(ways) > 1 else f"{ways[0]}, too"
    low, high = number.interval
    plausible = f"between {low} and {high} are plausible" if low < high else "no other is plausible"
    return (
        f"{n_classes} classes were looked for (setting: {settings.classes}); {plausible}. "
        f"Single ways of counting say: {ends}."
    )


def expected_note(found: Measured | None) -> list[str]:
    """The measured accuracy in a sentence, where it was measured."""
    if found is None:
        return []
    low, high = found.interval
    return [
        f"Expected accuracy on images without a label: {found.accuracy:.0%} ({low:.0%} to "
        f"{high:.0%}), known and new classes together; {found.known:.0%} of the images of known "
        f"classes and {found.new:.0%} of those of new ones. Measured on {found.n_images} labeled "
        f"images, with {found.n_classes} known classes treated as new."
    ]


def chosen(settings: DiscoverSettings, n_known: int, trial: Trial | None = None) -> list[str]:
    """Which way the images were sorted, and by which evidence."""
    if settings.recut or settings.refit or settings.update:
        return []
    views = averaging(settings) + beside(settings)
    trained = settings.epochs and trial is not None and trial.pays
    how = f"features trained for {settings.epochs} epochs" if trained else "the backbone's features"
    if n_known == 0:
        return [
            f"Images were sorted by {how}{views}. Nothing had a label: classes are groups of "
            "images that are more alike than others. In doubt they are too fine, because classes "
            "are merged more easily than split. A few labels make them better.",
            *([trial_note(trial)] if settings.epochs else []),
        ]
    return [
        f"Images were sorted by {how}{views}. Known and new classes were told apart by how well an "
        "image and its neighbors fit the labeled images of each class; where known ends and new "
        "begins was learned by treating some known classes as new. Last, each image was judged by "
        "a regression on all the others, unless images of hidden classes spoke against it.",
        *([trial_note(trial)] if settings.epochs else []),
    ]


def averaging(settings: DiscoverSettings) -> str:
    """Over which views of an image its features are averaged, in words."""
    if settings.features is not None:
        return ""
    if settings.views:
        return f", averaged over {settings.views + 1} views of each image"
    mirrored = untrained(settings.backbone) == MIRRORED
    return ", averaged over each image and its mirror image" if mirrored else ""


def beside(settings: DiscoverSettings) -> str:
    """What counts beside the backbone's features, in words."""
    if not settings.edges:
        return ""
    return (
        f", and by the edges of the images, which count {settings.edges:g} times as much because "
        "both agree on what is alike"
    )


def trial_note(trial: Trial | None) -> str:
    """Why trained features were used or not."""
    if trial is None:
        return (
            "Training was not used: too few labels could be hidden to see whether it helps with "
            "new classes."
        )
    kept = "Trained features were used" if trial.pays else "Training did not pay and was not used"
    return (
        f"{kept}: with {trial.n_classes} known classes treated as new, {trial.trained:.0%} of "
        f"{trial.n_images} images were sorted right with training and {trial.frozen:.0%} without."
    )


def class_infos(found: Found) -> list[ClassInfo]:
    """Each class with how sure its images are, and what else they look like."""
    images, names = found.images, found.class_names
    free = found.inputs.labels < 0
    infos = []
    for number, each in enumerate(found.classes):
        inside = free & (images.class_ids == number)
        sure = float(images.confidence[inside].mean()) if inside.any() else None
        like = "" if each.known else most_common(images.nearest_known, inside, names)
        infos.append(
            ClassInfo(
                each.name,
                each.known,
                purity=None if each.known else sure,
                precision=sure if each.known else None,
                nearest_known=like,
                second_choice=most_common(images.second_choice, inside, names),
                suggested_names=found.names.get(each.id, ()),
            )
        )
    return infos


def most_common(
    choices: npt.NDArray[np.int64] | None, inside: npt.NDArray[np.bool_], names: list[str]
) -> str:
    """The name that most of these images have; nothing where there is none."""
    picked = np.empty(0, dtype=np.int64) if choices is None else choices[inside]
    picked = picked[picked >= 0]
    return names[int(np.bincount(picked).argmax())] if len(picked) else ""


def expected_of(found: Measured | None) -> Expected | None:
    """The measured shares as the page shows them."""
    if found is None:
        return None
    return Expected(
        Share(found.accuracy, *found.interval),
        known_recall=Share(found.known),
        known_precision=None if found.precision is None else Share(found.precision),
        new_recall=Share(found.new),
        new_precision=None if found.precision_new is None else Share(found.precision_new),
        n_images=found.n_images,
        n_classes=found.n_classes,
        halves=found.halves,
    )
