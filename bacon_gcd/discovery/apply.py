"""What a person's edits make of a run; the run's own files never change."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from bacon_gcd.config import UserError
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.edited import Applied, EditedRun
from bacon_gcd.discovery.edits import Edit, Line, edits_path, read_lines, undone_lines
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass, Prediction


class EditsWarning(UserWarning):
    """Some edits of a run cannot be applied and are left out."""


def replay(edited: EditedRun, lines: Sequence[Line]) -> list[str]:
    """Apply the lines of an edit file. Returns what is wrong with the lines that were left out."""
    undone, problems = undone_lines(lines)
    for line in lines:
        if line.edit is None:
            problems.append(f"line {line.number}: {line.problem}")
        elif line.number in undone:
            edited.skip(line.edit)
        elif line.edit["kind"] != "undo":
            try:
                edited.apply({"n": line.n, **line.edit})
            except UserError as error:
                problems.append(f"line {line.number}: {error}")
    return problems


def apply_edits(
    rows: Sequence[Prediction],
    classes: Sequence[FoundClass],
    edits: Sequence[Edit],
    *,
    earlier: Constraints | None = None,
    next_id: int = 0,
) -> Applied:
    """The edits in order. A moved or confirmed image is certain; a merged class is one class.

    Moves of different files commute, and so do confirmations; other edits depend on their order.
    An edit that cannot be applied is an error.
    """
    edited = EditedRun(rows, classes, earlier=earlier, next_id=next_id)
    lines = [Line(number, edit) for number, edit in enumerate(edits, 1)]
    for problem in replay(edited, lines):
        raise UserError(problem)
    return edited.result()


def edited_run(run: DiscoverRun) -> EditedRun:
    """A run without its edits, ready for them."""
    earlier = Constraints.read(run.folder)
    return EditedRun(run.rows, run.classes, earlier=earlier, next_id=run.next_id)


def corrected(run: DiscoverRun) -> Applied:
    """A run with the edits on disk; those that cannot be applied are left out, with a warning."""
    edited, path = edited_run(run), edits_path(run.folder)
    for problem in replay(edited, read_lines(path)):
        warnings.warn(f"{path}, {problem}; left out", EditsWarning, stacklevel=2)
    return edited.result()


def classes_now(before: DiscoverRun, applied: Applied) -> dict[str, FoundClass]:
    """Each class of a run -> what a person's corrections made of it; without those that are gone.

    A merged class is where most of its images are now. A split one keeps its own part: the model
    tells the parts apart after a refit.
    """
    now = {each.id: each for each in applied.classes}
    by_name = {each.name: each for each in applied.classes}
    moved: dict[str, Counter[str]] = {each.name: Counter() for each in before.classes}
    for old, new in zip(before.rows, applied.rows, strict=True):
        moved[old.class_name][new.class_name] += 1
    left = {c.name: c for c in before.classes if c.id in now or moved[c.name]}
    return {
        name: now.get(each.id) or by_name[moved[name].most_common(1)[0][0]]
        for name, each in left.items()
    }
