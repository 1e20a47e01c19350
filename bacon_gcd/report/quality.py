"""How right the result is expected to be, of the whole run and of each class, in words."""

from __future__ import annotations

import math
from typing import NamedTuple

from bacon_gcd.report.contents import ClassInfo, Expected, ReportData, Share


class Meter(NamedTuple):
    """One estimated share: what it counts, how it is drawn and how it is written."""

    what: str
    width: float
    """Percent."""
    text: str


class Fact(NamedTuple):
    """One line about a class; `about` is a hint for the reader."""

    name: str
    value: str
    about: str


def share(value: float) -> str:
    """A share in 0..1 as whole percent."""
    return f"{100 * value:.0f}%"


def interval(found: Share) -> str:
    """The two ends in words; nothing where there is no interval or both ends read the same."""
    if found.low is None or found.high is None:
        return ""
    low, high = share(found.low), share(found.high)
    return "" if low == high else f"between {low} and {high}"


def expected_sentences(found: Expected | None) -> list[str]:
    """What a person may rely on, most important first."""
    if found is None or not _is_real(found.accuracy):
        return []
    ends = interval(found.accuracy)
    told = [
        f"Expect about {share(found.accuracy.value)} of the images without a label to be in the "
        f"right class{f' ({ends})' if ends else ''}, known and new classes together."
    ]
    if found.known_recall and found.known_precision:
        told.append(
            f"Of the images that belong to a known class, about {share(found.known_recall.value)} "
            f"were found again; of the images put into a known class, about "
            f"{share(found.known_precision.value)} belong there."
        )
    return told


def how_measured(found: Expected | None) -> str:
    """Where the estimates come from."""
    if found is None or not found.n_classes:
        return ""
    classes = (
        "1 known class was" if found.n_classes == 1 else f"{found.n_classes} known classes were"
    )
    images = f" ({found.n_images:,} labeled images were scored)" if found.n_images else ""
    again = (
        ""
        if found.halves is None
        else " Then everything was sorted by each half of the image features alone: "
        f"{share(found.halves)} of the images came into the same class, which counts in the "
        "estimate, too."
    )
    return (
        f"To estimate this, {classes} treated as new: their labels were hidden, everything was "
        f"sorted again, and the result was compared with the labels{images}.{again}"
    )


def expected_meters(found: Expected | None) -> list[Meter]:
    """The same as a small table."""
    if found is None:
        return []
    shares = (
        ("All images without a label: in the right class", found.accuracy),
        ("Images of known classes: found again (recall)", found.known_recall),
        ("Images put into known classes: belong there (precision)", found.known_precision),
        ("Images of new classes: put together rightly (recall)", found.new_recall),
        ("Images put into new classes: belong together (precision)", found.new_precision),
    )
    return [_meter(what, value) for what, value in shares if value and _is_real(value)]


def _meter(what: str, found: Share) -> Meter:
    ends = interval(found).removeprefix("between ").replace(" and ", " to ")
    text = f"about {share(found.value)}{f' ({ends})' if ends else ''}"
    return Meter(what, round(100 * found.value, 1), text)


def _is_real(found: Share) -> bool:
    return math.isfinite(found.value)


def class_facts(info: ClassInfo) -> list[Fact]:
    """What is known of one class beyond its size; estimates that are missing are left out."""
    estimates = (
        ("purity", info.purity, "of its images are expected to belong together"),
        ("precision", info.precision, "of the images put here are expected to belong here"),
        ("recall", info.recall, "of the images of this class are expected to be here"),
    )
    found = [
        Fact(name, f"about {share(value)}", f"About {share(value)} {meaning}")
        for name, value, meaning in estimates
        if value is not None and math.isfinite(value)
    ]
    if info.nearest_known:
        found.append(Fact("looks most like", info.nearest_known, "The nearest known class"))
    if info.second_choice:
        about = "The class that most of its images would be in otherwise"
        found.append(Fact("second choice", info.second_choice, about))
    return found


def name_proposals(info: ClassInfo) -> list[str]:
    """Names that a model suggests for a new class, with its confidence."""
    return [f"{name} ({share(sure)})" for name, sure in info.suggested_names]


def has_proposals(data: ReportData) -> bool:
    """Whether any class has suggested names."""
    return any(info.suggested_names for info in data.classes)
