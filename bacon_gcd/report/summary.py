"""What was found, in words and in a few numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bacon_gcd.report.contents import ReportData

DOUBTFUL = 0.5  # confidence below which an image is worth a look


class Tile(NamedTuple):
    """One large number and what it counts."""

    number: str
    what: str


def sentences(data: ReportData) -> list[str]:
    """The summary, most important first; the parts that are missing say nothing."""
    if len(data.rows) == 0:
        return ["There are no images in this run.", *data.notes]
    parts = (_found(data), _labels(data), _sizes(data), _scores(data), _sureness(data))
    return [*filter(None, parts), *data.notes, *filter(None, [_problems(data)])]


def tiles(data: ReportData) -> list[Tile]:
    """Large numbers for the head of the page."""
    n_known = sum(c.known for c in data.classes)
    found = [
        Tile(f"{len(data.rows):,}", "images"),
        Tile(f"{int(data.rows.labeled.sum()):,}", "came with a label"),
        Tile(f"{n_known:,}", "known classes"),
        Tile(f"{len(data.classes) - n_known:,}", "newly found classes"),
    ]
    if data.scores:
        found.append(Tile(percent(data.scores[-1].all), f"right, {data.scores[-1].name}"))
    elif (median := _median_confidence(data)) is not None:
        found.append(Tile(f"{median:.0%}", "median confidence"))
    return found


def count(number: int, one: str, many: str | None = None) -> str:
    """3 images, 1 image, no images."""
    several = many or f"{one}s"
    return f"{number:,} {one if number == 1 else several}" if number else f"no {several}"


def percent(value: float | None) -> str:
    """Percent with one decimal; a dash where there is none."""
    return "–" if value is None else f"{value:.1f}%"


def _found(data: ReportData) -> str:
    n_known = sum(c.known for c in data.classes)
    images, classes = count(len(data.rows), "image"), count(len(data.classes), "class", "classes")
    verb = "was" if len(data.rows) == 1 else "were"
    n_novel = len(data.classes) - n_known
    return f"{images} {verb} sorted into {classes}: {n_known:,} known and {n_novel:,} newly found."


def _labels(data: ReportData) -> str:
    known = np.array([c.known for c in data.classes], dtype=bool)
    unlabeled = ~data.rows.labeled
    n_known = int(known[data.rows.class_ids[unlabeled]].sum())
    n_novel = int(unlabeled.sum()) - n_known
    if not unlabeled.any():
        return "All of them came with a label."
    n_labeled = len(data.rows) - int(unlabeled.sum())
    came = "None" if n_labeled == 0 else f"{n_labeled:,}"
    return (
        f"{came} came with a label; of the other {int(unlabeled.sum()):,}, "
        f"{n_known:,} joined a known class and {n_novel:,} a newly found one."
    )


def _sizes(data: ReportData) -> str:
    if len(data.classes) < 2:
        return ""
    large = max(data.classes, key=lambda c: c.estimated)
    small = min(data.classes, key=lambda c: c.estimated)
    return (
        f"The largest class is “{large.name}” with about {large.estimated:,.0f} images, "
        f"the smallest “{small.name}” with about {small.estimated:,.0f}."
    )


def _scores(data: ReportData) -> str:
    if not data.scores or (accuracy := data.scores[-1].all) is None:
        return ""
    text = f"{data.scores[-1].name} is right for {percent(accuracy)} of the {data.scored_on}"
    baseline = data.scores[0]
    if len(data.scores) < 2 or baseline.all is None:
        return f"{text}."
    points = accuracy - baseline.all
    compared = "more" if points >= 0 else "less"
    return f"{text}, {abs(points):.1f} points {compared} than {baseline.name}."


def _median_confidence(data: ReportData) -> float | None:
    if data.rows.confidence is None:
        return None
    values = data.rows.confidence[~data.rows.labeled]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None


def _sureness(data: ReportData) -> str:
    median = _median_confidence(data)
    if median is None or data.rows.confidence is None:
        return ""
    doubtful = int((data.rows.confidence[~data.rows.labeled] < DOUBTFUL).sum())
    text = f"Half of the unlabeled images were placed with a confidence of {median:.0%} or more"
    if doubtful == 0:
        return f"{text}, none below {DOUBTFUL:.0%}."
    look = "is worth a look" if doubtful == 1 else "are worth a look"
    return f"{text}; {count(doubtful, 'image')} below {DOUBTFUL:.0%} {look}."


def _problems(data: ReportData) -> str:
    outliers = 0 if data.rows.outlier is None else int(data.rows.outlier.sum())
    found = [
        (outliers, "image that fits no class", "images that fit no class"),
        (len(data.suspected or ()), "suspected label error", None),
        (len(data.duplicates or ()), "group of duplicates", "groups of duplicates"),
        (len(data.quarantine or ()), "file that could not be read", "files that could not be read"),
    ]
    named = [count(n, one, many) for n, one, many in found if n]
    return f"Also found: {', '.join(named)}." if named else ""
