"""Run folders with values of wrong types: every command gives its answer or one line."""

import copy
import json
import random
import shutil
import tomllib

import pytest

import bacon_gcd
from bacon_gcd.config import UserError, to_toml
from tests.planted_photos import bacon, plant
from tests.small_backbone import use_small_backbone
from tests.soaking import SECONDS, rounds

WRONG = [None, True, -1, 10**30, 0.5, "", "x", [], [None], {}, {"x": []}]
FILES = ["classes.json", "tree.json", "duplicates.json", "model/model.json", "config.toml"]
SHARE = 0.1 / 15  # of a soak, for each file and command
COMMANDS = {
    "recut": ["discover", "--recut", "RUN", "--classes", "5", "-o", "NEW"],
    "predict": ["predict", "RUN", "more", "-o", "NEW"],
    "export": ["export", "RUN", "--to", "NEW", "--dry-run"],
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        use_small_backbone(patch)
        plant(folder / "photos")
        shutil.copy(folder / "photos/red/red-00.png", folder / "photos/red/copy.png")
        plant(folder / "more", n=2, labeled=1)
        bacon_gcd.discover("photos", "run", effort="quick", classes=4)
        yield folder


def read(path):
    return (tomllib if path.suffix == ".toml" else json).loads(path.read_text())


def write(path, value):
    path.write_text(to_toml(value) if path.suffix == ".toml" else json.dumps(value))


def places(value, above=(), *, most=2):
    """Where a value may be replaced; the first few of every list."""
    yield above
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*above, key))
    if isinstance(value, list):
        for number in range(min(len(value), most)):
            yield from places(value[number], (*above, number))


def replaced(value, place, new):
    """A copy with one value replaced, or dropped where `new` is None."""
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    if not place:
        return new
    if new is None and isinstance(inner, dict):
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return value


def cases(sound):
    """(place, wrong value): each place once, in a soak with every value and in random order."""
    found = list(places(sound))
    if SECONDS:
        both = [(place, wrong) for place in found for wrong in WRONG]
        return random.sample(both, len(both))
    return [(place, WRONG[number % len(WRONG)]) for number, place in enumerate(found)]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_value_of_a_wrong_type_is_one_line(work, tmp_path, file, command):
    run = shutil.copytree(work / "run", tmp_path / "run")
    sound = read(run / file)
    failures, tried = {}, cases(sound)
    name = f"wrong types in {file}, {command}"
    for number in rounds(name, short=len(tried), share=SHARE, most=len(tried)):
        place, wrong = tried[number]
        if file.endswith(".toml") and (not place or wrong in ([None], None)):
            continue
        write(run / file, replaced(sound, place, wrong))
        words = {"RUN": run, "NEW": tmp_path / f"new-{number}"}
        done = bacon(*(words.get(word, word) for word in COMMANDS[command]))
        error = done.exception
        said = str(error)
        if error is not None and not (isinstance(error, UserError) and "\n" not in said):
            failures[f"{place} = {wrong!r}"] = repr(error)
    assert not failures, "\n".join(f"{k}: {v}" for k, v in failures.items())
