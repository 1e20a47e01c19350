"""What is kept on this machine: bacon cache list|clear."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bacon_gcd.cli.app import JsonFlag, app, show
from bacon_gcd.config import UserError

if TYPE_CHECKING:  # heavy imports stay inside commands: --help is instant
    from bacon_gcd.backbone.cache import Stored

cache_app = typer.Typer(no_args_is_help=True, help="Show and remove stored tokens and weights.")
app.add_typer(cache_app, name="cache")


@cache_app.command("list")
def cache_list(json: JsonFlag = False) -> None:
    """List stored tokens and weights with their sizes.

    Example: bacon cache list
    """
    from bacon_gcd.backbone.cache import stored
    from bacon_gcd.system.files import cache_dir

    entries = stored()
    text = "\n".join([str(cache_dir()), *_lines(entries)])
    values = {"folder": str(cache_dir()), "entries": [_values(each) for each in entries]}
    show(values | {"bytes": sum(each.n_bytes for each in entries)}, as_json=json, text=text)


@cache_app.command("clear")
def cache_clear(
    what: Annotated[
        str, typer.Argument(help="banks (stored tokens), weights, all, or a name of the list.")
    ] = "banks",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonFlag = False,
) -> None:
    """Remove stored tokens or weights; what another process is filling stays.

    Tokens are computed again when they are needed; weights must be fetched again.

    Example: bacon cache clear banks --yes
    """
    from bacon_gcd.backbone.cache import remove, stored

    entries = stored(what)
    if entries and not yes:
        _ask(entries)
    busy = remove(entries)
    removed = [each for each in entries if each not in busy]
    lines = [f"removed {len(removed)}, {_megabytes(removed)}"]
    lines += [f"{each.name}: in use, not removed" for each in busy]
    values = {"removed": [_values(e) for e in removed], "in_use": [_values(e) for e in busy]}
    show(values, as_json=json, text="\n".join(lines))


def _ask(entries: list[Stored]) -> None:
    """Show what would go; without a person to ask, --yes is needed."""
    typer.echo("\n".join(_lines(entries)), err=True)
    if not sys.stdin.isatty():
        raise UserError("nothing was removed: say --yes to remove without being asked")
    typer.confirm(f"Remove these ({_megabytes(entries)})?", abort=True, err=True)


def _lines(entries: list[Stored]) -> list[str]:
    width = max((len(each.name) for each in entries), default=0)
    lines = [
        f"{each.kind:<8}{each.name:<{width}}  {each.n_bytes / 1e6:>9.1f} MB  {each.about}"
        for each in entries
    ]
    return [*lines, f"{len(entries)} in all, {_megabytes(entries)}"]


def _megabytes(entries: list[Stored]) -> str:
    return f"{sum(each.n_bytes for each in entries) / 1e6:.1f} MB"


def _values(entry: Stored) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "path": str(entry.paths[0]),
        "bytes": entry.n_bytes,
        "about": entry.about,
    }
