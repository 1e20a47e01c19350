"""Experiments: bacon train, bacon evaluate."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bacon_gcd.cli.app import (
    STOPPED,
    DataFolder,
    DeviceName,
    ImageSide,
    JsonFlag,
    KnownClasses,
    LabeledRatio,
    LabeledShare,
    Profile,
    Ratio,
    RunFolder,
    TrunkPrecision,
    TunedPart,
    UnlabeledRatio,
    Workers,
    app,
    chosen_device,
    class_list,
    show,
    tell,
    tell_device,
)
from bacon_gcd.config import MAX_SEED, UserError
from bacon_gcd.system.launch import restarted
from bacon_gcd.system.text import command


def _pairs(changes: list[str]) -> dict[str, str]:
    """--set name=value, as a mapping."""
    pairs = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--set {change!r} is not of the form name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _given(context: typer.Context) -> dict[str, Any]:
    """The options that were typed, by name."""
    return {
        name: value
        for name, value in context.params.items()
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    }


class _TrainCommand(TyperCommand):
    """`train`, whose help ends with the settings of the method named before --help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Every setting that --set can change, with its value and meaning."""
        name = ctx.params.get("method")
        with formatter.section(f"Settings of {name} for --set" if name else "Settings"):
            if name is None:
                formatter.write_text("See those of a method with: bacon train --method NAME --help")
                return
            from bacon_gcd.methods import METHODS, describe_settings, preset_of

            preset = preset_of(name)
            described = describe_settings(METHODS[name].presets[preset].settings).items()
            rows = [(key, f"{meaning} [{value}]") for key, (value, meaning) in described]
            formatter.write_dl(rows or [("none", "nothing to choose")])


@app.command(cls=_TrainCommand)
def train(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the run.")] = None,
    dataset: Annotated[str, typer.Option(help="cifar100-lt, ..., demo or folder:PATH.")] = "demo",
    method: Annotated[str, typer.Option(help="See: bacon methods.", is_eager=True)] = "bacon-s",
    preset: Annotated[str | None, typer.Option(help="The method's first if not given.")] = None,
    backbone: Annotated[str, typer.Option(help="See: bacon weights list.")] = "resnet18.pypi_in1k",
    image_size: ImageSide = None,
    tuned: TunedPart = "block",
    trunk: TrunkPrecision = "auto",
    views: Annotated[str, typer.Option(help="Stored views per image, or fresh.")] = "4",
    epochs: Annotated[
        int | None, typer.Option(min=0, help="Length of the run; 200 as published.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images per step.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, max=1e9, help="At the first epoch.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="half, proportional or equal.")] = None,
    profile: Profile = None,
    ratio: Ratio = None,
    labeled_ratio: LabeledRatio = None,
    unlabeled_ratio: UnlabeledRatio = None,
    known: KnownClasses = None,
    labeled_share: LabeledShare = 0.5,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Decides split, views, start and batches.")
    ] = 0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A method's setting, name=value; repeatable.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    evaluate_every: Annotated[
        int, typer.Option(min=0, help="Score the test set every N epochs.")
    ] = 0,
    save_seconds: Annotated[float, typer.Option(min=0.0, help="Time between checkpoints.")] = 60.0,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="bf16 where it is fast.")] = False,
    device: DeviceName = "auto",
    workers: Workers = 2,
    data: DataFolder = None,
    json: JsonFlag = False,
) -> None:
    """Train a method on a benchmark and score it at the last epoch.

    Example: bacon train --dataset cifar100-lt --method bacon-s --epochs 200 --seed 0 -o runs/s0
    """
    from bacon_gcd.benchmark.run import train_run
    from bacon_gcd.benchmark.settings import RunSettings
    from bacon_gcd.benchmark.workbench import prepare
    from bacon_gcd.system.processes import agreed

    where = chosen_device(device)
    if resume is None and out is not None and restarted() and (out / "config.toml").exists():
        resume = out  # torchrun has started the processes again
    folder = resume or out
    if folder is None:
        raise UserError("name the run's folder with -o FOLDER, or --resume FOLDER to continue one")
    # Options have the names of the settings they are kept under, so they are not listed again.
    changes, classes = _pairs(change or []), {"known": class_list(known)}
    if resume is None:
        settings = RunSettings.from_options(context.params | classes, changes, device=where)
    else:
        settings = RunSettings.from_toml(resume / "config.toml")
        settings.refuse_others(resume, _given(context) | classes, changes)
    with agreed():
        bench = prepare(settings, data=data, workers=workers, device=where)
    tell_device(where)
    if not json:
        tell(settings.to_toml())
    result = train_run(bench, folder, resume=resume is not None, save_seconds=save_seconds)
    if result is None:
        tell(f"bacon: stopped; continue with: {command('bacon', 'train', '--resume', folder)}")
        sys.exit(STOPPED)  # it has said how to continue
    show(result, as_json=json, text=_score_table(result))


@app.command()
def evaluate(run: RunFolder, json: JsonFlag = False) -> None:
    """Show the scores of a finished run: all, old and new classes, many / median / few.

    Example: bacon evaluate runs/cifar100-lt
    """
    from bacon_gcd.benchmark.settings import RunSettings
    from bacon_gcd.system.files import read_json

    path = run / "result.json"
    if not path.exists():
        if not (run / "config.toml").exists():
            raise UserError(f"{run}: not a run of bacon train; there is no config.toml in it")
        RunSettings.from_toml(run / "config.toml")  # says so if it is one of bacon discover
        again = command("bacon", "train", "--resume", run)
        raise UserError(f"{path}: no such file; finish the run with: {again}")
    result = read_json(path)
    show(result, as_json=json, text=_score_table(result))


def _score_table(result: Mapping[str, Any]) -> str:
    """The blocks as a table; null is shown as a dash."""
    blocks = ("frozen_kmeans", "test_kmeans", "inductive", "transductive", "classifier")
    ours = ("placed", "placed_train", "joint_kmeans")
    names = [name for name in (*blocks, *ours) if name in result]
    columns = ["all", "old", "new", "known_many", "known_median", "known_few", "known_std"]
    columns += ["novel_many", "novel_median", "novel_few", "novel_std", "nmi", "ari"]
    rows = [["", *names]]
    scores = [result[name] or {} for name in names]
    rows += [[c, *(_number(b.get(c)) for b in scores)] for c in columns]
    anchored = [b.get("anchored") or {} for b in scores]
    rows += [
        [f"anchored {c}", *(_number(a.get(c)) for a in anchored)] for c in ("all", "old", "new")
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    head = (
        f"{result['method']} ({result['preset']}) on {result['dataset']}, seed {result['seed']}, "
        f"epoch {result['epoch']} (last); headline: {result['headline']}"
    )
    return "\n".join([head, *lines])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if abs(value) > 1 else f"{value:.3f}"
