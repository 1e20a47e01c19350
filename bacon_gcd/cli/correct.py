"""After a discovery: bacon review, bacon export."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bacon_gcd.cli.app import JsonFlag, app, in_lines, show
from bacon_gcd.config import UserError

DiscoverFolder = Annotated[Path, typer.Argument(help="Folder of a run of bacon discover.")]


@app.command()
def review(
    run: DiscoverFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open a browser; only print the address.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Correct a run in the browser: rename, merge, split, move, confirm; every step can be undone.

    The page is on this machine only and needs the secret in its address. Stop it with Ctrl-C.

    Example: bacon review runs/photos
    """
    from importlib.util import find_spec

    if not (find_spec("fastapi") and find_spec("uvicorn")):
        raise UserError("bacon review needs two packages: pip install 'bacon-gcd[review]'")
    from bacon_gcd.review.server import serve

    def started(url: str, opener: Path | None) -> None:
        text = f"review page: {url}\nevery edit is saved at once; stop with Ctrl-C"
        show({"url": url}, as_json=json, text=text)
        sys.stdout.flush()
        if not no_open and opener is not None:
            typer.launch(str(opener))  # not the address: its secret would stand in `ps`

    serve(run, port=port, started=started)


@app.command()
def export(
    run: Annotated[
        Path | None, typer.Argument(help="Folder of a run of bacon discover (not with --undo).")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="New folder for the sorted images.")] = None,
    how: Annotated[str, typer.Option(help="copy, hardlink, symlink or move.")] = "copy",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be done.")
    ] = False,
    undo: Annotated[Path | None, typer.Option(help="Take back the export in this folder.")] = None,
    images: Annotated[
        Path | None, typer.Option(help="With --undo, if the run is gone: its images' folder.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Sort the images into one folder per class, with the corrections of bacon review.

    Nothing is overwritten. After a crash the same command continues, and --undo restores.

    Example: bacon export runs/photos --to sorted --how hardlink
    """
    from bacon_gcd.discovery import export as folders
    from bacon_gcd.discovery.folder import DiscoverRun

    if undo is not None:
        facts = folders.undo_export(undo, images=images)
        return show(facts, as_json=json, text=_export_lines(facts))
    if run is None or to is None:
        raise UserError("name a run and --to FOLDER, or --undo FOLDER to take an export back")
    loaded = DiscoverRun.load(run)
    plan = folders.plan_export(loaded, how=how)
    if dry_run:
        facts = folders.summary(plan, to) | {"dry run": "nothing was written"}
    else:
        facts = folders.export(plan, to, roots=loaded.roots)
    return show(facts, as_json=json, text=_export_lines(facts))


def _export_lines(facts: Mapping[str, Any]) -> str:
    """Plain facts first, then each folder and each image that was left out or kept."""
    plain = {key: value for key, value in facts.items() if not isinstance(value, Mapping)}
    lists = {key: value for key, value in facts.items() if isinstance(value, Mapping) and value}
    parts = [in_lines(plain), *(f"{key}:\n{_indented(value)}" for key, value in lists.items())]
    return "\n".join(parts)


def _indented(value: Mapping[str, Any]) -> str:
    return "\n".join(f"  {line}" for line in in_lines(value).splitlines())
