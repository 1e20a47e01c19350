"""`bacon predict`: new images under the classes of a finished run, by the names they have now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bacon_gcd.data.entries import describe_ignored
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.data.remarks import unreadable_remark
from bacon_gcd.discovery import second
from bacon_gcd.discovery.apply import classes_now, corrected
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.settings import Tell, silent
from bacon_gcd.model import Answers, Model, load_model, tokens_for
from bacon_gcd.system.devices import Device, device_line, find_device
from bacon_gcd.system.processes import agreed, refuse_differences

COLUMNS = (
    *("file_name", "class", "known", "confidence", "known_probability"),
    *("outlier", "outlier_score", *second.COLUMNS),
)


@dataclass(frozen=True, eq=False)
class Predicted:
    """New images with their classes, and the files that were not read."""

    rows: list[dict[str, Any]]
    """One entry per image, with the values of COLUMNS."""
    table: ImageTable

    @property
    def counts(self) -> dict[str, int | None]:
        """How many images are in known classes, in new ones, and in none; they add up.

        Outliers are None where the model cannot tell them; they count in their classes then.
        """
        fitting = [row["known"] for row in self.rows if not row["outlier"]]
        told = any(row["outlier"] is not None for row in self.rows)
        return {
            "images": len(self.rows),
            "known": sum(fitting),
            "new": len(fitting) - sum(fitting),
            "outliers": len(self.rows) - len(fitting) if told else None,
        }

    def line(self) -> str:
        """The counts in words."""
        found = self.counts
        outliers = found["outliers"]
        ends = "" if outliers is None else f", {_number(outliers, 'outlier')}"
        images = _number(len(self.rows), "image")
        return f"{images}: {found['known']} in known classes, {found['new']} in new ones{ends}"

    def facts(self) -> dict[str, Any]:
        """All of it as plain values."""
        bad = [{"file_name": each.id, "reason": each.reason} for each in self.table.quarantine]
        return {
            "predictions": self.rows,
            "counts": self.counts,
            "unreadable": bad,
            "ignored": dict(self.table.ignored),
        }


def predict(
    run: str | Path,
    images: str | Path,
    *,
    features: str | Path | None = None,
    workers: int = 2,
    device: Device = None,
    tell: Tell | None = None,
) -> list[dict[str, Any]]:
    """One entry per image, with the values of COLUMNS; see `predicted`."""
    return predicted(run, images, features=features, workers=workers, device=device, tell=tell).rows


def predicted(
    run: str | Path,
    images: str | Path,
    *,
    features: str | Path | None = None,
    workers: int = 2,
    device: Device = None,
    tell: Tell | None = None,
) -> Predicted:
    """The images under the classes of a run.

    `outlier_score` is None for a model that does not have it (of `bacon train`, or of an earlier
    version), `outlier` for one that was stored without the radii of its classes, too.

    Args:
        run: of `bacon discover` or `bacon train`; corrections of the former are heeded.
        features: ready vectors of the images, for a run that was made from such.
        device: auto, cpu, cuda, cuda:N or mps; None is torch's default.
        tell: gets a line about what is going on, and about files that cannot be read.
    """
    where = find_device(device)
    with agreed():
        model = load_model(Path(run) / "model", device=where)
        table = read_images(images)
    refuse_differences("images", table.fingerprint, "all must see the same files")
    with agreed():
        source = tokens_for(model.backbone, table, features, workers=workers)
    for line in (*not_read(table), device_line(where)):
        (tell or silent)(line)
    found = model.answer(table.ids, source)
    return Predicted(rows_of(found, classes_of(model, Path(run))), table)


def not_read(table: ImageTable) -> list[str]:
    """One line about files that cannot be read, and one about files of other kinds."""
    told = unreadable_remark(table.quarantine)
    if table.ignored:
        n_ignored = _number(sum(table.ignored.values()), "other file")
        told.append(f"{n_ignored} ignored: {describe_ignored(table.ignored)}")
    return told


def _number(count: int, what: str) -> str:
    """`1 image`, `2 images`."""
    return f"{count} {what}{'s' * (count != 1)}"


def rows_of(found: Answers, classes: Sequence[FoundClass]) -> list[dict[str, Any]]:
    """One entry per image. classes: what each class of the model is now."""
    names = [each.name for each in classes]
    merged = np.array([names.index(name) for name in names], dtype=np.int64)
    others = second.second_of(found.probabilities, found.class_ids, merged).cells(names)
    return [
        {
            "file_name": found.ids[row],
            "class": classes[number].name,
            "known": classes[number].known,
            "confidence": round(float(found.confidence[row]), 4),
            "known_probability": round(float(found.known_probability[row]), 4),
            "outlier": None if found.outlier is None else bool(found.outlier[row]),
            "outlier_score": (
                None if found.outlier_score is None else round(float(found.outlier_score[row]), 4)
            ),
            **others[row],
        }
        for row, number in enumerate(found.class_ids.tolist())
    ]


def classes_of(model: Model, run: Path) -> list[FoundClass]:
    """What each class of the model is now."""
    now, n_known = names_now(run), model.method.task.n_known
    return [
        now.get(name, FoundClass(number, name, known=number < n_known))
        for number, name in enumerate(model.class_names)
    ]


def names_now(run: Path) -> Mapping[str, FoundClass]:
    """Each class of a discover run -> what a person's corrections made of it."""
    if not (run / "classes.json").exists():
        return {}
    before = DiscoverRun.load(run)
    return classes_now(before, corrected(before))
