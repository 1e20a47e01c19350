"""How long tests go on: a few rounds in `make test`, a share of the given time in `make soak`."""

import json
import os
import random
import sys
import time
from pathlib import Path

SECONDS = float(os.environ.get("BACON_SOAK", 0))
"""Of the whole soak; 0: the bounded version."""
RESULTS = os.environ.get("BACON_SOAK_RESULTS", "")


def rounds(name, *, short, share, most=None):
    """Numbers 0, 1, ...: `short` of them, or as many as fit into a share of the soak.

    most: of a soak; there is nothing new after it.
    """
    if not SECONDS:
        yield from range(short)
        return
    end, done = time.monotonic() + share * SECONDS, 0
    while time.monotonic() < end and done != most:
        yield done
        done += 1
    note(name, done)


def note(name, n_rounds):
    """Keep what a soak has done; several processes append to the file."""
    if RESULTS:
        with Path(RESULTS).open("a") as file:
            file.write(json.dumps({"name": name, "rounds": n_rounds}) + "\n")


def seed(number):
    """Of a round: the same in every `make test`, another one in every soak."""
    return number if not SECONDS else random.SystemRandom().randrange(2**32)


def points(n, *, short, start):
    """Numbers 1 to n in the order in which they are tried; the bounded version spreads a few.

    start: 0 to 1, so that tests that share a command try different ones.
    """
    if SECONDS:
        return random.SystemRandom().sample(range(1, n + 1), n)
    return [1 + int(n * (k + start) / short) for k in range(short)]


def summary(results):
    """Rounds by name, most first."""
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    total = {}
    for line in lines:
        total[line["name"]] = total.get(line["name"], 0) + line["rounds"]
    return "\n".join(f"{n:>8}  {name}" for name, n in sorted(total.items(), key=lambda i: -i[1]))


if __name__ == "__main__":
    print(summary(sys.argv[1]))
