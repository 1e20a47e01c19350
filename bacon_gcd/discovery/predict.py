"""`bacon predict`: new images under the classes of a finished run, by the names they have now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.settings import Tell, silent
from bacon_gcd.model import load_model, tokens_for
from bacon_gcd.system.devices import Device, device_line, find_device
from bacon_gcd.system.processes import agreed, refuse_differences

COLUMNS = (
    *("file_name", "class", "known", "confidence", "known_probability"),
    *("outlier", "outlier_score"),
)


def predict(
    run: str | Path,
    images: str | Path,
    *,
    features: str | Path | None = None,
    workers: int = 2,
    device: Device = None,
    tell: Tell | None = None,
) -> list[dict[str, Any]]:
    """One entry per image, with the values of COLUMNS.

    `outlier_score` is None for a model that does not have it (of `bacon train`, or of an earlier
    version), `outlier` for one that was stored without the radii of its classes, too.

    Args:
        run: of `bacon discover` or `bacon train`; corrections of the former are heeded.
        features: ready vectors of the images, for a run that was made from such.
        device: auto, cpu, cuda, cuda:N or mps; None is torch's default.
        tell: gets a line about what is going on.
    """
    where = find_device(device)
    with agreed():
        model = load_model(Path(run) / "model", device=where)
        table = read_images(images)
    refuse_differences("images", table.fingerprint, "all must see the same files")
    with agreed():
        source = tokens_for(model.backbone, table, features, workers=workers)
    (tell or silent)(device_line(where))
    found = model.answer(table.ids, source)
    now = names_now(Path(run))
    return [
        {
            "file_name": found.ids[row],
            "class": now[name].name if name in now else name,
            "known": now[name].known if name in now else bool(found.known[row]),
            "confidence": round(float(found.confidence[row]), 4),
            "known_probability": round(float(found.known_probability[row]), 4),
            "outlier": None if found.outlier is None else bool(found.outlier[row]),
            "outlier_score": (
                None if found.outlier_score is None else round(float(found.outlier_score[row]), 4)
            ),
        }
        for row, name in enumerate(found.names)
    ]


def names_now(run: Path) -> Mapping[str, FoundClass]:
    """Each class of a discover run -> what a person's corrections made of it.

    A merged class is where most of its images are now. A split one keeps its own part: the model
    tells the parts apart after a refit.
    """
    if not (run / "classes.json").exists():
        return {}
    before = DiscoverRun.load(run)
    rows, classes, *_ = corrected(before)
    now = {each.id: each for each in classes}
    by_name = {each.name: each for each in classes}
    moved: dict[str, Counter[str]] = {each.name: Counter() for each in before.classes}
    for old, new in zip(before.rows, rows, strict=True):
        moved[old.class_name][new.class_name] += 1
    left = {c.name: c for c in before.classes if c.id in now or moved[c.name]}
    return {
        name: now.get(each.id) or by_name[moved[name].most_common(1)[0][0]]
        for name, each in left.items()
    }
