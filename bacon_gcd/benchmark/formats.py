"""A table as text: Markdown, LaTeX, CSV, JSON or HTML."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bacon_gcd.benchmark.tables import Key, Number, Table, backbone_name, facts_line, warning
from bacon_gcd.config import choose
from bacon_gcd.system.tables import safe_cell

WORDS = {
    "known_many": "many",
    "known_median": "median",
    "known_few": "few",
    "known_std": "std",
    "novel_many": "new many",
    "novel_median": "new median",
    "novel_few": "new few",
    "novel_std": "new std",
}
BESIDE = {
    "by name: all": (None, "anchored.all"),
    "by name: old": (None, "anchored.old"),
    "by name: new": (None, "anchored.new"),
    "placed: all": ("placed", "all"),
    "placed: old": ("placed", "old"),
    "placed: new": ("placed", "new"),
    "NMI": (None, "nmi"),
    "ARI": (None, "ari"),
}
LEGEND = "Accuracy in percent, mean ± standard deviation over seeds; (paper); best of ours in bold."
SECONDS = {"s per epoch": "per_epoch", "CPU s per epoch": "cpu_per_epoch"}
NOT_RUN = "–"


@dataclass(frozen=True)
class Text:
    """A piece of a cell."""

    plain: str
    bold: bool = False
    after: str = ""
    """Never bold: the paper's number."""


Grid = list[list[Text]]


def render(table: Table, kind: str, *, against: str | None = None) -> str:
    """The table in one of the formats.

    against: label of a row; differences from it are added, with paired intervals (not in CSV).
    """
    return FORMATS[choose("format", kind, FORMATS)](table, against)


def number_text(number: Number | None, digits: int = 1) -> str:
    """45.2 ± 0.3; a dash where nothing was run."""
    if number is None:
        return NOT_RUN
    spread = "" if number.std is None else f" ± {number.std:.{digits}f}"
    return f"{number.mean:.{digits}f}{spread}"


def main_grid(table: Table) -> Grid:
    """Header and one line per row: ours beside the paper's number."""
    experiment = table.experiment
    many = len(experiment.columns) > 1
    pairs = [(column, score) for column in experiment.columns for score in experiment.scores]
    heads = [
        f"{column.label} {WORDS.get(score, score)}" if many else WORDS.get(score, score)
        for column, score in pairs
    ]
    lines = [[Text("method"), *(Text(head) for head in heads)]]
    for row in experiment.rows:
        cells = []
        for column, score in pairs:
            number = table.number((row.label, column.label), score)
            paper = experiment.number(row, column).get(score)
            best = number is not None and round(number.mean, 1) == table.best(column.label, score)
            cells.append(
                Text(number_text(number), best, "" if paper is None else f" ({paper:.1f})")
            )
        lines.append([Text(row.label), *cells])
    return lines


def beside_grid(table: Table) -> Grid:
    """What the paper does not show: by name, our own placing, NMI, ARI, time."""
    experiment = table.experiment
    lines = [[Text(name) for name in ("method", "data", *BESIDE, *SECONDS)]]
    for column in experiment.columns:
        for row in experiment.rows:
            key = (row.label, column.label)
            if not table.cells[key]:
                continue
            cells = [
                number_text(table.number(key, score, block), 3 if score in ("nmi", "ari") else 1)
                for block, score in BESIDE.values()
            ]
            cells += [number_text(fastest(table, key, name)) for name in SECONDS.values()]
            lines.append([Text(cell) for cell in (row.label, column.label, *cells)])
    return lines


def fastest(table: Table, key: Key, name: str) -> Number | None:
    """Seconds of the seed that other work on the machine disturbed least."""
    found = [cell.seconds[name] for cell in table.cells[key] if name in cell.seconds]
    return Number.of([min(found)]) if found else None


def difference_grid(table: Table, against: str) -> Grid:
    """Every row less one of them, paired by seed, with 95 % intervals."""
    experiment = table.experiment
    lines = [
        [
            Text(f"minus {against}"),
            Text("data"),
            *(Text(s) for s in experiment.scores),
            Text("seeds"),
        ]
    ]
    for column in experiment.columns:
        for row in experiment.rows:
            found = [
                table.difference(row.label, against, column.label, score)
                for score in experiment.scores
            ]
            if row.label == against or all(each is None for each in found):
                continue
            told = [
                NOT_RUN
                if each is None
                else f"{each.mean:+.1f}" + ("" if each.half is None else f" ± {each.half:.1f}")
                for each in found
            ]
            bold = [each is not None and each.sign != 0 for each in found]
            seeds = max(each.seeds for each in found if each is not None)
            cells = [Text(text, strong) for text, strong in zip(told, bold, strict=True)]
            lines.append([Text(row.label), Text(column.label), *cells, Text(str(seeds))])
    return lines


def _parts(table: Table, against: str | None) -> Iterator[tuple[str, Grid]]:
    """The grids of a table with the line above each."""
    yield LEGEND, main_grid(table)
    if table.results:
        yield "Beside the paper's columns; seconds of the least disturbed seed:", beside_grid(table)
    if against:
        told = f"Differences from {against}, paired by seed, with 95 % intervals; bold: without 0."
        yield told, difference_grid(table, against)


