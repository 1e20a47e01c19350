"""Results of other people: checked, collected, run again."""

import json
from dataclasses import replace

import pytest

from bacon_gcd.benchmark.cells import ENGINE, trains_with_engine, write_result
from bacon_gcd.benchmark.leaderboard import checked_result, find_result, submit, verify
from bacon_gcd.config import UserError
from tests.benchmark.grids import invented, quick_request, real_result


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return real_result(tmp_path_factory.mktemp("cell"))


def test_a_result_becomes_a_row_and_its_seeds_one_row(tmp_path, result):
    cells = quick_request("gcd", seeds=(0, 1)).cells()
    for cell, value in zip(cells, (40.0, 44.0), strict=True):
        told = submit(write_result(tmp_path, invented(result, cell, all=value)), tmp_path / "board")
    assert told["rows"] == 1
    page = (tmp_path / "board/README.md").read_text()
    assert "| gcd adapted | test_kmeans | 42.0 ± 2.8 | 52.0 ± 2.8 | 32.0 ± 2.8 | 2 |" in page


def test_a_part_that_a_split_has_not_is_a_dash(tmp_path, result):
    block = dict(result.blocks["test_kmeans"]) | {"all": 40.0, "old": 40.0, "new": None}
    blocks = result.blocks | {"test_kmeans": block}
    submit(write_result(tmp_path, replace(result, blocks=blocks)), tmp_path / "board")
    page = (tmp_path / "board/README.md").read_text()
    assert "| test_kmeans | 40.0 | 40.0 | – | 1 |" in page


def test_another_result_of_the_same_run_does_not_replace_the_first(tmp_path, result):
    (cell,) = quick_request("gcd").cells()
    board = tmp_path / "board"
    submit(write_result(tmp_path, invented(result, cell, all=40.0)), board)
    with pytest.raises(UserError, match="another result of the same run"):
        submit(write_result(tmp_path, invented(result, cell, all=41.0)), board)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"protocol": "quick 7"}, "protocol 'quick 7'; known are paper 1"),
        ({"name": "something-else"}, "not of something-else"),
    ],
)
def test_a_result_that_is_not_what_it_says_is_refused(tmp_path, result, changes, line):
    path = write_result(tmp_path, replace(result, **changes))
    with pytest.raises(UserError, match=line):
        checked_result(path)


def test_a_result_trained_with_another_engine_is_refused(tmp_path, result):
    cell = next(c for c in quick_request("bacon-s").cells() if trains_with_engine(c.settings))
    path = write_result(tmp_path, invented(result, cell, engine=ENGINE + 1))
    with pytest.raises(UserError, match=f"trained with engine {ENGINE + 1}; this version has"):
        checked_result(path)


def test_settings_that_the_protocol_has_otherwise_are_refused(tmp_path, result):
    settings = result.settings | {"views": "8"}
    path = write_result(tmp_path, replace(result, settings=settings))
    with pytest.raises(UserError, match="views is 8; quick 1 has 2"):
        checked_result(path)


def test_a_run_is_named_by_its_file_its_folder_or_its_grid(tmp_path, result):
    path = write_result(tmp_path / "results", result)
    folder = tmp_path / "cells" / result.name
    folder.mkdir(parents=True)
    assert find_result(path) == find_result(folder) == find_result(tmp_path) == path
    write_result(tmp_path / "results", replace(result, name="another"))
    with pytest.raises(UserError, match="2 results in it; name one file"):
        find_result(tmp_path)


def test_a_result_of_another_command_is_refused(tmp_path):
    (tmp_path / "result.json").write_text('{"headline": "test_kmeans"}')
    with pytest.raises(UserError, match="not a result of a benchmark; bacon benchmark run writes"):
        checked_result(find_result(tmp_path))


def test_a_second_run_says_whether_a_result_holds(tmp_path, result):
    path = write_result(tmp_path, result)
    assert verify(path, tmp_path / "again", data=None).holds
    false = dict(result.blocks["test_kmeans"])
    false |= {part: false[part] - 5 for part in ("all", "old", "new")}
    wrong = replace(result, blocks=result.blocks | {"test_kmeans": false})
    verdict = verify(write_result(tmp_path, wrong), tmp_path / "more", data=None)
    assert not verdict.holds
    assert "OUTSIDE ± 2.0" in verdict.text()
    assert json.dumps(verdict.as_dict())
