"""Write docs/tables/ from the finished cells: a page per table and protocol, claims, figures.

python scripts/write_tables.py [--grid GRID]    (nothing is trained; GRID: for t-SNE, confusion)
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bacon_gcd.backbone.catalogue import find
from bacon_gcd.benchmark.claims import all_claims, claims_text
from bacon_gcd.benchmark.experiments import EXPERIMENTS
from bacon_gcd.benchmark.figures import FIGURES, Source, draw
from bacon_gcd.benchmark.formats import render
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.benchmark.protocols import PROTOCOLS
from bacon_gcd.benchmark.tables import Table, make_table
from bacon_gcd.config import UserError

TABLES = Path(__file__).resolve().parent.parent / "docs" / "tables"
RESULTS = "--results docs/tables/cells"
SEEDS = (0, 1, 2)
OURS = ("cifar10-lt", "cifar100-lt", "fashion-lt")  # the datasets that were at hand
DINOV2 = "vit_small_patch14_dinov2.pypi_lvd142m"
KINDS = {
    "tail": Request((), "tail", seeds=SEEDS),
    "vectors": Request((), "vectors", seeds=SEEDS),
    "vectors-200": Request((), "vectors", seeds=SEEDS, epochs=200),
    "vectors-dinov2": Request((), "vectors", DINOV2, SEEDS, image_size=168),
}
"""How tables were run; pages are named after it."""
ONLY = {"vectors-dinov2": ("table2", "table3")}
"""Tables of which a kind has more than the cells that it shares with others."""
TOLD = {
    "vectors-200": "vectors, 200 epochs",
    "vectors-dinov2": "vectors, DINOv2 (no labels) at 168 px",
}
AGAINST = {"table1": "GCD", "ablation-a": "contrastive", "ablation-c": "soft"}
AGAINST |= {"ablation-b": "both", "ablation-d": "r = 10", "ablation-e": "dot"}
AGAINST |= {"ablation-f": "k = 0.5"}


def main() -> None:
    """Everything that the finished cells allow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=Path, default=Path("runs/benchmark"))
    grid = Grid(parser.parse_args().grid, TABLES / "cells")
    lines = []
    for kind, request in KINDS.items():
        for name in ONLY.get(kind, EXPERIMENTS):
            lines += write_table(name, kind, request, grid)
        if not request.epochs:
            lines += write_claims(kind, request, grid)
    write_index(lines)
    write_figures(grid)


def tables_of(name: str, base: Request, grid: Grid) -> list[Table]:
    """The table of every dataset that has a finished cell; rows without any are left out."""
    found = []
    for dataset in OURS:
        if name != "table2" and dataset != "cifar100-lt":
            continue
        request = replace(base, experiments=(name,), datasets=(dataset,))
        table = make_table(request.tables()[0], request, grid)
        if table.results:
            found.append(table)
    return found


def write_table(name: str, kind: str, base: Request, grid: Grid) -> list[str]:
    """One page per experiment and kind; a line of the index for it."""
    tables = tables_of(name, base, grid)
    if not tables:
        return []
    against = AGAINST.get(name, "GCD")
    path = TABLES / f"{kind}-{name}.md"
    pages = []
    for table in tables:
        dates = sorted({cell.date for cell in table.results})
        words = table.request.words()
        command = " ".join(["bacon benchmark table", *words, "--against", f"'{against}'", RESULTS])
        pages.append(render(table, "md", against=against))
        pages.append(
            f"Run {' and '.join({dates[0]: 0, dates[-1]: 0})}. Printed by:\n\n    {command}\n"
        )
    path.write_text("\n".join(pages))
    done = sum(len(table.results) for table in tables)
    title = EXPERIMENTS[name].title
    return [f"| [{name}, {TOLD.get(kind, kind)}]({path.name}) | {title} | {done} |"]


def write_claims(kind: str, request: Request, grid: Grid) -> list[str]:
    """The claims of the paper under one protocol."""
    claims = all_claims(request, grid)
    path = TABLES / f"{kind}-claims.md"
    title, backbone = PROTOCOLS[request.protocol].title, find(request.backbone)
    head = f"# What the paper claims, under the protocol {title}\n\nBackbone {backbone.name}, "
    head += f"trained on {backbone.trained_on}"
    if backbone.supervised:
        head += ", so only comparisons between methods count"
    head += ".\n"
    head += (
        "A difference holds if it has the sign that the paper says and, with several seeds, its\n"
    )
    head += "95 % interval (paired by seed) leaves out zero.\n\n"
    path.write_text(head + claims_text(claims))
    tested = sum(claim.verdict != "not tested" for claim in claims)
    told = f"{tested} of {len(claims)} are tested"
    return [f"| [claims, {TOLD.get(kind, kind)}]({path.name}) | {told} | |"]


def write_index(lines: list[str]) -> None:
    """README.md of the folder."""
    head = [
        "# Tables",
        "",
        "Written by `python scripts/write_tables.py` from the finished cells in `cells/`; see",
        "[benchmark.md](../benchmark.md). ResNet-18 was trained with ImageNet labels, so only the",
        "comparison between methods counts there; DINOv2 was trained without labels, like the",
        "paper's DINO. ImageNet-100-LT and Places-LT were not run: there were no images of them.",
        "What else was not run is named in each table.",
        "",
        "| page | what | cells |",
        "|---|---|---|",
    ]
    (TABLES / "README.md").write_text("\n".join([*head, *lines]) + "\n")


def write_figures(grid: Grid) -> None:
    """Every figure that finished cells (and kept models) allow."""
    for dataset, names in (
        ("cifar100-lt", [name for name in FIGURES if name != "tsne"]),
        ("cifar10-lt", ["tsne", "curves"]),
    ):
        request = Request(("table2",), "vectors", seeds=SEEDS, datasets=(dataset,))
        source = Source(make_table(request.tables()[0], request, grid), grid, None)
        for name in names:
            try:
                draw(name, source, TABLES / "figures" / f"vectors-{dataset}-{name}")
            except UserError as error:
                sys.stderr.write(f"{name} of {dataset} is not drawn: {error}\n")


if __name__ == "__main__":
    main()
