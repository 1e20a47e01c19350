"""Learn from a person's corrections: the images of a run, sorted again under what was said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from bacon_gcd.config import UserError, choose
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.corrected import Corrected, corrections_of
from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.edits import edits_path, read_edits
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.inputs import Inputs, read_inputs, refuse_changed
from bacon_gcd.discovery.pipeline import find
from bacon_gcd.discovery.result import Discovery, Found
from bacon_gcd.discovery.settings import (
    EFFORTS,
    Range,
    Tell,
    parse_classes,
    settings_of,
    silent,
)
from bacon_gcd.discovery.write import write_run
from bacon_gcd.system.devices import Device, find_device
from bacon_gcd.system.files import replacing_folder


def refit(
    run: str | Path,
    out: str | Path,
    *,
    effort: str | None = None,
    classes: str | int | None = None,
    workers: int = 2,
    device: Device = None,
    tell: Tell | None = None,
) -> Discovery:
    """Sort the images of a run again, with the corrections of `bacon review` as labels and rules.

    Confirmed images stay where the person put them, merged classes stay together, and a wrong image
    leaves its class. Ids and names are kept. The run itself does not change.

    Args:
        out: folder of the new run; it must not exist yet.
        effort: quick, normal or thorough; that of the run, unless given.
        classes: auto, a number or a range; as many as the person left, unless given.
        device: auto, cpu, cuda, cuda:N or mps; None is torch's default.
        tell: gets a line now and then about what is going on.
    """
    before, where = DiscoverRun.load(run), find_device(device)
    applied = corrected(before)
    left = corrections_of(before, applied)
    asked = settings_of(
        before.config,
        str(before.folder),
        classes=str(classes or len(left.classes)),
        refit=str(before.folder),
    )
    asked = dataclasses.replace(asked, effort=choose("effort", effort or asked.effort, EFFORTS))
    allowed = parse_classes(asked.classes)
    refuse_too_few(allowed, asked.classes, left)
    tell = tell or silent
    if not read_edits(edits_path(before.folder)):
        tell(f"{before.folder}: no corrections to learn from; its images are only sorted again")
    with replacing_folder(Path(out)) as draft:
        settings, inputs = read_inputs(asked, workers=workers, device=where, tell=tell)
        refuse_changed(before, inputs.table)
        certain = certain_inputs(inputs, left)
        found = find(settings, certain, allowed, draft / "log.jsonl", left, device=where)
        found = dataclasses.replace(found, given=tuple(row.label for row in before.rows))
        write_run(draft, settings, found)
        remembered(applied, found).write(draft)
        tell(f"{n_moved(applied, found)} images are in another class than before")
    return Discovery(out)


def refuse_too_few(allowed: Range | None, given: str, left: Corrected) -> None:
    """Refuse to give up classes that corrections require, or to make more than images can fill."""
    if allowed is None:
        return
    fewest, most = int(left.required.sum()), left.most_classes
    if allowed[1] < fewest:
        raise UserError(f"--classes {given}: labels and corrections name {fewest} classes already")
    if allowed[0] > most:
        free = most - len(left.classes)
        raise UserError(
            f"--classes {given}: {len(left.classes)} classes and {free} images that are free to "
            f"move make at most {most}"
        )


def certain_inputs(inputs: Inputs, left: Corrected) -> Inputs:
    """The images as training sees them: every class with a certain image is one with labels."""
    seen = np.unique(left.class_ids[left.certain])
    labels = np.where(left.certain, np.searchsorted(seen, left.class_ids), -1).astype(np.int64)
    known = tuple(left.classes[c].name for c in seen)
    return dataclasses.replace(inputs, labels=labels, known=known)


def remembered(applied: Applied, found: Found) -> Constraints:
    """What the next refit of the new run has to respect, too."""
    names = set(found.class_names)
    apart = tuple(pair for pair in applied.constraints.cannot_link if pair[1] in names)
    return dataclasses.replace(applied.constraints, cannot_link=apart, next_id=found.next_id)


def n_moved(applied: Applied, found: Found) -> int:
    """How many images are in another class than the person left them in."""
    before = [row.class_name for row in applied.rows]
    after = [found.class_names[c] for c in found.images.class_ids]
    return sum(a != b for a, b in zip(before, after, strict=True))
