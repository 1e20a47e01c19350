"""Datasets and splits: bacon data show, and bacon embed, which stores what the trunk gives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bacon_gcd.cli.app import (
    DataFolder,
    DeviceName,
    ImageSide,
    JsonFlag,
    KnownClasses,
    LabeledRatio,
    LabeledShare,
    Profile,
    Ratio,
    StoredTokens,
    TrunkPrecision,
    TunedPart,
    UnlabeledRatio,
    Workers,
    app,
    chosen_device,
    class_list,
    show,
    tell,
)
from bacon_gcd.config import MAX_SEED, MAX_VIEWS, choose

data_app = typer.Typer(no_args_is_help=True, help="Look at datasets and splits.")
app.add_typer(data_app, name="data")


@data_app.command("show")
def data_show(
    dataset: Annotated[
        str,
        typer.Argument(
            help="cifar10-lt, cifar100-lt, imagenet100-lt, places-lt, demo or folder:PATH."
        ),
    ],
    data: DataFolder = None,
    profile: Profile = None,
    ratio: Ratio = None,
    labeled_ratio: LabeledRatio = None,
    unlabeled_ratio: UnlabeledRatio = None,
    n_max: Annotated[int | None, typer.Option(min=1, help="Images of the largest class.")] = None,
    n_min: Annotated[
        int | None, typer.Option(min=1, help="Images of the smallest class (pareto).")
    ] = None,
    per_class: Annotated[
        int | None, typer.Option(min=1, help="Images of every class (balanced) [100].")
    ] = None,
    known: KnownClasses = None,
    labeled_share: LabeledShare = 0.5,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Which images are drawn.")] = 0,
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
        known=class_list(known),
        labeled_share=labeled_share,
        seed=seed,
    )
    found = inspect_split(settings, data, index_files=index_files, save=save, plot=plot)
    show(found.values(), as_json=json, text=found.text())


@app.command()
def embed(
    source: Annotated[
        str, typer.Argument(help="Folder, table (CSV, JSONL, parquet), .npz, or a dataset's name.")
    ],
    backbone: Annotated[str, typer.Option(help="See: bacon weights list; or hf:, timm:.")] = (
        "resnet18.pypi_in1k"
    ),
    views: Annotated[
        int, typer.Option(min=0, max=MAX_VIEWS, help="Training views to store per image.")
    ] = 4,
    strong_views: Annotated[
        int, typer.Option(min=0, max=MAX_VIEWS, help="Strong views to store too (ABC and DARP).")
    ] = 0,
    image_size: ImageSide = None,
    tuned: TunedPart = "block",
    trunk: TrunkPrecision = "auto",
    stored: StoredTokens = "half",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Which views are drawn.")] = 0,
    device: DeviceName = "auto",
    workers: Workers = 2,
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
    from bacon_gcd.backbone.packing import STORED
    from bacon_gcd.backbone.weights import load_backbone, trunk_dtype
    from bacon_gcd.system.processes import agreed

    where = chosen_device(device)
    with agreed():  # one process may not see the weights
        opened = load_backbone(
            backbone,
            image_size=image_size,
            tuned=tuned,
            trunk_dtype=trunk_dtype(trunk, device=where),
            device=where,
        )
    embedded = fill_banks(
        source,
        opened,
        n_views=views,
        strong_views=strong_views,
        stored=choose("stored tokens", stored, STORED),
        seed=seed,
        workers=workers,
        data=data,
        cache=cache,
        tell=tell,
    )
    show(embedded.values(), as_json=json, text=embedded.text())
