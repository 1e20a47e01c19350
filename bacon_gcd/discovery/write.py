"""The folder of a run: predictions, classes, features, tree, model, report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bacon_gcd.classes.tree import ClassTree, grow_tree
from bacon_gcd.config import to_toml
from bacon_gcd.discovery.folder import Prediction, write_matrix, write_predictions
from bacon_gcd.discovery.names import write_names
from bacon_gcd.discovery.result import Found
from bacon_gcd.discovery.settings import DiscoverSettings
from bacon_gcd.discovery.summary import expected_note, notes, write_page
from bacon_gcd.model import describe_backbone, save_model
from bacon_gcd.system.files import write_atomic, write_json
from bacon_gcd.system.progress import working
from bacon_gcd.system.tables import write_csv


def write_run(folder: Path, settings: DiscoverSettings, found: Found) -> None:
    """Write everything a later command needs, and the report."""
    table = found.inputs.table
    write_atomic(folder / "config.toml", to_toml(dataclasses.asdict(settings)).encode())
    write_predictions(
        folder,
        predictions(found),
        found.sized_classes,
        next_id=found.next_id,
        second=found.second_choices,
    )
    write_matrix(folder / "features.npy", found.features.numpy())
    if found.images.probabilities is not None:
        write_matrix(folder / "probabilities.npy", found.images.probabilities)
    groups = [
        {"kind": each.kind, "files": [table.ids[row] for row in each.rows]}
        for each in found.duplicates
    ]
    write_json(folder / "duplicates.json", groups)
    bad = [{"file_name": q.id, "reason": q.reason} for q in table.quarantine]
    write_csv(folder / "quarantine.csv", bad, columns=["file_name", "reason"])
    with working("coarser and finer classes"):
        tree = found.tree or tree_of(found, seed=settings.seed)
    write_json(folder / "tree.json", tree.as_dict())
    write_atomic(folder / "edits.jsonl", b"")
    write_names(folder, found.names)
    if found.expected is not None:
        write_json(folder / "expected.json", dataclasses.asdict(found.expected))
    told = [*notes(settings, found), *expected_note(found.expected)]
    write_model(folder / "model", settings, found, told)
    write_page(folder, settings, found, tree)


def write_model(folder: Path, settings: DiscoverSettings, found: Found, notes: list[str]) -> None:
    """Write the model that sorts new images as the run sorted its own."""
    save_model(
        folder,
        found.method,
        name=found.name,
        settings=dataclasses.asdict(found.method.settings),
        backbone=describe_backbone(found.inputs.backbone, tuned=found.inputs.tuned),
        class_names=found.class_names,
        sorter=found.sorter,
        threshold=settings.threshold,
        card="\n\n".join([f"# {found.name}, found by bacon discover", *notes]) + "\n",
    )


def tree_of(found: Found, *, seed: int) -> ClassTree:
    """Coarser and finer cuts of the classes that were found."""
    return grow_tree(
        found.features,
        found.images.class_ids,
        found.certain_rows,
        n_known=len(found.inputs.known),
        n_classes=len(found.classes),
        seed=seed,
    )


def predictions(found: Found) -> list[Prediction]:
    """One row per image, in the order of the table."""
    ids, names, labels = found.inputs.table.ids, found.class_names, found.inputs.labels
    s = found.images
    given = found.given or tuple(names[label] if label >= 0 else "" for label in labels)
    return [
        Prediction(
            file_name=ids[row],
            class_name=names[s.class_ids[row]],
            known=bool(s.class_ids[row] < len(found.inputs.known)),
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
