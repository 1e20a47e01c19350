"""The paper's claims against finished cells."""

from dataclasses import replace

import pytest

from bacon_gcd.benchmark.claims import (
    FAILS,
    HOLDS,
    NOT_TESTED,
    Evidence,
    aligned_and_uniform,
    all_claims,
    claims_text,
    new_gain_most,
    small_overhead,
)
from bacon_gcd.benchmark.experiments import find_experiment
from bacon_gcd.benchmark.grid import Request
from tests.benchmark.grids import grid_in, invented, keep, real_result

SEEDS = (0, 1, 2)
REQUEST = Request((), "vectors", seeds=SEEDS)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return real_result(tmp_path_factory.mktemp("cell"))


def cells_of(label):
    table = find_experiment("table3")
    row = [each.label for each in table.rows].index(label)
    return [REQUEST.cell(table, row, table.columns[0], seed) for seed in SEEDS]


def evidence(tmp_path, result, *, gains, alignment=0.5, seconds=1.2):
    """GCD at 40 in all parts; BaCon-S with these gains on new classes, seed by seed."""
    grid = grid_in(tmp_path)
    measures = {"alignment": 1.0, "uniformity": -2.0, "projected_cosine": 0.2}
    slow = {"train": 30.0, "per_epoch": 1.0, "cpu_per_epoch": 1.0}
    keep(
        grid,
        *(
            invented(result, cell, all=40.0, gap=0.0, measures=measures, seconds=slow)
            for cell in cells_of("GCD")
        ),
    )
    better = measures | {"alignment": alignment, "uniformity": -2.5}
    for cell, gain in zip(cells_of("BaCon-S"), gains, strict=True):
        ours = invented(
            result,
            cell,
            all=40.0 + gain / 2,
            gap=-gain / 2,
            measures=better,
            seconds=slow | {"cpu_per_epoch": seconds},
        )
        keep(grid, ours)
    return Evidence(REQUEST, grid)


def test_a_gain_beyond_what_seeds_do_holds(tmp_path, result):
    claim = new_gain_most(evidence(tmp_path, result, gains=[5.0, 5.5, 6.0]))
    assert claim.verdict == HOLDS
    assert "new +5.5 ± 1.2 (3 seeds)" in claim.numbers


@pytest.mark.parametrize("gains", [[5.0, -4.0, 2.0], [-1.0, -1.1, -1.2]])
def test_a_gain_within_what_seeds_do_does_not(tmp_path, result, gains):
    assert new_gain_most(evidence(tmp_path, result, gains=gains)).verdict == FAILS


def test_measures_and_seconds_are_compared_too(tmp_path, result):
    found = evidence(tmp_path, result, gains=[1.0, 1.0, 1.0])
    assert aligned_and_uniform(found).verdict == HOLDS
    assert small_overhead(found).verdict == HOLDS
    other = evidence(tmp_path / "2", result, gains=[1.0] * 3, alignment=1.5, seconds=3.0)
    assert aligned_and_uniform(other).verdict == FAILS
    assert "3.00 times" in small_overhead(other).numbers


def test_seconds_by_the_clock_of_a_busy_machine_are_no_evidence(tmp_path, result):
    clocked = {"train": 30.0, "per_epoch": 1.0}
    grid = grid_in(tmp_path)
    for cell in (*cells_of("GCD"), *cells_of("BaCon-S")):
        keep(grid, invented(result, cell, seconds=clocked))
    assert small_overhead(Evidence(REQUEST, grid)).verdict == NOT_TESTED


def test_what_was_not_run_is_not_tested(tmp_path):
    claims = all_claims(REQUEST, grid_in(tmp_path))
    assert {claim.verdict for claim in claims} == {NOT_TESTED}
    assert f"not tested: {len(claims)}." in claims_text(claims)


def test_one_seed_says_so(tmp_path, result):
    found = evidence(tmp_path, result, gains=[5.0, 5.5, 6.0])
    one = Evidence(replace(REQUEST, seeds=(0,)), found.grid)
    assert "(1 seed)" in new_gain_most(one).numbers
