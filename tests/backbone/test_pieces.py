import numpy as np
import pytest

from bacon_gcd.backbone import pieces
from bacon_gcd.backbone.pieces import Aside, pieces_in, read_piece, write_piece

TOKENS = np.arange(12, dtype=np.float16).reshape(2, 3, 2)


class Clock:
    """Seconds that pass when a piece is computed, and when one is written."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(pieces, "time", clock)
    return clock


def writes(aside, clock, *, n_pieces, seconds):
    """After how many seconds pieces that take so long were written."""
    times, before = [], 0
    for number in range(n_pieces):
        clock.now += seconds
        aside.put(str(number), TOKENS)
        there = len(pieces_in(aside.folder))
        if there > before:
            times.append((clock.now, there))
        before = there
    return times


def test_a_kill_costs_seconds_or_the_piece_that_takes_longer(tmp_path, clock):
    short = Aside(tmp_path, {})
    assert writes(short, clock, n_pieces=9, seconds=0.75) == [(2.25, 3), (4.5, 6), (6.75, 9)]
    clock.now = 0.0
    (tmp_path / "long").mkdir()
    long = Aside(tmp_path / "long", {})
    assert writes(long, clock, n_pieces=2, seconds=5.0) == [(5.0, 1), (10.0, 2)]


def test_where_the_disk_is_slow_a_hundredth_of_the_time_goes_into_it(tmp_path, clock, monkeypatch):
    def slowly(folder, name, tokens, write=write_piece):
        write(folder, name, tokens)
        clock.now += 0.1

    monkeypatch.setattr(pieces, "write_piece", slowly)
    found = writes(Aside(tmp_path, {}), clock, n_pieces=20, seconds=3.0)
    # A piece takes 0.1 s to write: 10 s pass until the next four, 40 s until the fourteen after.
    assert [there for _, there in found] == [1, 5, 19]
    assert [when for when, _ in found] == pytest.approx([3.1, 15.5, 58.9])


def test_a_chunk_that_was_written_starts_the_time_anew(tmp_path, clock):
    aside = Aside(tmp_path, {})
    clock.now = 1.5
    aside.put("0", TOKENS)
    aside.all_is_stored()
    clock.now = 3.0
    aside.put("1", TOKENS)
    assert not pieces_in(tmp_path)


def test_a_piece_is_what_was_written_or_absent(tmp_path):
    assert read_piece(tmp_path, "a", TOKENS.shape) is None
    write_piece(tmp_path, "a", TOKENS)
    found = read_piece(tmp_path, "a", TOKENS.shape)
    assert found is not None
    np.testing.assert_array_equal(found, TOKENS)
    assert read_piece(tmp_path, "a", (2, 3, 3)) is None
