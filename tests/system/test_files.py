import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bacon_gcd.config import UserError
from bacon_gcd.system import files
from bacon_gcd.system.files import (
    append_line,
    cache_dir,
    describe,
    digest,
    read_json,
    read_tensors,
    replacing_folder,
    sha256_of,
    writable,
    write_atomic,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    write_atomic(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space.*a\.bin"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def as_it_is(path):
    """All that the system says of a file, but when it was looked at last."""
    said = path.lstat()
    names = [name for name in dir(said) if name.startswith("st_") and "atime" not in name]
    return {name: getattr(said, name) for name in names}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system knows no named pipes")
@pytest.mark.parametrize("name", ["pipe", "link to the pipe", "stdout"])
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "DEVICES", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to the pipe").symlink_to("pipe")
    (tmp_path / "redirected").write_text("old")
    (tmp_path / "stdout").symlink_to("redirected")
    before = {path: as_it_is(path) for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=f"{name}: a device or a pipe"):
        write_atomic(tmp_path / name, b"new")
    assert {path: as_it_is(path) for path in tmp_path.iterdir()} == before


def test_a_link_elsewhere_is_replaced_and_what_it_names_stays(tmp_path):
    (tmp_path / "named").write_text("old")
    (tmp_path / "link").symlink_to("named")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "named").read_text() == "old"
    assert (tmp_path / "link").read_bytes() == b"new"


def test_json_is_stable_and_refuses_nan(tmp_path):
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"b": 1, "a": "ü"})
    assert path.read_text() == '{\n  "a": "ü",\n  "b": 1\n}\n'
    assert read_json(path) == {"a": "ü", "b": 1}
    with pytest.raises(ValueError):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": "ü", "b": 1}


def test_digests_depend_on_values_and_not_on_key_order(tmp_path):
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert sha256_of(path).startswith("ba7816bf")


def test_the_cache_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("BACON_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "bacon_gcd"


@dataclass(frozen=True)
class Counted:
    name: str
    count: int


DAMAGED = {
    "empty": "",
    "cut": "[1, 2",
    "key missing": '{"name": "a"}',
    "wrong type": '{"name": 3, "count": 1}',
    "list": "[]",
    "null": "null",
    "constant": "NaN",
    "constant inside": '{"name": "a", "count": NaN}',
    "not UTF-8": "\udcff",
    "nesting": "[" * 100_000,
    "digits": '{"name": "a", "count": ' + "9" * 9999 + "}",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_json_that_is_not_what_it_should_be_is_one_line(tmp_path, text):
    path = tmp_path / "classes.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"classes.json: not the count of a class") as caught:
        read_json(path, Counted, what="the count of a class")
    assert "\n" not in str(caught.value)


def test_json_becomes_the_kind_that_is_asked_for(tmp_path):
    path = tmp_path / "classes.json"
    write_json(path, [{"name": "a", "count": 2}])
    assert read_json(path, list[Counted]) == [Counted("a", 2)]


@pytest.mark.parametrize("damage", ["empty", "cut", "header", "folder", "absent"])
def test_damaged_tensors_are_one_line(tmp_path, damage):
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(10)}, path)
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "absent":
        lying = (2**62).to_bytes(8, "little") + data[8:]
        path.write_bytes({"empty": b"", "cut": data[:-3], "header": lying}[damage])
    with pytest.raises(UserError, match=r"model\.safetensors: ") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)


def test_an_error_of_the_system_names_its_file(tmp_path):
    with pytest.raises(OSError) as caught:
        append_line(tmp_path / "absent" / "log.jsonl", "x")
    assert describe(caught.value) == f"{tmp_path}/absent/log.jsonl: No such file or directory"
    assert describe(OSError(28, "No space left on device")) == "No space left on device"
    both = OSError(39, "Directory not empty", "a", None, "b")
    assert describe(both) == "a -> b: Directory not empty"


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    out = tmp_path / "runs" / "photos"
    with pytest.raises(ValueError, match="half"), replacing_folder(out) as draft:
        raise ValueError((draft / "a").write_text("half") and "half")
    assert os.listdir(tmp_path) == []
    with replacing_folder(out) as draft:
        (draft / "a").write_text("whole")
    assert os.listdir(tmp_path / "runs") == ["photos"]
    with pytest.raises(UserError, match="photos: already there"), replacing_folder(out):
        pass
    assert (out / "a").read_text() == "whole"


def test_a_folder_in_a_file_or_where_nothing_can_be_made_is_named_as_it_was_asked_for(
    tmp_path, monkeypatch
):
    (tmp_path / "photo.png").touch()
    line = r"photo\.png/run: .*photo\.png is a file, not a folder"
    with pytest.raises(UserError, match=line), replacing_folder(tmp_path / "photo.png" / "run"):
        pytest.fail("it was begun")

    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(UserError) as told, replacing_folder(tmp_path / "run"):
        pytest.fail("it was begun")
    assert str(told.value) == f"{tmp_path / 'run'}: Permission denied"


def test_a_folder_that_another_process_writes_is_refused_before_any_work(tmp_path):
    out = tmp_path / "photos"
    with replacing_folder(out) as draft:
        (draft / "a").write_text("first")
        line = "photos: another process is writing it; name another folder"
        with pytest.raises(UserError, match=line), replacing_folder(out):
            pytest.fail("it was begun")
    assert (out / "a").read_text() == "first"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG])
@pytest.mark.parametrize("at", ["mkdir", "replace"])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, code, at):
    def fail(self, *_, **__):
        raise OSError(code, os.strerror(code), str(self))

    out = tmp_path / "photos"
    message = rf"^{tmp_path}.*: {os.strerror(code)}$"
    monkeypatch.setattr(f"pathlib.Path.{at}", fail)
    with pytest.raises(UserError, match=message), replacing_folder(out):
        pass
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_writable_where_it_can_be_made(tmp_path, monkeypatch):
    assert writable(tmp_path / "a/b")
    (tmp_path / "file").write_text("")
    assert not writable(tmp_path / "file/b")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not writable(tmp_path)
