"""The paper's tables: bacon benchmark list, run, status, table, figure, submit, verify."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bacon_gcd.cli.app import (
    STOPPED,
    DataFolder,
    DeviceName,
    ImageSide,
    JsonFlag,
    app,
    chosen_device,
    device_of_one,
    say,
    show,
    tell,
    tell_device,
)
from bacon_gcd.cli.cells import (
    DEFAULT_BACKBONE,
    Asked,
    AskedOfOneDataset,
    BackboneName,
    Epochs,
    ProtocolName,
    Seeds,
    seed_list,
)
from bacon_gcd.cli.groups import with_options_of
from bacon_gcd.config import choose

if TYPE_CHECKING:
    from bacon_gcd.benchmark.grid import Grid

benchmark_app = typer.Typer(no_args_is_help=True, help="Run the paper's experiments as tables.")
app.add_typer(benchmark_app, name="benchmark")

Experiments = Annotated[
    list[str] | None, typer.Argument(help="See: bacon benchmark list; all of them if none.")
]
OneExperiment = Annotated[str, typer.Argument(help="See: bacon benchmark list.")]
GridFolder = Annotated[Path, typer.Option("--grid", help="Where cells are worked on.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Finished cells; GRID/results if not given.")
]
DEFAULT_GRID = Path("runs/benchmark")


def _grid(folder: Path, results: Path | None) -> Grid:
    from bacon_gcd.benchmark.grid import Grid

    return Grid(folder, results or folder / "results")


@benchmark_app.command("list")
def list_experiments(json: JsonFlag = False) -> None:
    """Show the experiments of the paper, the protocols, and where the paper contradicts itself.

    Example: bacon benchmark list
    """
    from bacon_gcd.benchmark.experiments import EXPERIMENTS, contradictions
    from bacon_gcd.benchmark.protocols import PROTOCOLS

    found: dict[str, Any] = {
        "experiments": {
            name: {
                "title": each.title,
                "source": each.source,
                "rows": [row.label for row in each.rows],
                "columns": [column.label for column in each.columns],
            }
            for name, each in EXPERIMENTS.items()
        },
        "protocols": {each.title: each.summary for each in PROTOCOLS.values()},
        "contradictions": contradictions(),
    }
    lines = [f"{name:<11} {each.source}: {each.title}" for name, each in EXPERIMENTS.items()]
    lines += ["", "Protocols:", *(f"  {k:<10} {v}" for k, v in found["protocols"].items())]
    lines += ["", "Numbers of the paper that cannot all be right:"]
    show(found, as_json=json, text="\n".join([*lines, *(f"  {c}" for c in contradictions())]))


@benchmark_app.command()
@with_options_of("asked")
def run(
    experiments: Experiments = None,
    *,
    asked: Asked,
    jobs: Annotated[int, typer.Option(min=1, help="Cells side by side.")] = 1,
    shard: Annotated[str | None, typer.Option(help="Part i of n of the cells, such as 3/16.")] = (
        None
    ),
    grid: GridFolder = DEFAULT_GRID,
    results: Results = None,
    device: DeviceName = "auto",
    data: DataFolder = None,
    json: JsonFlag = False,
) -> None:
    """Run the cells of one or more tables; what is finished is not run again.

    Any number of processes and machines may share a grid folder. A failed cell is told with its
    log while the rest runs; the exit code is then 1.

    Example: bacon benchmark run table2 --protocol vectors --seeds 0,1,2 --datasets cifar100-lt
    """
    from bacon_gcd.benchmark.grid import sharded, with_images
    from bacon_gcd.benchmark.runner import run_grid, run_jobs

    where = chosen_device(device) if jobs == 1 else device_of_one("--jobs", device)
    request = asked.request(*(experiments or ()))
    folders = _grid(grid, results)
    cells, left_out = with_images(sharded(request.cells(), shard), folders, data)
    before = {cell.name for cell in cells if folders.result_path(cell).exists()}
    tell_device(where)
    if jobs > 1:
        words = ["benchmark", "run", *request.words(), "--grid", str(grid)]
        words += ["--results", str(folders.results)] + (["--shard", shard] if shard else [])
        words += ["--device", device, *(["--data", str(data)] if data else [])]
        run_jobs(words, jobs=jobs, tell=tell)
    outcome = run_grid(request, cells, folders, data=data, tell=tell, device=where)
    outcome.count_as_run(before)
    outcome.left_out = left_out
    show(outcome.as_dict(), as_json=json, text=outcome.text())
    if outcome.failed or left_out:
        raise typer.Exit(1)


@benchmark_app.command()
@with_options_of("asked")
def table(
    experiment: OneExperiment,
    *,
    format: Annotated[str, typer.Option(help="md, latex, csv, json or html.")] = "md",
    against: Annotated[
        str | None, typer.Option(help="Show differences from this row, paired by seed.")
    ] = None,
    asked: Asked,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write it to a file.")] = None,
    grid: GridFolder = DEFAULT_GRID,
    results: Results = None,
    json: JsonFlag = False,
) -> None:
    """Print a table from finished cells, beside the paper's numbers; nothing is trained.

    Example: bacon benchmark table table2 --protocol vectors --seeds 0,1,2 --datasets cifar100-lt
    """
    from bacon_gcd.benchmark.formats import FORMATS, render
    from bacon_gcd.benchmark.tables import make_table, other_row
    from bacon_gcd.system.files import write_atomic

    format = "json" if json else choose("format", format, FORMATS)
    request = asked.request(experiment)
    found = make_table(request.tables()[0], request, _grid(grid, results))
    text = render(found, format, against=against and other_row(found, against))
    if out is None:
        say(text)
    else:
        write_atomic(out, text.encode())


@benchmark_app.command()
@with_options_of("asked")
def status(
    experiments: Experiments = None,
    *,
    asked: Asked,
    grid: GridFolder = DEFAULT_GRID,
    results: Results = None,
    json: JsonFlag = False,
) -> None:
    """Show how far a grid is: cells finished, running, failed and waiting, and the time left.

    Example: bacon benchmark status table2 --protocol vectors --seeds 0,1,2
    """
    from bacon_gcd.benchmark.status import status_of

    found = status_of(asked.request(*(experiments or ())), _grid(grid, results))
    show(found.as_dict(), as_json=json, text=found.text())


@benchmark_app.command()
def submit(
    result: Annotated[Path, typer.Argument(help="Result of a cell: its JSON file or folder.")],
    board: Annotated[Path, typer.Option(help="Folder of the leaderboard.")] = Path("leaderboard"),
    json: JsonFlag = False,
) -> None:
    """Check a result and add it to a leaderboard.

    Example: bacon benchmark submit runs/benchmark/results/NAME.json
    """
    from bacon_gcd.benchmark import leaderboard

    found = leaderboard.submit(leaderboard.find_result(result), board)
    show(found, as_json=json)


@benchmark_app.command()
def verify(
    result: Annotated[Path, typer.Argument(help="Result of a cell: its JSON file or folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the cell is run again.")] = Path(
        "runs/verify"
    ),
    device: DeviceName = "auto",
    data: DataFolder = None,
    json: JsonFlag = False,
) -> None:
    """Run the cell of a result again and say whether it lies within the stated interval.

    The interval is three standard deviations of the seeds beside it, or two points without them.
    The exit code is 1 if it does not.

    Example: bacon benchmark verify docs/tables/cells/NAME.json
    """
    from bacon_gcd.benchmark import leaderboard

    where = device_of_one("bacon benchmark verify", device)
    verdict = leaderboard.verify(leaderboard.find_result(result), out, data=data, device=where)
    if verdict is None:
        raise typer.Exit(STOPPED)
    show(verdict.as_dict(), as_json=json, text=verdict.text())
    if not verdict.holds:
        raise typer.Exit(1)


@benchmark_app.command()
@with_options_of("asked")
def figure(
    name: Annotated[
        str,
        typer.Argument(help="tsne, counts, count-errors, sizes, confusion, curves or alignment."),
    ],
    *,
    experiment: Annotated[str, typer.Option(help="Whose rows are drawn.")] = "table2",
    asked: AskedOfOneDataset,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Without suffix; NAME in this folder.")
    ] = None,
    grid: GridFolder = DEFAULT_GRID,
    results: Results = None,
    data: DataFolder = None,
    json: JsonFlag = False,
) -> None:
    """Draw a figure from finished cells, as PNG and SVG.

    tsne and confusion need the models in the grid folder; the others only the finished cells.

    Example: bacon benchmark figure tsne --protocol vectors --datasets cifar10-lt
    """
    from bacon_gcd.benchmark.figures import FIGURES, Source, draw
    from bacon_gcd.benchmark.tables import make_table

    choose("figure", name, FIGURES)
    asked = replace(asked, datasets=None) if asked.quick else asked  # which has one of its own
    request, folders = asked.request(experiment), _grid(grid, results)
    found = make_table(request.tables()[0], request, folders)
    written = draw(name, Source(found, folders, data), out or Path(name))
    show({"written": [str(path) for path in written]}, as_json=json)


@benchmark_app.command()
def claims(
    protocol: ProtocolName = "paper",
    backbone: BackboneName = DEFAULT_BACKBONE,
    seeds: Seeds = "0",
    epochs: Epochs = None,
    image_size: ImageSide = None,
    grid: GridFolder = DEFAULT_GRID,
    results: Results = None,
    json: JsonFlag = False,
) -> None:
    """Say of every claim of the paper whether the finished cells show it.

    Example: bacon benchmark claims --protocol vectors --seeds 0,1,2
    """
    from bacon_gcd.backbone.catalogue import find
    from bacon_gcd.benchmark.claims import all_claims, claims_text
    from bacon_gcd.benchmark.grid import Request

    find(backbone)
    request = Request((), protocol, backbone, seed_list(seeds), epochs, image_size=image_size)
    found = all_claims(request, _grid(grid, results))
    values = [vars(claim) for claim in found]
    show({"claims": values}, as_json=json, text=claims_text(found))
