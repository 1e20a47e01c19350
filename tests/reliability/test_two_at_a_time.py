"""Two commands at a time on everything that can be shared: a folder, a bank, a run, a file."""

import os

import pytest

from bacon_gcd.discovery.edits import edits_path, read_edits
from tests.reliability.commands import COMMANDS, Place
from tests.soaking import rounds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in forks")

ONE_WINS = {"discover", "recut", "refit", "update", "train gcd"}
SHARED = ["discover", "update", "export", "predict", "data show", "embed", "train gcd"]
SHARE = 0.08 / (len(SHARED) + 3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("two"))
    yield place
    place.close()


def ended_well(done):
    """An answer, or one line."""
    assert done.code in (0, 2), done
    assert "Traceback" not in "".join(done.lines), done
    assert done.code == 0 or done.lines[-1].startswith("bacon: "), done


@pytest.mark.parametrize("command", SHARED)
def test_the_same_command_twice_makes_one_whole_result(place, command):
    place.reset(command)
    place.good(*COMMANDS[command])
    expected = place.contents()
    for _ in rounds(f"two at a time: {command}", short=1, share=SHARE):
        place.reset(command)
        both = place.server.together(COMMANDS[command], COMMANDS[command])
        for done in both:
            ended_well(done)
        codes = sorted(done.code for done in both)
        assert codes == [0, 2] if command in ONE_WINS else 0 in codes
        assert place.contents() == expected


def test_two_runs_share_a_bank(place):
    first, second = (["bacon", "discover", "photos", "-o", name] for name in ("NEW", "other"))
    for _ in rounds("two at a time: one bank", short=1, share=SHARE):
        place.reset("")
        both = place.server.together(first, second)
        assert [done.code for done in both] == [0, 0], both
        one, other = (place.folder / name / "predictions.csv" for name in ("NEW", "other"))
        assert one.read_bytes() == other.read_bytes()


def test_two_pages_edit_one_run(place):
    for _ in rounds("two at a time: edits", short=1, share=SHARE):
        place.reset("")
        edits = edits_path(place.folder / "run")
        before = len(read_edits(edits))
        both = place.server.together(["edit", "run", "5"], ["edit", "run", "6"])
        assert [done.code for done in both] == [0, 0], both
        numbers = [edit["n"] for edit in read_edits(edits)]
        assert numbers == list(range(1, before + 5))


def test_a_bank_is_removed_beside_a_run_that_fills_it(place):
    clear = ["bacon", "cache", "clear", "--yes"]
    for _ in rounds("two at a time: bank removed", short=1, share=SHARE):
        place.reset("")
        run, removal = place.server.together(COMMANDS["discover"], clear)
        ended_well(run)
        ended_well(removal)
        assert removal.code == 0
        again = place.again("discover")
        assert again is None or again.code == 0, again
