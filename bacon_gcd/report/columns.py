"""What the page's scripts work on: columns of plain values, compressed where they are large."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from bacon_gcd.report import tree
from bacon_gcd.report.contents import FloatArray, IntArray, ReportData
from bacon_gcd.report.figures import class_style
from bacon_gcd.report.links import link_columns
from bacon_gcd.report.text import script_json
from bacon_gcd.system.text import visible

PLAIN = 1_000_000  # bytes of JSON that are written as they are; more is compressed


def payload(
    data: ReportData, shown: IntArray, listed: IntArray, folder: Path | None
) -> dict[str, Any]:
    """Everything the scripts know. Image n has thumbnail n, as far as there are thumbnails."""
    found = tree.sides(data)
    return {
        "classes": class_columns(data),
        "n_shown": len(shown),
        "tree": tree.tree_columns(data, {int(row): n for n, row in enumerate(shown)}),
        "sides": found and found._asdict(),
        **image_columns(data, listed),
        **map_columns(data, shown),
        **link_columns(data.rows.ids, listed.tolist(), data.file, folder),
    }


def class_columns(data: ReportData) -> list[dict[str, Any]]:
    """Name, kind, size and style of every class."""
    return [
        {
            "name": visible(info.name),
            "known": info.known,
            "size": int(data.sizes[number]),
            **class_style(number),
        }
        for number, info in enumerate(data.classes)
    ]


def image_columns(data: ReportData, listed: IntArray) -> dict[str, list[Any]]:
    """Names and facts of every listed image."""
    rows = data.rows
    columns: dict[str, list[Any]] = {
        "ids": [visible(str(rows.ids[row])) for row in listed],
        "class_id": rows.class_ids[listed].tolist(),
        "labeled": rows.labeled[listed].astype(int).tolist(),
    }
    if rows.confidence is not None:
        digits = 3 if len(listed) < PLAIN // 10 else 2
        columns["confidence"] = _plain(rows.confidence[listed], digits=digits)
    if rows.outlier is not None:
        columns["outlier"] = rows.outlier[listed].astype(int).tolist()
    if rows.second_choice is not None:
        columns["second_choice"] = rows.second_choice[listed].tolist()
    if rows.nearest_known is not None:
        columns["nearest_known"] = rows.nearest_known[listed].tolist()
    return columns


def map_columns(data: ReportData, shown: IntArray) -> dict[str, list[Any]]:
    """What the map and the threshold need of every shown image.

    Coordinates are scaled to 0..1000 on both axes; neighbors are positions in `shown`, and those
    that are not shown are left out.
    """
    rows = data.rows
    columns: dict[str, list[Any]] = {}
    if rows.known_probability is not None:
        columns["known_probability"] = _plain(rows.known_probability[shown], digits=4)
    if rows.xy is not None:
        x, y = _scaled(np.asarray(rows.xy)).T
        columns |= {"x": _plain(x[shown], digits=1), "y": _plain(y[shown], digits=1)}
    if rows.neighbors is not None:
        columns["neighbors"] = _neighbors(rows.neighbors, shown)
    return columns


def script_element(value: Any) -> Markup:
    """The payload as a script element: JSON, or gzipped JSON in base64 where it is large."""
    text = script_json(value)
    if len(text) <= PLAIN:
        return Markup(f'<script type="application/json" id="payload">{text}</script>')  # noqa: S704
    packed = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
    return Markup(f'<script type="application/gzip" id="payload">{packed}</script>')  # noqa: S704


def _plain(values: FloatArray, *, digits: int) -> list[float | None]:
    """Rounded numbers, None for what is not finite: JSON has no NaN."""
    rounded = np.round(values.astype(np.float64), digits).tolist()
    finite = np.isfinite(values).tolist()
    return [value if real else None for value, real in zip(rounded, finite, strict=True)]


def _scaled(xy: FloatArray) -> FloatArray:
    finite = xy[np.isfinite(xy).all(axis=1)]
    if len(finite) == 0:
        return xy
    low, span = finite.min(axis=0), np.ptp(finite, axis=0)
    scaled: FloatArray = 1000 * (xy - low) / np.where(span > 0, span, 1.0)
    return scaled


def _neighbors(neighbors: IntArray, shown: IntArray) -> list[list[int]]:
    position = np.full(len(neighbors) + 1, -1)  # the last entry answers for neighbor -1
    position[shown] = np.arange(len(shown))
    return [[int(p) for p in position[near] if p >= 0] for near in neighbors[shown]]
