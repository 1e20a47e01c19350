"""Grids of the toy protocol for tests, and results that no training was needed for."""

from dataclasses import replace

from bacon_gcd.benchmark import cell_run
from bacon_gcd.benchmark.cells import CellResult, write_result
from bacon_gcd.benchmark.grid import Grid, Request


def quick_request(*methods, seeds=(0,)):
    return Request(("table2",), "quick", seeds=seeds, methods=methods or None)


def grid_in(folder):
    return Grid(folder / "grid", folder / "grid" / "results")


def real_result(folder):
    """A finished toy cell of k-means, which needs no training."""
    request = quick_request("kmeans")
    (cell,) = request.cells()
    result = cell_run.run_cell(cell, folder / "run", data=None, command="none")
    assert result is not None
    return result


def invented(result: CellResult, cell, *, all=50.0, gap=10.0, **changes) -> CellResult:
    """A result of another cell with scores made up: old and new lie `gap` apart."""
    block = dict(result.blocks["test_kmeans"]) | {"all": all, "old": all + gap, "new": all - gap}
    return replace(
        result,
        name=cell.name,
        protocol=cell.protocol.title,
        settings=cell.settings.flat(),
        headline="test_kmeans",
        blocks=result.blocks | {"test_kmeans": block},
        **changes,
    )


def keep(grid, *results):
    for result in results:
        write_result(grid.results, result)
