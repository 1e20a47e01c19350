"""bacon cache list|clear."""

import errno
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bacon_gcd.backbone.bank import only_writer
from bacon_gcd.backbone.cache import stored
from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from tests.backbone.test_bank import build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    weights = tmp_path / "weights"
    (weights / "hf" / "org--tiny").mkdir(parents=True)
    (weights / "resnet18.pypi_in1k.safetensors").write_bytes(b"1" * 1000)
    (weights / "resnet18.pypi_in1k.json").write_text("{}")
    (weights / "hf" / "org--tiny" / "config.json").write_text("{}")
    (weights / "hf" / "org--tiny" / "model.safetensors").write_bytes(b"1" * 500)
    build(tmp_path / "banks", n_images=4, n_views=1)
    build(tmp_path / "banks", n_images=6, n_views=2)
    return tmp_path


def run(*command, code=0):
    result = CliRunner().invoke(app, ["cache", *command])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def names():
    return [each.name for each in stored()]


def test_banks_and_weights_are_listed_with_their_sizes(cache):
    values = json.loads(run("list", "--json").stdout)
    sizes = {each["name"]: each["bytes"] for each in values["entries"]}
    assert sizes["resnet18.pypi_in1k"] == 1002
    assert sizes["hf:org/tiny"] == 502
    assert sum(sizes.values()) == values["bytes"]
    text = run("list").stdout
    assert "4 images, 2 views, tiny" in text
    assert "6 images, 3 views, tiny" in text
    on_disk = sum(file.stat().st_size for file in (cache / "banks").rglob("*") if file.is_file())
    assert values["bytes"] == 1502 + 2 + on_disk


def test_a_cache_that_cannot_be_written_to_is_listed(cache, monkeypatch):
    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.lock_file)

    monkeypatch.setattr("filelock.BaseFileLock.acquire", refuse)
    assert "4 images, 2 views, tiny" in run("list").stdout


def test_clear_removes_one_kind_or_one_entry_and_nothing_else(cache):
    first = names()[0]
    run("clear", first, "--yes")
    assert first not in names()
    assert len(names()) == 3
    run("clear", "weights", "--yes")
    assert len(names()) == 1
    assert not list((cache / "weights").rglob("*.json"))
    assert "removed 1" in run("clear", "--yes").stdout  # banks
    assert names() == []
    assert not list((cache / "banks").iterdir())


def test_clear_asks_and_without_a_person_to_ask_removes_nothing(cache):
    before = names()
    result = CliRunner().invoke(app, ["cache", "clear", "all"])
    assert isinstance(result.exception, UserError)
    assert "--yes" in str(result.exception)
    assert names() == before


def test_an_unknown_name_lists_the_choices(cache):
    with pytest.raises(UserError, match=r"choose from banks, weights, all, .*hf:org/tiny"):
        stored("everything")


CHILD = """
import sys, time
from pathlib import Path
from bacon_gcd.backbone.bank import only_writer
with only_writer(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_bank_that_is_being_filled_is_not_removed(cache):
    busy = names()[0]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(cache / "banks" / busy)], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"locked\n"
        assert "being filled" in run("list").stdout
        told = run("clear", "banks", "--yes").stdout
        assert f"{busy}: in use, not removed" in told
        assert [each.name for each in stored("banks")] == [busy]
    finally:
        child.kill()
        child.wait()
    run("clear", "banks", "--yes")  # the lock of a dead process holds nothing
    assert not stored("banks")


def test_a_bank_of_another_version_is_listed_and_can_be_removed(cache):
    old = cache / "banks" / "0123456789abcdef"
    old.mkdir()
    (old / "meta.json").write_text('{"format": 1}')
    assert "of another version" in run("list").stdout
    run("clear", old.name, "--yes")
    assert not old.exists()


def test_a_writer_that_waited_for_a_removed_bank_makes_its_folder_anew(cache):
    folder = cache / "banks" / names()[0]
    with only_writer(folder):
        waiting = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=-1, stderr=-1)
        assert b"waiting" in waiting.stderr.readline()
        folder.rename(folder.with_name("aside"))
    try:
        assert waiting.stdout.readline() == b"locked\n"
        assert (folder / ".lock").exists()
    finally:
        waiting.kill()
        waiting.wait()


def test_an_empty_cache_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "none"))
    assert "0 in all" in run("list").stdout
    run("clear", "all", "--yes")
    assert not (tmp_path / "none").exists()
