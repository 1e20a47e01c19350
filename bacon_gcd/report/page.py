"""The report: one HTML file with everything in it, opened from disk without network or server."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from bacon_gcd import __version__
from bacon_gcd.report import choices, columns, figures, quality, sprites, summary, tree
from bacon_gcd.report.contents import ReportData
from bacon_gcd.report.text import breakable, without_folders
from bacon_gcd.system.files import write_atomic
from bacon_gcd.system.text import visible

__all__ = ["ReportData", "render", "visible", "write_report"]

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pillow")
SCRIPTS = (
    *("images.js", "detail.js", "gallery.js", "choose.js"),
    *("view.js", "legend.js", "drawing.js", "map.js"),
    "page.js",  # starts the others
)


def write_report(data: ReportData, path: Path | str) -> Path:
    """Write the page, whole or not at all; links to images are relative to its folder."""
    path = Path(path)
    write_atomic(path, render(data, folder=path.parent).encode())
    return path


def render(data: ReportData, *, folder: Path | None = None) -> str:
    """The page as HTML. The same data give the same text.

    folder: where the page will be, for links to the images; None: no links.
    """
    galleries = choices.galleries(data)
    lists = Lists.of(data)
    shown = choices.shown_rows(data, _wanted(data, galleries, lists))
    listed = choices.listed_rows(data, shown)
    thumbnails = sprites.make_sprites(data.thumbnail, shown.tolist())
    payload = columns.payload(data, shown, listed, folder)
    return _template().render(
        data=data,
        galleries=galleries,
        example_of={gallery.class_id: gallery.example for gallery in galleries},
        lists=lists,
        tile_of={int(row): number for number, row in enumerate(shown)},
        n_shown=len(shown),
        n_listed=len(listed),
        **_figures(data),
        **_words(data),
        **_inlined(data, thumbnails),
        unlinked=-1 in payload.get("base", ()),
        payload=columns.script_element(payload),
    )


class Lists(NamedTuple):
    """The lists of the page, cut to a length one can look through."""

    uncertain: list[int] | None
    suspected: Any
    duplicates: Any

    @classmethod
    def of(cls, data: ReportData) -> Lists:
        """The first entries of each."""
        suspected = data.suspected and data.suspected[: choices.MAX_LISTED]
        duplicates = data.duplicates and data.duplicates[: choices.MAX_LISTED]
        return cls(choices.uncertain(data), suspected, duplicates)

    @property
    def rows(self) -> list[int]:
        """All rows they show."""
        return [
            *(self.uncertain or ()),
            *(suspect.row for suspect in self.suspected or ()),
            *(row for group in self.duplicates or () for row in group.rows),
        ]


def _wanted(data: ReportData, galleries: list[choices.Gallery], lists: Lists) -> list[int]:
    """Rows that need a thumbnail, whichever others get one."""
    in_classes = [row for gallery in galleries for row in gallery.rows]
    in_tree = [*tree.examples(data).values(), *tree.near_any_threshold(data).tolist()]
    return [*lists.rows, *in_classes, *in_tree]


def _figures(data: ReportData) -> dict[str, Any]:
    """What is drawn without a script."""
    return {
        "bars": figures.class_size_bars(data),
        "estimates": figures.estimates(data),
        "examples": tree.examples(data),
        "drawing": data.tree and tree.draw(data.tree, len(data.classes)),
        "sides": tree.sides(data),
        "training": Markup(data.training) if data.training else None,  # noqa: S704  by figures.py
    }


def _words(data: ReportData) -> dict[str, Any]:
    """What is told; absolute paths of the machine are cut to their last name."""
    quarantine = data.quarantine
    return {
        "sentences": [without_folders(each) for each in summary.sentences(data)],
        "tiles": summary.tiles(data),
        "meters": quality.expected_meters(data.expected),
        "how_measured": quality.how_measured(data.expected),
        "chosen": [without_folders(each) for each in data.chosen],
        "inputs": summary.inputs_of(data),
        "quarantine": quarantine and [(f, without_folders(why)) for f, why in quarantine[:1000]],
        "settings": [(name, without_folders(value)) for name, value in _flat(data.settings)],
        "versions": versions(),
    }


def _inlined(data: ReportData, thumbnails: sprites.Sprites) -> dict[str, Any]:
    """Stylesheet, scripts and thumbnails, as they are."""
    return {
        "css": _part("page.css"),
        "scripts": [_part(name) for name in SCRIPTS],
        "grid": sprites.GRID,
        "tile": thumbnails.tile,
        "sheets": [Markup(uri) for uri in thumbnails.data_uris()],  # noqa: S704  our own base64
    }


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


@functools.cache
def _template() -> jinja2.Template:
    """Every value of the template passes `visible` and is escaped. Compiling takes 0.2 s."""

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
    environment.filters |= {
        "percent": summary.percent,
        "number": "{:,}".format,
        "breakable": breakable,
    }
    environment.globals |= {
        "class_facts": quality.class_facts,
        "name_proposals": quality.name_proposals,
        "has_proposals": quality.has_proposals,
        "share": quality.share,
    }
    return environment.get_template("page.html")


def _part(name: str) -> Markup:
    """A file of this folder, to be inlined as it is."""
    return Markup(resources.files("bacon_gcd.report").joinpath(name).read_text("utf-8"))  # noqa: S704
