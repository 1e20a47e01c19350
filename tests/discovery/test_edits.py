import os

import pytest

from bacon_gcd.config import UserError
from bacon_gcd.discovery.edits import (
    EditLog,
    append_edit,
    checked,
    read_edits,
    read_lines,
)


def rename(name, to):
    return {"kind": "rename", "class": name, "to": to}


def undo(number):
    return {"kind": "undo", "of": number}


@pytest.mark.parametrize(
    "edit",
    [
        [],
        {"kind": "delete"},
        {"kind": "rename", "class": "cat"},
        {"kind": "move", "files": "a.png", "to": "x"},
        {"kind": "move", "files": [3], "to": "x"},
        {"kind": "rename", "class": "cat", "to": "a\ud800"},
        {"kind": "undo", "of": True},
        {"kind": "undo", "of": 1, "n": "2"},
        {"kind": "split", "class": "cat", "parts": ["a"], "names": ["x"]},
    ],
    ids=str,
)
def test_an_edit_of_the_wrong_shape_is_refused(edit):
    with pytest.raises(UserError):
        checked(edit)


def test_edits_are_numbered_dated_and_kept_in_order(tmp_path):
    path = tmp_path / "edits.jsonl"
    assert read_edits(path) == []
    append_edit(path, rename("novel_000", "Fischreiher \u202e \n ü"))
    before = path.read_bytes()
    append_edit(path, undo(1))
    edits = read_edits(path)
    assert [(e["n"], e["kind"]) for e in edits] == [(1, "rename"), (2, "undo")]
    assert edits[0]["to"] == "Fischreiher \u202e \n ü"
    assert "time" in edits[0]
    assert path.read_bytes().startswith(before)


def test_a_kill_at_any_byte_of_the_last_edit_loses_only_that_edit(tmp_path):
    path = tmp_path / "edits.jsonl"
    append_edit(path, rename("novel_000", "a"))
    first = path.read_bytes()
    append_edit(path, rename("novel_001", "b"))
    whole = path.read_bytes()
    for cut in range(len(first), len(whole)):
        path.write_bytes(whole[:cut])
        assert [e["to"] for e in read_edits(path)] == ["a"]
        append_edit(path, rename("novel_001", "c"))
        assert [(e["n"], e["to"]) for e in read_edits(path)] == [(1, "a"), (2, "c")]


def test_a_damaged_line_in_the_middle_is_named_and_the_others_are_read(tmp_path):
    path = tmp_path / "edits.jsonl"
    path.write_text('{"kind": "rename", "class": "a", "to": "b"}\nxx\n{"kind": "undo", "of": 1}\n')
    assert [each["kind"] for each in read_edits(path)] == ["rename", "undo"]
    assert [(line.number, line.problem) for line in read_lines(path) if line.problem] == [
        (2, "not an edit")
    ]


def test_an_edit_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    log = EditLog(tmp_path / "edits.jsonl")
    log.append(rename("a", "b"))
    before = log.path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            log.append(rename("b", "c"))
    assert log.path.read_bytes() == before
    assert log.append(rename("b", "d"))["n"] == 2
    assert [each["to"] for each in read_edits(log.path)] == ["b", "d"]


def test_a_program_notices_that_another_one_wrote(tmp_path):
    log = EditLog(tmp_path / "edits.jsonl")
    assert not log.changed()
    log.append(rename("a", "b"))
    assert not log.changed()
    append_edit(log.path, rename("b", "c"))
    assert log.changed()
    assert len(log.read()) == 2
    assert not log.changed()
    assert log.append(undo(2))["n"] == 3
