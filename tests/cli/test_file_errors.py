"""A full disk, a read-only folder and the like, at every write of every command: one line, code 2.

Faults are injected: the tests may run as a user who may write everywhere.
"""

import errno
import os
import pathlib
import shutil
import sys

import pytest

import bacon_gcd
from bacon_gcd.cli import main
from bacon_gcd.config import UserError
from bacon_gcd.discovery.edits import append_edit, edits_path
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


def run(monkeypatch, capsys, *words):
    """The command's exit code and the lines of its stderr."""
    monkeypatch.setattr(sys, "argv", ["bacon", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err.splitlines()


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with images and a finished, corrected run; no test may change it."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        use_small_backbone(patch)
        plant(folder / "photos")
        plant(folder / "more", n=6)
        bacon_gcd.discover("photos", "run", effort="quick", classes=4)
        shutil.copytree("run", "plain run")
        edit = {"kind": "rename", "class": "novel_000", "to": "blue"}
        append_edit(edits_path(folder / "run"), edit)
        yield folder


COMMANDS = {
    "discover": ["discover", "photos", "-o", "NEW", "--effort", "quick"],
    "recut": ["discover", "--recut", "plain run", "--classes", "5", "-o", "NEW"],
    "refit": ["discover", "--refit", "run", "-o", "NEW"],
    "update": ["update", "run", "more", "-o", "NEW"],
    "predict": ["predict", "run", "more", "-o", "NEW.csv"],
    "export": ["export", "run", "--to", "NEW"],
    "data show": ["data", "show", "demo", "--save", "NEW.json"],
    "train": ["train", "-o", "NEW", "--dataset", "folder:photos", "--method", "kmeans"],
}
FAULTS = {
    "full disk": ("os.fsync", errno.ENOSPC),
    "read-only": ("pathlib.Path.replace", errno.EROFS),
    "permission": ("pathlib.Path.open", errno.EACCES),
    "long name": ("pathlib.Path.open", errno.ENAMETOOLONG),
}


def inject(monkeypatch, where, code):
    """Let every write fail; reading goes on."""
    whole, _, name = where.rpartition(".")
    owner = {"os": os, "pathlib.Path": pathlib.Path}[whole]
    real = getattr(owner, name)

    def fail(*args, **options):
        mode = (args[1:] or [options.get("mode", "r")])[0]
        if name == "open" and not set("wax+") & set(mode):
            return real(*args, **options)
        file = None if name == "fsync" else str(args[0])
        raise OSError(code, os.strerror(code), file)

    monkeypatch.setattr(owner, name, fail)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_that_fails_is_one_line_and_leaves_what_was_there(
    work, tmp_path, monkeypatch, capsys, command, fault
):
    before = tree(work)
    words = [word.replace("NEW", str(tmp_path / "new")) for word in COMMANDS[command]]
    with monkeypatch.context() as patch:
        inject(patch, *FAULTS[fault])
        code, lines = run(patch, capsys, *words)
    assert code == 2, lines
    assert lines[-1].startswith("bacon: "), lines
    assert os.strerror(FAULTS[fault][1]) in lines[-1]
    assert "Traceback" not in "".join(lines)
    assert tree(work) == before
    if command not in ("export", "train"):  # these continue in their folder
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN"],
        ["predict", "RUN", "photos"],
        ["export", "RUN", "--to", "RUN/new"],
        ["discover", "--recut", "RUN", "--classes", "5", "-o", "RUN/new"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_in_place_of_a_file_is_one_line(work, tmp_path, monkeypatch, capsys, words):
    copy = shutil.copytree(work / "run", tmp_path / "run")
    for name in ("result.json", "model/model.json", "classes.json"):
        (copy / name).unlink(missing_ok=True)
        (copy / name).mkdir()
    code, lines = run(monkeypatch, capsys, *(word.replace("RUN", str(copy)) for word in words))
    assert (code, len(lines)) == (2, 1), lines
    assert "Is a directory" in lines[0]


def test_an_error_of_the_system_is_one_line_in_python_too(work, tmp_path, monkeypatch):
    inject(monkeypatch, *FAULTS["full disk"])
    with pytest.raises(UserError, match="No space left on device"):
        bacon_gcd.discover("photos", tmp_path / "new", effort="quick")
    assert not any(tmp_path.iterdir())