def _notes(table: Table) -> list[str]:
    missing = table.missing()
    notes = [facts_line(table), *filter(None, [warning(table), table.experiment.note])]
    if not missing:
        return notes
    total = len(table.cells) * len(table.request.seeds)
    return [*notes, f"{len(table.results)} of {total} cells are run. Not run: {'; '.join(missing)}"]


def _title(table: Table) -> str:
    return f"{table.experiment.source}: {table.experiment.title}"


def markdown(table: Table, against: str | None) -> str:
    """Tables with bars, notes as paragraphs."""
    lines = [f"## {_title(table)}", ""]
    for note in _notes(table):
        lines += [f"{note}.".replace("..", "."), ""]
    for words, grid in _parts(table, against):
        lines += [words, ""]
        for number, line in enumerate(grid):
            cells = [(f"**{c.plain}**" if c.bold else c.plain) + c.after for c in line]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
            if number == 0:
                lines.append("|" + "---|" * len(line))
        lines.append("")
    return "\n".join(lines)


SPECIAL = str.maketrans(
    {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$", "–": "--"}
)


def latex(table: Table, against: str | None) -> str:
    """booktabs tables; notes are comments."""
    lines = [f"% {note}" for note in [_title(table), *_notes(table)]]
    for words, grid in _parts(table, against):
        lines += [f"% {words}", rf"\begin{{tabular}}{{l{'c' * (len(grid[0]) - 1)}}}", r"\toprule"]
        for number, line in enumerate(grid):
            cells = [
                (rf"\textbf{{{told}}}" if cell.bold else told) + cell.after
                for cell in line
                for told in [cell.plain.translate(SPECIAL)]
            ]
            lines.append(" & ".join(cells) + r" \\")
            if number == 0:
                lines.append(r"\midrule")
        lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(lines)


def page(table: Table, against: str | None) -> str:
    """One HTML page without anything from elsewhere."""
    body = [f"<h1>{html.escape(_title(table))}</h1>"]
    body += [f"<p>{html.escape(note)}</p>" for note in _notes(table)]
    for words, grid in _parts(table, against):
        body += [f"<p>{html.escape(words)}</p>", "<table>"]
        for number, line in enumerate(grid):
            tag = "th" if number == 0 else "td"
            told = (
                (f"<b>{plain}</b>" if cell.bold else plain) + cell.after
                for cell in line
                for plain in [html.escape(cell.plain)]
            )
            body.append("<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in told) + "</tr>")
        body.append("</table>")
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;max-width:90rem}"
        "table{border-collapse:collapse;margin:1rem 0}"
        "th,td{padding:.25rem .6rem;border-bottom:1px solid #8884;text-align:right}"
        "th:first-child,td:first-child{text-align:left}"
    )
    head = f'<meta charset="utf-8"><title>{html.escape(_title(table))}</title>'
    return f"<!doctype html><html lang=en>{head}<style>{style}</style>{''.join(body)}</html>\n"


def records(table: Table) -> list[dict[str, Any]]:
    """One record per row, column and score; those that the paper has not come last of each."""
    experiment = table.experiment
    return [
        {
            "row": row.label,
            "column": column.label,
            "score": score,
            "mean": None if number is None else round(number.mean, 3),
            "std": None if number is None or number.std is None else round(number.std, 3),
            "seeds": 0 if number is None else number.seeds,
            "paper": experiment.number(row, column).get(score),
        }
        for row in experiment.rows
        for column in experiment.columns
        for score, number in _numbers(table, (row.label, column.label))
    ]


def _numbers(table: Table, key: Key) -> Iterator[tuple[str, Number | None]]:
    """The scores of a row and column, then what stands beside them where it was run."""
    for score in table.experiment.scores:
        yield score, table.number(key, score)
    beside = {name: table.number(key, score, block) for name, (block, score) in BESIDE.items()}
    beside |= {name: fastest(table, key, seconds) for name, seconds in SECONDS.items()}
    yield from ((name, number) for name, number in beside.items() if number is not None)


def as_csv(table: Table, against: str | None) -> str:
    """One line per row, column and score, each with what the numbers depend on."""
    rows = [record | csv_facts(table) for record in records(table)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([safe_cell(value) for value in row.values()] for row in rows)
    return buffer.getvalue()


def csv_facts(table: Table) -> dict[str, Any]:
    """Of the line above other tables, what a table of many experiments is sorted by."""
    request, rules = table.request, table.request.rules
    return {
        "experiment": table.experiment.name,
        "backbone": backbone_name(table),
        "epochs": rules.epochs if request.epochs is None else request.epochs,
        "protocol": rules.title,
    }


def as_json(table: Table, against: str | None) -> str:
    """The records, what they were made with, and the cells they come from."""
    value: dict[str, Any] = {
        "experiment": table.experiment.name,
        "title": _title(table),
        "notes": _notes(table),
        "scores": records(table),
        "cells": sorted(cell.name for cell in table.results),
    }
    if against:
        value["differences"] = _difference_records(table, against)
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _difference_records(table: Table, against: str) -> list[dict[str, Any]]:
    experiment = table.experiment
    return [
        {"row": row.label, "column": column.label, "score": score, **vars(found)}
        for row in experiment.rows
        for column in experiment.columns
        for score in experiment.scores
        if row.label != against
        for found in [table.difference(row.label, against, column.label, score)]
        if found is not None
    ]


FORMATS: dict[str, Callable[[Table, str | None], str]] = {
    "md": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
    "html": page,
}
