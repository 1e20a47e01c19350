import os

import pytest

from bacon_gcd.system.files import cache_dir, digest, read_json, sha256_of, write_atomic, write_json


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    write_atomic(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


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
