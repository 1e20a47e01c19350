import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bacon_gcd.config import UserError
from bacon_gcd.system.files import replacing_folder, write_atomic
from bacon_gcd.system.locks import draft_folder, is_being_written, locked, remove_parts

HELD = """
import sys, time
from pathlib import Path
from bacon_gcd.system.locks import draft_folder, locked, part_file
with {what} as draft:
    {then}
    print("ready", flush=True)
    time.sleep(60)
"""


def start(what, then="pass"):
    """Another process that holds something until it is killed."""
    code = HELD.format(what=what, then=then)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_lock_is_refused_while_it_is_held_and_ends_with_its_process(tmp_path):
    path = tmp_path / ".lock"
    other = start(f"locked(Path({str(path)!r}))")
    try:
        with pytest.raises(UserError, match="run is in use"), locked(path, busy="run is in use"):
            pass
    finally:
        kill(other)
    with locked(path, busy="run is in use"):
        pass


@pytest.mark.parametrize("name", [".", "", "/"])
def test_a_path_without_a_name_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="name a file or a folder"):
        write_atomic(Path(name), b"x")
    with pytest.raises(UserError, match="name a file or a folder"), draft_folder(Path(name)):
        pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_lock_where_no_file_can_be_made_is_an_error_not_a_wait():
    with pytest.raises(OSError, match="No such file"), locked(Path("/proc/x.lock")):
        pass


def test_the_draft_of_a_killed_process_goes_and_that_of_a_live_one_stays(tmp_path):
    out = tmp_path / "photos"
    other = start(f"draft_folder(Path({str(out)!r}))", "(draft / 'log').write_text('half')")
    try:
        assert is_being_written(out)
        with replacing_folder(tmp_path / "birds") as draft:
            assert draft.is_dir()
        (alive,) = tmp_path.glob(".photos.*.part")
        assert (alive / "log").read_text() == "half"
    finally:
        kill(other)
    assert alive.exists()
    with replacing_folder(out) as draft:
        assert draft != alive
        assert not alive.exists()
    assert sorted(os.listdir(tmp_path)) == ["birds", "photos"]
    assert not is_being_written(out)


def test_any_killed_draft_in_the_folder_goes_at_the_next_start(tmp_path):
    kill(start(f"draft_folder(Path({str(tmp_path / 'photos')!r}))"))
    assert any(tmp_path.iterdir())
    with replacing_folder(tmp_path / "birds"):
        pass
    assert os.listdir(tmp_path) == ["birds"]


def test_a_draft_named_by_a_process_id_does_not_block_its_name(tmp_path):
    (tmp_path / f".photos.{os.getpid()}.part").mkdir()
    with replacing_folder(tmp_path / "photos"):
        pass
    assert os.listdir(tmp_path) == ["photos"]


def test_two_drafts_of_one_name_do_not_meet(tmp_path):
    with draft_folder(tmp_path / "photos") as one, draft_folder(tmp_path / "photos") as two:
        assert one != two
        assert one.is_dir()
    assert os.listdir(tmp_path) == []


def make_run_that_fails(out, beside=None):
    with replacing_folder(out):
        if beside is not None:
            beside.touch()
        raise UserError("a mistake")


def test_folders_that_were_made_for_a_draft_go_with_it_unless_something_is_in_them(tmp_path):
    (tmp_path / "a").mkdir()
    out = tmp_path / "a/b/c/photos"
    with pytest.raises(UserError, match="a mistake"):
        make_run_that_fails(out)
    assert os.listdir(tmp_path) == ["a"]
    assert os.listdir(tmp_path / "a") == []
    with pytest.raises(UserError, match="a mistake"):
        make_run_that_fails(out, beside=tmp_path / "a/b/mine")
    assert os.listdir(tmp_path / "a/b") == ["mine"]
    with replacing_folder(out):
        pass
    assert out.is_dir()


def test_part_files_of_killed_processes_go_with_the_next_write(tmp_path):
    path = tmp_path / "result.json"
    other = start(f"part_file(Path({str(path)!r}))", "draft[1].write(b'half'); draft[1].flush()")
    try:
        write_atomic(path, b"whole")
        assert len(os.listdir(tmp_path)) == 2  # the other is still writing
    finally:
        kill(other)
    write_atomic(tmp_path / "other.json", b"whole")
    assert len(os.listdir(tmp_path)) == 3
    remove_parts(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["other.json", "result.json"]
    assert path.read_bytes() == b"whole"
