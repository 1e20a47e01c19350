"""A grid of cells: shared by processes, resumed after a kill, going on after a failure."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bacon_gcd.benchmark import runner
from bacon_gcd.benchmark.cells import ENGINE, read_result
from bacon_gcd.benchmark.grid import Grid, Request
from bacon_gcd.benchmark.runner import Clock, duration, run_grid, worker_environment
from bacon_gcd.benchmark.status import status_of
from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.model import WEIGHTS
from tests.benchmark.grids import grid_in, invented, keep, quick_request, real_result
from tests.small_backbone import use_small_backbone

ROOT = Path(__file__).resolve().parents[2]


def bacon(*words):
    return CliRunner().invoke(app, ["benchmark", *map(str, words)])


def spawn(*words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bacon_gcd", "benchmark", *map(str, words)]
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )


def events(grid):
    lines = [json.loads(line) for line in (grid.folder / "log.jsonl").read_text().splitlines()]
    return [(line["event"], line["cell"]) for line in lines]


def run(request, grid):
    told = []
    return run_grid(request, request.cells(), grid, data=None, tell=told.append), told


def test_the_toy_grid_runs_through_the_command_line_and_is_not_run_twice(tmp_path):
    words = ["--quick", "--methods", "orca,kmeans", "--grid", tmp_path]
    done = bacon("run", "table2", *words, "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout.splitlines()[-1])["finished"]) == 2
    again = bacon("run", "table2", *words)
    assert "0 cells run, 2 were there already" in again.output
    shown = bacon("table", "table2", *words)
    assert "protocol quick 1" in shown.output
    assert "Not run" not in shown.output
    status = bacon("status", "table2", *words)
    assert "0 cells to go" in status.output


def test_a_failed_cell_is_told_with_its_log_while_the_rest_runs(tmp_path, monkeypatch):
    real, grid = runner.run_cell, grid_in(tmp_path)

    def failing(cell, *positional, **named):
        if cell.settings.method == "kmeans":
            raise RuntimeError("the disk is on fire")
        return real(cell, *positional, **named)

    monkeypatch.setattr(runner, "run_cell", failing)
    request = quick_request("kmeans", "anchored-kmeans")
    outcome, told = run(request, grid)
    (failed,) = outcome.failed
    assert failed.startswith("quick-planted-kmeans")
    assert [name.split("-untrained")[0] for name in outcome.finished] == [
        "quick-planted-anchored-kmeans"
    ]
    log = Path(outcome.failed[failed]).read_text()
    assert "Traceback" in log
    assert "the disk is on fire" in log
    assert any(str(grid.folder) in line and "the disk is on fire" in line for line in told)
    assert status_of(request, grid).failed == outcome.failed
    monkeypatch.setattr(runner, "run_cell", real)
    again, _ = run(request, grid)
    assert len(again.finished) == 1  # a failed cell is run again, the finished one is not
    assert not again.failed


def test_a_cell_that_another_process_holds_is_left_to_it(tmp_path):
    grid, request = grid_in(tmp_path), quick_request("kmeans", "anchored-kmeans")
    held = request.cells()[0]
    with grid.taken(held) as free:
        assert free
        outcome, _ = run(request, grid)
        assert status_of(request, grid).running == [held.name]
    assert outcome.busy == [held.name]
    assert len(outcome.finished) == 1
    assert "1 are being run by another process" in outcome.text()


def test_two_processes_share_a_grid_and_no_cell_runs_twice(tmp_path):
    words = ["run", "table2", "--quick", "--methods", "kmeans,anchored-kmeans"]
    words += ["--seeds", "0,1", "--grid", tmp_path]
    both = [spawn(*words) for _ in range(2)]
    assert [process.wait(timeout=250) for process in both] == [0, 0]
    grid = Grid(tmp_path, tmp_path / "results")
    started = [cell for event, cell in events(grid) if event == "started"]
    assert len(started) == len(set(started)) == 4


def test_a_killed_grid_goes_on_and_ends_like_one_never_disturbed(tmp_path):
    request = quick_request("gcd")
    (cell,) = request.cells()
    words = ["run", "table2", "--quick", "--methods", "gcd", "--grid"]
    process = spawn(*words, tmp_path / "killed")
    log = tmp_path / "killed" / "cells" / cell.name / "log.jsonl"
    wait_for(lambda: log.exists() and log.read_text().count('"epoch"') >= 1, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list((tmp_path / "killed").glob("results/*.json"))
    ends = []
    for name in ("killed", "whole"):
        assert bacon(*words, tmp_path / name).exit_code == 0
        ends.append(read_result(tmp_path / name / "results" / f"{cell.name}.json"))
    for part in ("blocks", "measures", "curve", "counts"):
        assert getattr(ends[0], part) == getattr(ends[1], part)


def wait_for(true, process, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_classes_are_placed_again_when_the_engine_has_changed(tmp_path, monkeypatch):
    grid, request = grid_in(tmp_path), quick_request("kmeans")
    run(request, grid)
    (cell,) = request.cells()
    first = grid.result(cell)
    for module in ("runner", "cell_run", "cells"):
        monkeypatch.setattr(f"bacon_gcd.benchmark.{module}.ENGINE", first.engine + 1)
    outcome, _ = run(request, grid)
    assert not outcome.finished
    renewed = grid.result(cell)
    assert renewed.engine == first.engine + 1
    assert renewed.blocks == first.blocks  # the code is the same, so the numbers are


def test_threads_and_devices_are_shared_out():
    own = worker_environment(3, jobs=4, cores=16, devices=2, environment={"HOME": "x"})
    assert own == {
        "HOME": "x",
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": "1",
    }
    assert worker_environment(0, jobs=4, cores=2, devices=0, environment={}) == {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def test_the_time_left_is_that_of_cells_of_the_same_kind(tmp_path):
    request = quick_request("gcd", "kmeans", seeds=(0, 1))
    clock = Clock(request.cells(), grid_in(tmp_path))
    assert clock.left() == "; 4 cells to go"
    clock.seconds = {("planted", "gcd", "adapted", "4"): [100.0, 140.0]}
    assert clock.left().endswith("4 cells to go, about 8 min")  # unknown kinds count as known ones
    assert [duration(s) for s in (59, 600, 9000)] == ["59 s", "10 min", "2.5 h"]


def test_a_cell_takes_the_time_of_its_training_and_scores_without_the_views_others_share(tmp_path):
    grid, request = grid_in(tmp_path), quick_request("kmeans")
    (cell,) = request.cells()
    run(request, grid)
    result = grid.result(cell)
    assert result.seconds["score"] > 0
    (taken,) = Clock([cell], grid).seconds.values()
    assert taken == [result.seconds["train"] + result.seconds["score"]]


def test_a_cell_resumed_with_other_settings_fails_with_one_line(tmp_path):
    grid, request = grid_in(tmp_path), quick_request("kmeans")
    (cell,) = request.cells()
    run(request, grid)
    grid.result_path(cell).unlink()
    config = grid.run_folder(cell) / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 5"))
    outcome, _ = run(request, grid)
    assert "cannot resume, settings changed" in Path(outcome.failed[cell.name]).read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "table7"], "experiment 'table7' is not known; choose from table1"),
        (["run", "table2", "--backbone", "resnet17"], "backbone 'resnet17' is not known"),
        (["run", "table2", "--seeds", "one"], "--seeds 'one': give numbers such as 0,1,2"),
        (["table", "table2", "--format", "pdf"], "format 'pdf' is not known; choose from md"),
        (["figure", "pie"], "figure 'pie' is not known; choose from tsne"),
        (["submit", "nothing.json"], "nothing.json: no such file or folder"),
        (["run", "table2", "--methods", " ,"], "--methods ' ,': give one name or more"),
        (["run", "table2", "--shard", "17/16"], "--shard '17/16': give the part and their number"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_choices(words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = bacon(*words)
    assert isinstance(done.exception, UserError)
    assert line in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_missing_data_is_one_line_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("BACON_DATA", raising=False)
    words = ["run", "table2", "--protocol", "vectors", "--datasets", "cifar100-lt"]
    done = bacon(*words, "--grid", tmp_path)
    assert str(done.exception).startswith("cifar100-lt: no data folder; name one with --data DIR")
    assert not list(tmp_path.iterdir())


def test_a_split_that_cannot_be_drawn_is_one_line(tmp_path):
    words = ["run", "table2", "--protocol", "vectors", "--datasets", "planted", "--ratio", "500"]
    done = bacon(*words, "--grid", tmp_path)
    assert str(done.exception) == "ratio 500 is out of range; choose from 1 to n_max = 120"
    assert not list(tmp_path.iterdir())


def test_a_dataset_without_images_is_left_out_while_the_others_run(tmp_path, monkeypatch):
    monkeypatch.delenv("BACON_DATA", raising=False)
    words = ["run", "table2", "--protocol", "vectors", "--datasets", "planted,cifar100-lt"]
    done = bacon(*words, "--methods", "kmeans,anchored-kmeans", "--grid", tmp_path)
    assert done.exit_code == 1
    assert "2 cells run, 0 were there already" in done.output
    assert done.output.count("cifar100-lt: no data folder") == 1


def test_finished_cells_need_no_images(tmp_path, monkeypatch):
    monkeypatch.delenv("BACON_DATA", raising=False)
    request = Request(("table2",), "vectors", datasets=("cifar100-lt",), methods=("kmeans",))
    (cell,) = request.cells()
    grid = Grid(tmp_path, tmp_path / "results")
    keep(grid, invented(real_result(tmp_path / "cell"), cell, engine=ENGINE - 1))
    done = bacon("run", *request.words(), "--grid", tmp_path)
    assert done.exit_code == 0, done.output
    assert "its model is not kept here, so its block placed stays not run" in done.output
    (tmp_path / "cells" / cell.name / "model").mkdir(parents=True)
    (tmp_path / "cells" / cell.name / "model" / WEIGHTS).touch()
    done = bacon("run", *request.words(), "--grid", tmp_path)
    assert "its block placed stays not run: cifar100-lt: no data folder" in done.output
    assert "0 cells run, 1 were there already" in done.output


def test_the_command_of_a_cell_runs_it_and_no_other(tmp_path):
    result = real_result(tmp_path / "run")
    for experiment, row in (("ablation-b", "vanilla"), ("e1", "GCD"), ("table1", "GCD")):
        request = Request((experiment,), "vectors", datasets=("cifar100-lt",), methods=(row,))
        for cell in request.cells():
            words = shlex.split(request.command_of(cell))[3:]
            grid = tmp_path / cell.name
            keep(Grid(grid, grid / "results"), invented(result, cell))
            shown = json.loads(bacon("status", *words, "--grid", grid, "--json").stdout)
            (counts,) = shown["experiments"].values()
            assert {state: n for state, n in counts.items() if n} == {"finished": 1}


def test_a_result_is_made_without_training_where_the_method_needs_none(tmp_path):
    result = real_result(tmp_path)
    assert result.curve == []
    assert result.task["n_classes"] == 10
    assert result.measures["projected_cosine"] is None


def test_any_labeled_folder_can_be_a_column(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    rng = np.random.default_rng(0)
    for number, name in enumerate(("red", "green", "blue", "gray")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for image in range(12):
            pixels = rng.integers(0, 80, size=(16, 16, 3), dtype=np.uint8)
            pixels[..., number % 3] += np.uint8(150 if number < 3 else 60)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{image}.png")
    words = ["--protocol", "vectors", "--dataset", f"folder:{tmp_path / 'photos'}"]
    words += ["--known", "0.5", "--ratio", "2", "--methods", "kmeans", "--grid", tmp_path / "grid"]
    done = bacon("run", "table2", *words)
    assert done.exit_code == 0, done.output
    (result,) = (tmp_path / "grid/results").glob("*.json")
    task = read_result(result).task
    assert (task["n_classes"], task["n_known"]) == (4, 2)
    assert "known 0.5" in bacon("table", "table2", *words).output
