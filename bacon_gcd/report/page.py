"""The report: one HTML file with everything in it, opened from disk without network or server."""

from __future__ import annotations

import json
import platform
import unicodedata
from collections.abc import Iterator, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from bacon_gcd import __version__
from bacon_gcd.report import choices, figures, sprites, summary, tree
from bacon_gcd.report.contents import ReportData
from bacon_gcd.system.files import write_atomic

__all__ = ["ReportData", "render", "write_report"]

JOINERS = "\u200c\u200d"  # invisible, but scripts and emoji are spelled with them
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pillow", "plotly")


def write_report(data: ReportData, path: Path | str) -> Path:
    """Write the page, whole or not at all."""
    write_atomic(Path(path), render(data).encode())
    return Path(path)


def render(data: ReportData) -> str:
    """The page as HTML. The same data give the same text."""
    galleries = choices.galleries(data)
    listed = _listed(data)
    faces = tree.faces(data)
    wanted = [*listed["rows"], *(row for gallery in galleries for row in gallery.rows)]
    wanted += [*faces.values(), *tree.near_any_line(data).tolist()]
    shown = choices.shown_rows(data, wanted)
    place = {int(row): number for number, row in enumerate(shown)}
    sheets = sprites.make_sprites(data.thumbnail, shown.tolist())
    return _template().render(
        data=data,
        galleries=galleries,
        **{name: entries for name, entries in listed.items() if name != "rows"},
        bars=figures.class_size_bars(data),
        styles=[figures.class_style(c) for c in range(len(data.classes))],
        place=place,
        faces=faces,
        drawing=data.tree and tree.draw(data.tree, len(data.classes)),
        sides=tree.sides(data),
        n_shown=len(shown),
        sentences=summary.sentences(data),
        tiles=summary.tiles(data),
        settings=list(_flat(data.settings)),
        versions=versions(),
        grid=sprites.GRID,
        tile=sheets.tile,
        sheets=[Markup(uri) for uri in sheets.data_uris()],  # noqa: S704  base64 of our own making
        training=Markup(data.training) if data.training else None,  # noqa: S704  drawn by figures.py
        payload=script_json(_payload(data, shown, place)),
        css=_part("page.css"),
        choose=_part("choose.js"),
        js=_part("page.js"),
        plotly=Markup(plotly.offline.get_plotlyjs()) if data.rows.xy is not None else "",  # noqa: S704
    )


def _listed(data: ReportData) -> dict[str, Any]:
    """The lists of the page, cut to a length one can look through, and the rows they need."""
    uncertain = choices.uncertain(data)
    suspected = data.suspected and data.suspected[: choices.MAX_LISTED]
    duplicates = data.duplicates and data.duplicates[: choices.MAX_LISTED]
    rows = [
        *(uncertain or ()),
        *(suspect.row for suspect in suspected or ()),
        *(row for group in duplicates or () for row in group.rows),
    ]
    lists = {"uncertain": uncertain, "suspected": suspected, "duplicates": duplicates}
    return lists | {"rows": rows}


def _payload(data: ReportData, shown: Any, place: dict[int, int]) -> dict[str, Any]:
    """What the script of the page works on."""
    classes = [
        {"name": visible(c.name), "known": c.known, **figures.class_style(number)}
        for number, c in enumerate(data.classes)
    ]
    ids = [visible(str(data.rows.ids[row])) for row in shown]
    found = tree.sides(data)
    return {
        "classes": classes,
        "ids": ids,
        "tree": tree.tree_columns(data, place),
        "sides": found and found._asdict(),
        **figures.map_columns(data, shown),
    }


def script_json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)  # noqa: S704


def visible(text: str) -> str:
    r"""Text whose every character can be seen: controls, lone surrogates and marks that turn the
    writing direction (as in a file that pretends to be another) show as \u202e."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}

    def seen(char: str) -> str:
        if unicodedata.category(char) not in hidden or char in JOINERS:
            return char
        return f"\\u{ord(char):04x}"

    return "".join(map(seen, text))


def versions() -> dict[str, str]:
    """What the report was made with; nothing is imported to find out."""
    found = {"bacon-gcd": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _template() -> jinja2.Template:
    """Every value of the template passes `visible` and is escaped."""

    def finalize(value: Any) -> Any:
        return visible(value) if type(value) is str else value

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bacon_gcd", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = summary.percent
    return environment.get_template("page.html")


def _part(name: str) -> Markup:
    """A file of this folder, to be inlined as it is."""
    return Markup(resources.files("bacon_gcd.report").joinpath(name).read_text("utf-8"))  # noqa: S704
