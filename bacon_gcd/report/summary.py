"""What was found, in words and in a few numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bacon_gcd.data.remarks import ROW_ALONE, is_row_alone, labels_alone
from bacon_gcd.report.contents import Inputs, ReportData
from bacon_gcd.report.quality import expected_sentences, interval, share
from bacon_gcd.report.text import without_folders
from bacon_gcd.system.text import count

DOUBTFUL = 0.5  # confidence below which an image is worth a look


class Tile(NamedTuple):
    """One large number and what it counts."""

    number: str
    what: str


def sentences(data: ReportData) -> list[str]:
    """The summary, most important first; the parts that are missing say nothing."""
    if len(data.rows) == 0:
        return ["There are no images in this run.", *data.notes, *filter(None, [_inputs(data)])]
    found = [_found(data), _labels(data), *expected_sentences(data.expected), _scores(data)]
    found += [_sizes(data), _sureness(data), *data.notes, _inputs(data), _problems(data)]
    return [sentence for sentence in found if sentence]


def tiles(data: ReportData) -> list[Tile]:
    """Large numbers for the top of the page."""
    n_known = sum(c.known for c in data.classes)
    found = [
        Tile(f"{len(data.rows):,}", "images"),
        Tile(f"{int(data.rows.labeled.sum()):,}", "came with a label"),
        Tile(f"{n_known:,}", "known classes"),
        Tile(f"{len(data.classes) - n_known:,}", "newly found classes"),
    ]
    return [*found, *_rightness(data)]


def _rightness(data: ReportData) -> list[Tile]:
    """Measured accuracy; else the expected one; else how sure the answers are."""
    if data.scores and is_number(data.scores[-1].all):
        return [Tile(percent(data.scores[-1].all), f"right, {data.scores[-1].name}")]
    if data.expected is not None and is_number(data.expected.accuracy.value):
        ends = interval(data.expected.accuracy)
        text = "expected to be right" + (f", {ends}" if ends else "")
        return [Tile(share(data.expected.accuracy.value), text)]
    if (median := _median_confidence(data)) is not None:
        return [Tile(f"{median:.0%}", "median confidence")]
    return []


def percent(value: float | None) -> str:
    """Percent with one decimal; a dash where there is none."""
    return f"{value:.1f}%" if value is not None and math.isfinite(value) else "–"


def is_number(value: float | None) -> bool:
    """Neither missing nor NaN."""
    return value is not None and math.isfinite(value)


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
    if n_labeled == 0:
        return "None of them came with a label, so all classes are new."
    return (
        f"{n_labeled:,} came with a label; of the other {int(unlabeled.sum()):,}, "
        f"{n_known:,} joined a known class and {n_novel:,} a newly found one."
    )


def _sizes(data: ReportData) -> str:
    if len(data.classes) < 2:
        return ""
    large, small = int(data.sizes.argmax()), int(data.sizes.argmin())
    return (
        f"The largest class is “{data.classes[large].name}” with "
        f"{count(int(data.sizes[large]), 'image')}, the smallest “{data.classes[small].name}” "
        f"with {count(int(data.sizes[small]), 'image')}."
    )


def _scores(data: ReportData) -> str:
    if not data.scores or not is_number(data.scores[-1].all):
        return ""
    best, baseline = data.scores[-1], data.scores[0]
    text = f"{best.name} is right for {percent(best.all)} of the {data.scored_on}"
    if len(data.scores) < 2 or best.all is None or baseline.all is None:
        return f"{text}."
    points = best.all - baseline.all
    if not math.isfinite(points):
        return f"{text}."
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
    least = min(median, 0.99)  # "100% or more" is none
    text = f"Half of the unlabeled images were sorted with a confidence of {least:.0%} or more"
    if doubtful == 0:
        return f"{text}, none below {DOUBTFUL:.0%}."
    look = "is worth a look" if doubtful == 1 else "are worth a look"
    return f"{text}; {count(doubtful, 'image')} below {DOUBTFUL:.0%} {look}."


def _inputs(data: ReportData) -> str:
    """Files in = sorted + set aside + ignored."""
    told = inputs_of(data)
    if told is None or not (told.set_aside or told.ignored):
        return ""
    n_aside, n_ignored = sum(told.set_aside.values()), sum(told.ignored.values())
    parts = [f"{_were(len(data.rows))} sorted"]
    if n_aside:
        parts.append(f"{_were(n_aside)} set aside ({_kinds(told.set_aside)})")
    if n_ignored:
        parts.append(f"{_were(n_ignored)} ignored ({_kinds(told.ignored)})")
    total = len(data.rows) + n_aside + n_ignored
    what = "files and rows" if any(map(is_row_alone, told.set_aside)) else "files"
    return f"Of {total:,} {what}, {', '.join(parts[:-1])} and {parts[-1]}."


def _were(number: int) -> str:
    return f"{number:,} {'was' if number == 1 else 'were'}"


def inputs_of(data: ReportData) -> Inputs | None:
    """As given, or counted from the list of files that were set aside."""
    if data.inputs is None and data.quarantine:
        return Inputs(set_aside=Counter(without_folders(why) for _, why in data.quarantine))
    return data.inputs


def _kinds(counts: Mapping[str, int], *, most: int = 4) -> str:
    """The most frequent kinds with their numbers: 12 truncated, 3 zero bytes."""
    kinds: Counter[str] = Counter()
    for reason, number in counts.items():
        kinds[reason.split(" (")[0]] += number
    ordered = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    told = [
        labels_alone(number) if kind == ROW_ALONE else f"{number:,} {kind}"
        for kind, number in ordered[:most]
    ]
    others = sum(number for _, number in ordered[most:])
    return ", ".join([*told, *([f"{others:,} others"] if others else [])])


def _problems(data: ReportData) -> str:
    outliers = 0 if data.rows.outlier is None else int(data.rows.outlier.sum())
    found = [
        (outliers, "image that fits no class", "images that fit no class"),
        (len(data.suspected or ()), "suspected label error", None),
        (len(data.duplicates or ()), "group of duplicates", "groups of duplicates"),
    ]
    named = [count(n, one, many) for n, one, many in found if n]
    return f"Also found: {', '.join(named)}." if named else ""
