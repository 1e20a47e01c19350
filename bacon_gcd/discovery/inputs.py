"""What a run was made of: the images and ready vectors it began with, and those added later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bacon_gcd.config import UserError
from bacon_gcd.data.images import ImageTable, read_images
from bacon_gcd.data.joined import join
from bacon_gcd.data.vector_files import read_features
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.material import read_table
from bacon_gcd.discovery.result import DiscoverSettings


def tables_of(settings: DiscoverSettings) -> dict[str, ImageTable]:
    """The table of each source; the key is what its ids begin with, "" for the first source."""
    first = read_table(Path(settings.source), Path(settings.labels) if settings.labels else None)
    return {"": first} | {
        key: read_images(each["source"], each.get("labels"))
        for key, each in (settings.added or {}).items()
    }


def joined(tables: Mapping[str, ImageTable]) -> ImageTable:
    """All images of a run, in the order of its rows."""
    return join(tables) if len(tables) > 1 else next(iter(tables.values()))


def images_of(settings: DiscoverSettings) -> ImageTable:
    """The same from the settings alone."""
    return joined(tables_of(settings))


def refuse_changed(before: DiscoverRun, table: ImageTable) -> None:
    """A finished run says nothing of images or labels that are not its own."""
    labels = [table.class_names[label] if label >= 0 else "" for label in table.labels]
    was = [(row.file_name, row.label) for row in before.rows]
    if was != list(zip(table.ids, labels, strict=True)):
        raise UserError(
            f"{before.source}: images or labels are not those of {before.folder} any more; "
            "sort them anew with: bacon discover"
        )


def vectors_of(
    settings: DiscoverSettings, tables: Mapping[str, ImageTable]
) -> npt.NDArray[np.float32]:
    """(N, D) ready vectors of all images of a run that was made from such."""
    files = {"": settings.features} | {
        key: each["features"] for key, each in (settings.added or {}).items()
    }
    return np.concatenate(
        [read_features(Path(str(files[key])), table) for key, table in tables.items()]
    )
