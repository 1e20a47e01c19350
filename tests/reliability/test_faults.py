"""A kill, SIGTERM or a full disk at the changes that commands make to the file system."""

import functools
import os
import re

import pytest

from tests.reliability.commands import COMMANDS, METHODS, Place
from tests.soaking import SECONDS, points, rounds

SAID = {"full": "No space left on device", "read-only": "Read-only file system"}
TRIED = [*COMMANDS, *(METHODS if SECONDS else [])]
SHARE = 0.35 / (4 * len(TRIED))  # of a soak, for each test

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in forks")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("faults"))
    yield place
    place.close()


@pytest.fixture(scope="module")
def whole(place):
    """Command -> the number of its changes, and all files after it when nothing happens."""

    @functools.cache
    def run(command):
        place.reset(command)
        done = place.good(*place.words(command))
        return done.changes, place.contents()

    return run


def disturbed(place, n_changes, command, kind):
    """What the command says, disturbed at one change after the other."""
    start = (1 + ["kill", "term", *SAID].index(kind)) / 5
    short = 2 if kind in ("kill", "full") else 1
    order = points(n_changes, short=short, start=start)
    for number in rounds(f"{kind}: {command}", short=short, share=SHARE, most=len(order)):
        place.reset(command)
        yield order[number], place.server.run(*place.words(command), kind=kind, at=order[number])


@pytest.mark.parametrize("kind", ["kill", "term"])
@pytest.mark.parametrize("command", TRIED)
def test_after_a_kill_the_command_ends_as_if_nothing_happened(place, whole, command, kind):
    n_changes, expected = whole(command)
    for at, done in disturbed(place, n_changes, command, kind):
        assert done.code < 0 or kind == "term", (at, done)
        again = place.again(command)
        assert again is None or again.code == 0, (at, again)
        assert place.contents() == expected, at


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("command", TRIED)
def test_a_disk_that_is_full_or_read_only_is_one_line_and_loses_nothing(
    place, whole, command, kind
):
    n_changes, expected = whole(command)
    for at, done in disturbed(place, n_changes, command, kind):
        assert done.code in (0, 2), (at, done)
        if done.code:
            assert SAID[kind] in done.lines[-1], (at, done)
            assert re.match(r"bacon: \S.*: ", done.lines[-1]), (at, done)  # the file is named
            assert "Traceback" not in "".join(done.lines)
        again = place.again(command)
        assert again is None or again.code == 0, (at, again)
        assert place.contents() == expected, at
