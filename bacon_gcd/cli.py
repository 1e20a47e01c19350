"""The `bacon` command: options in, one call, errors out as one line."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bacon_gcd import __version__
from bacon_gcd.config import UserError

app = typer.Typer(
    name="bacon",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Find categories in images when only some classes have labels. Start with: bacon demo",
)
data_app = typer.Typer(no_args_is_help=True, help="Look at datasets and splits.")
weights_app = typer.Typer(no_args_is_help=True, help="Find, fetch, verify and convert weights.")
app.add_typer(data_app, name="data")
app.add_typer(weights_app, name="weights")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", envvar="BACON_DATA", help="Folder that holds the datasets."),
]


def show(value: Mapping[str, Any], *, as_json: bool, text: str | None = None) -> None:
    """One JSON object for a script, or lines for a person."""
    if as_json:
        typer.echo(json_module.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False))
    else:
        typer.echo(text if text is not None else _lines(value))


def _lines(value: Mapping[str, Any]) -> str:
    width = max((len(str(key)) for key in value), default=0)
    return "\n".join(f"{key!s:<{width}}  {item}" for key, item in value.items())


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bacon {__version__}")
        raise typer.Exit


@app.callback()
def bacon(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Find categories in images when only some classes have labels."""


# doctor


# data: bacon data show


# weights: bacon weights list|get|verify|convert


# embed: bacon embed


# train: bacon train|evaluate|predict|methods


# demo: bacon demo


def main() -> None:
    """Run the command; a person's mistake is one line and exit code 2, Ctrl-C is 130."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        sys.stderr.write(f"bacon: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("bacon: stopped\n")
        sys.exit(130)
