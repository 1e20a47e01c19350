"""`bacon update`: more images for a finished run. Nothing is trained, and nothing old moves."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.bank import ReadyTokens
from bacon_gcd.classes.assign import Sorted, suspects
from bacon_gcd.classes.map import between
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.data.joined import join
from bacon_gcd.discovery.apply import classes_now, corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.duplicates import find_duplicates
from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.inputs import Inputs
from bacon_gcd.discovery.new_classes import with_labeled, with_opened
from bacon_gcd.discovery.pipeline import centroid_method
from bacon_gcd.discovery.predict import not_read
from bacon_gcd.discovery.recut import duplicates_of, inputs_of
from bacon_gcd.discovery.result import Discovery, Found
from bacon_gcd.discovery.run_classes import Arrived, Classes, classes_of
from bacon_gcd.discovery.second import Second, read_second
from bacon_gcd.discovery.settings import DiscoverSettings, Tell, settings_of, silent
from bacon_gcd.discovery.write import write_run
from bacon_gcd.model import CENTROID_METHOD, Model, load_model, tokens_for
from bacon_gcd.system.devices import Device, device_line, find_device
from bacon_gcd.system.files import replacing_folder

IntArray = npt.NDArray[np.int64]


def update(
    run: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    labels: str | Path | None = None,
    features: str | Path | None = None,
    workers: int = 2,
    device: Device = None,
    tell: Tell | None = None,
) -> Discovery:
    """Add images to a run: into its classes, or into new ones where several fit nowhere.

    The run counts as corrected by `bacon review`. Its images keep their class, its classes their
    ids and names. A label that names a class holds an image there; any other opens a known class.

    Args:
        out: folder of the new run; it must not exist yet.
        labels: a table of labels beside a folder of images.
        features: ready vectors of the images, for a run that was made from such.
        device: auto, cpu, cuda, cuda:N or mps; None is torch's default.
        tell: gets a line now and then about what is going on.
    """
    before, where = DiscoverRun.load(run), find_device(device)
    applied = corrected(before)
    with replacing_folder(Path(out)) as draft:
        table = read_images(images, labels)
        settings, key = with_source(before, images, labels, features)
        new = new_features(
            before, table, features, workers=workers, device=where, tell=tell or silent
        )
        with torch.device("cpu"):  # classes, neighbors and report are made there
            found = grow(before, applied, settings, key, table, new)
            shutil.copyfile(before.folder / "log.jsonl", draft / "log.jsonl")
            write_run(draft, settings, found)
        if applied.constraints != Constraints():
            applied.constraints.write(draft)
        was = {each.id for each in applied.classes}
        n_new = sum(each.id not in was for each in found.classes)
        (tell or silent)(f"{len(table)} images added to {len(before.rows)}, {n_new} new classes")
    return Discovery(out)


def with_source(
    before: DiscoverRun,
    images: str | Path,
    labels: str | Path | None,
    features: str | Path | None,
) -> tuple[DiscoverSettings, str]:
    """The run's settings with one more source, and the key that its images' ids begin with."""
    given = {"source": images, "labels": labels, "features": features}
    paths = {what: str(Path(path).absolute()) for what, path in given.items() if path is not None}
    taken = {row.file_name.partition("/")[0] for row in before.rows} | set(before.added)
    numbers = count(len(before.added) + 1)
    key = next(name for n in numbers if (name := f"added-{n}") not in taken)
    added = {**before.config.get("added", {}), key: paths}
    folder = str(before.folder)
    return settings_of(before.config, folder, update=folder, added=added), key


def new_features(
    before: DiscoverRun,
    table: ImageTable,
    vectors: str | Path | None,
    *,
    workers: int,
    device: torch.device,
    tell: Tell,
) -> Tensor:
    """(n, D) unit features of new images, by the model of the run."""
    model = load_model(before.folder / "model", device=device)
    tokens = tokens_for(model.backbone, table, vectors, workers=workers)
    for line in (*not_read(table), device_line(device)):
        tell(line)
    return model.features(tokens).cpu()


def grow(
    before: DiscoverRun,
    applied: Applied,
    settings: DiscoverSettings,
    key: str,
    table: ImageTable,
    new: Tensor,
) -> Found:
    """The run with the images of the table, N of its own and n new ones.

    new: (n, D) unit features of the new images.
    """
    model = load_model(before.folder / "model", device="cpu")
    was = dataclasses.replace(settings, added=before.config.get("added"))
    old = inputs_of(before, was, model)
    own = torch.from_numpy(np.array(before.features))
    classes = classes_of(before, applied, own, model, seed=settings.seed)
    names = class_names_of(table, applied)
    classes = with_labeled(classes, new, names)
    classes, opened = with_opened(classes, new, names, table.contents, seed=settings.seed)
    inputs = Inputs(
        join({"": old.table, key: table}),
        np.concatenate([classes.labels(applied.rows), classes.positions(names)]),
        classes.known,
        model.backbone,
        old.tuned,
        ReadyTokens(torch.cat([own, new]).numpy()),
    )
    return grown(before, applied, model, classes, inputs, own, new, opened)


def class_names_of(table: ImageTable, applied: Applied) -> list[str]:
    """(n,) the class that each label means, "" = unlabeled.

    A label the run knows under another name by now (`cat`, renamed to `kitty`) means that class.
    """
    called: dict[str, Counter[str]] = {}
    for row in applied.rows:
        if row.label:
            called.setdefault(row.label, Counter())[row.class_name] += 1
    now = {label: names.most_common(1)[0][0] for label, names in called.items()}
    now |= {each.name: each.name for each in applied.classes}
    given = [table.class_names[label] if label >= 0 else "" for label in table.labels]
    return [now.get(label, label) for label in given]


def grown(
    before: DiscoverRun,
    applied: Applied,
    model: Model,
    classes: Classes,
    inputs: Inputs,
    own: Tensor,
    new: Tensor,
    opened: IntArray,
) -> Found:
    """Everything that the folder of the grown run holds.

    Args:
        own, new: (N, D), (n, D) features.
        opened: (n,) the class that a new image helped to open, -1 = none.
    """
    features = torch.cat([own, new])
    neighbors = nearest(features)
    method = centroid_method(model.method, inputs, len(classes.found))
    method.set_centroids(classes.centroids, temperature=classes.temperature)
    table, n_own = inputs.table, len(own)
    added = [table.class_names[c] if c >= 0 else "" for c in table.labels[n_own:]]
    arrived = classes.sort(new, inputs.labels[n_own:], opened)
    return Found(
        inputs=inputs,
        method=method,
        name=CENTROID_METHOD,
        classes=classes.found,
        next_id=classes.next_id,
        features=features,
        images=sorted_rows(applied, classes, inputs.labels, arrived, neighbors),
        neighbors=neighbors,
        xy=map_positions(before, own, new),
        duplicates=find_duplicates(
            table, features, neighbors, since=n_own, earlier=duplicates_of(before)
        ),
        given=(*(row.label for row in before.rows), *added),
        certain=(inputs.labels >= 0) | np.isin(table.ids, list(applied.constraints.confirmed)),
        sorter=classes.sorter,
        second=second_before(before, applied, classes).and_of(arrived.second),
    )


def second_before(before: DiscoverRun, applied: Applied, classes: Classes) -> Second:
    """The second choices of the run's own images, by the classes that they mean now."""
    now = classes_now(before, applied)
    positions = classes.positions([each.name for each in now.values()]).tolist()
    found = read_second(before.folder, dict(zip(now, positions, strict=True)), len(before.rows))
    own = classes.positions([row.class_name for row in applied.rows])
    return found.without(found.class_ids == own)


def sorted_rows(
    applied: Applied,
    classes: Classes,
    labels: IntArray,
    arrived: Arrived,
    neighbors: IntArray,
) -> Sorted:
    """The run's rows as they are, and the new ones by their label or the evidence."""
    rows, n_new = applied.rows, len(arrived.class_ids)
    class_ids = np.concatenate(
        [classes.positions([row.class_name for row in rows]), arrived.class_ids]
    )
    suggested = classes.positions([row.suggested if row.suspected else "" for row in rows])
    return Sorted(
        class_ids,
        np.concatenate([[row.confidence for row in rows], arrived.confidence]),
        np.concatenate([[row.known_probability for row in rows], arrived.known_probability]),
        np.concatenate([[row.outlier for row in rows], arrived.outlier]),
        np.concatenate([suggested, suspects(labels, class_ids, neighbors)[-n_new:]]),
    )


def map_positions(before: DiscoverRun, own: Tensor, new: Tensor) -> npt.NDArray[np.float32]:
    """(N + n, 2) the run's map as it is; new images in the middle of those that look like them."""
    xy = np.array([[row.x, row.y] for row in before.rows], dtype=np.float32)
    return np.concatenate([xy, between(new, own, xy)])
