import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import placing
from bacon_gcd.discovery.edits import append_edit, edits_path
from bacon_gcd.discovery.export import (
    HOW,
    MANIFEST,
    export,
    plan_export,
    undo_export,
)
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.safe_names import MAX_BYTES, safe_file_name, safe_name, unique_name
from bacon_gcd.system.locks import locked
from tests.discover_samples import make_run, predictions


def tree(folder):
    """Every file with its bytes, links as what they point to; without the manifest."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


def go(run, to, how="copy"):
    loaded = DiscoverRun.load(run)
    return export(plan_export(loaded, how=how), to, roots=loaded.roots)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("cat", "cat"),
        ("grey heron", "grey heron"),
        ("Ü 漢字", "Ü 漢字"),
        ("a/b\\c", "a_b_c"),
        ("..", "_"),
        (".", "_"),
        ("", "_"),
        (" . ", "_"),
        (".hidden", "_hidden"),
        ("-rf", "_rf"),
        ("~root", "_root"),
        ("CON", "_CON"),
        ("con.txt", "_con.txt"),
        ("Com1", "_Com1"),
        ("lpt¹", "_lpt¹"),
        ("console", "console"),
        ("end. . ", "end"),
        ('<>:"|?*', "_______"),
        ("a\x00\n\x7fb", "a___b"),
        ("photo\u202egpj.exe", "photo_gpj.exe"),
        ("\udcff", "_"),
        ("e\u0301", "é"),
    ],
)
def test_a_name_becomes_safe_on_every_system(name, safe):
    assert safe_name(name) == safe


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_becomes_one_plain_short_name_and_stays_the_same_then(text):
    name = safe_name(text)
    assert name not in ("", ".", "..")
    assert 0 < len(name.encode()) <= MAX_BYTES + 1
    assert not set(name) & set('<>:"/\\|?*\0\n')
    assert name[-1] not in ". "
    assert name[0] not in ". "
    assert safe_name(name) == name


@given(
    st.lists(st.sampled_from(["A", "a", "a (2)", "ａ", "e\u0301", "é", "CON", "_con"]), max_size=8)
)
@settings(max_examples=50, deadline=None)
def test_names_that_some_system_takes_for_one_are_numbered(texts):
    taken = set()
    names = [unique_name(safe_name(text), taken) for text in texts]
    assert len({name.casefold() for name in names}) == len(texts)


def test_a_long_file_name_keeps_its_suffix(tmp_path):
    name = safe_file_name(tmp_path / ("漢" * 80 + ".png"))
    assert name.endswith("漢.png")
    assert len(name.encode()) <= MAX_BYTES


def test_every_class_gets_its_folder_with_the_edits_applied(tmp_path):
    run = make_run(tmp_path)
    edits = edits_path(run)
    append_edit(edits, {"kind": "rename", "class": "novel_000", "to": "heron"})
    append_edit(edits, {"kind": "move", "files": ["in/0_3.png"], "to": "dog"})
    append_edit(edits, {"kind": "wrong", "files": ["in/3_0.png"]})
    facts = go(run, tmp_path / "out")
    assert facts["folders"] == {"_unlabeled": 1, "cat": 3, "dog": 5, "heron": 4, "novel_001": 3}
    assert (tmp_path / "out" / "dog" / "0_3.png").is_file()
    table = read_images(tmp_path / "out")
    assert table.class_names == ("cat", "dog", "heron", "novel_001")
    assert (table.labels == -1).sum() == 1


@pytest.mark.parametrize("how", HOW)
def test_an_export_again_changes_nothing_and_undo_restores_everything(tmp_path, how):
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    assert go(run, to, how)["placed"] == 16
    after = tree(to)
    assert sorted(after.values()) == sorted(before.values())
    assert bool(tree(tmp_path / "source")) == (how != "move")
    again = go(run, to, how)
    assert (again["placed"], again["there already"]) == (0, 16)
    assert tree(to) == after
    assert undo_export(to) == {"undone": str(to), "how": how, "images": 16, "kept": {}}
    assert tree(tmp_path / "source") == before
    assert not to.exists()


def between_mounts(call):
    """os.link and os.rename as they are between two mounts, also of one file system."""

    def fails(source, target, **options):
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        return call(source, target, **options)

    return fails


def test_images_move_to_another_mount_and_back(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", between_mounts(os.link))
    monkeypatch.setattr(os, "rename", between_mounts(os.rename))
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    go(run, to, "move")
    assert tree(tmp_path / "source") == {}
    undo_export(to)
    assert tree(tmp_path / "source") == before


def test_a_copy_that_differs_does_not_cost_the_image(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", between_mounts(os.link))
    monkeypatch.setattr(os, "rename", between_mounts(os.rename))
    monkeypatch.setattr(shutil, "copy2", lambda source, part: part.write_bytes(b"half"))
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    with pytest.raises(UserError, match="the copy differs from its source"):
        go(run, to, "move")
    assert tree(tmp_path / "source") == before


@pytest.mark.parametrize("then", ["undo", "continue"])
def test_a_kill_while_the_list_is_written_can_be_undone_or_continued(tmp_path, then):
    run, to = make_run(tmp_path), tmp_path / "out"
    code = (
        "import os, signal, sys\n"
        "os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from bacon_gcd.cli import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", code, "export", str(run), "--to", str(to)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(to)) == 1
    if then == "continue":
        assert go(run, to)["placed"] == 16
    assert undo_export(to)["kept"] == {}
    assert not to.exists()


def moved_with(tmp_path, **changes):
    """A finished move whose list was changed by somebody."""
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to, "move")
    stored = json.loads((to / MANIFEST).read_text())
    stored["items"][0] |= changes
    (to / MANIFEST).write_text(json.dumps(stored))
    return to


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{0}/elsewhere/0_0.png", "is outside of"),
        ("{0}/source/../elsewhere/0_0.png", "damaged"),
        ("{0}/source/in/.bashrc", "is not named like an image"),
        ("{0}/source/link/0_0.png", "leads out of"),
        ("{0}/source/in/\0.png", "is no name of a file"),
    ],
)
def test_undo_puts_nothing_where_no_image_came_from(tmp_path, source, reason):
    (tmp_path / "elsewhere").mkdir()
    to = moved_with(tmp_path, source=source.format(tmp_path))
    (tmp_path / "source" / "link").symlink_to(tmp_path / "elsewhere")
    try:
        kept = undo_export(to)["kept"]
    except UserError as error:
        kept = {"cat/0_0.png": str(error)}
    assert reason in kept["cat/0_0.png"]
    assert not any((tmp_path / "elsewhere").iterdir())
    assert (to / "cat" / "0_0.png").is_file()


def test_undo_overwrites_nothing(tmp_path):
    to = moved_with(tmp_path)
    (tmp_path / "source" / "in" / "0_0.png").write_bytes(b"another")
    assert "no longer the same" in undo_export(to)["kept"]["cat/0_0.png"]
    assert (tmp_path / "source" / "in" / "0_0.png").read_bytes() == b"another"


def test_undo_without_the_run_needs_the_folder_of_the_images(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    go(run, to, "move")
    shutil.rmtree(run)
    with pytest.raises(UserError, match="name the folder of its images with --images"):
        undo_export(to)
    words = ["export", "--undo", str(to), "--images", str(tmp_path / "source")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert tree(tmp_path / "source") == before


def test_two_exports_to_one_folder_do_not_mix(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    lock = tmp_path / ".out.lock"
    with locked(lock):
        with pytest.raises(UserError, match="another process is exporting"):
            go(run, to)
        assert lock.exists()
    assert go(run, to)["placed"] == 16
    assert sorted(os.listdir(tmp_path)) == ["out", "run", "source"]


@pytest.mark.parametrize(
    "change",
    [{"items": 3}, {"items": [{"source": 1, "target": "a/b"}]}, {"how": None}, {"run": []}],
)
def test_a_list_of_wrong_types_is_one_line(tmp_path, change):
    stored = {"run": "", "how": "move", "items": [], "left_out": {}}
    (tmp_path / MANIFEST).write_text(json.dumps(stored | change))
    with pytest.raises(UserError, match=f"{MANIFEST}: not the list of an export"):
        undo_export(tmp_path)


def cut(to, share):
    """Cut the list of an export off behind this share of its bytes."""
    whole = (to / MANIFEST).read_bytes()
    (to / MANIFEST).write_bytes(whole[: int(share * len(whole))])
    return whole


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_list_that_was_cut_off_is_completed_by_the_same_command(tmp_path, how, share):
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    go(run, to, how)
    exported, whole = tree(to), cut(to, share)
    with pytest.raises(UserError, match="the command that made the export completes it") as caught:
        undo_export(to)
    assert str(to / MANIFEST) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert go(run, to, how)["there already"] == 16
    assert (tree(to), (to / MANIFEST).read_bytes()) == (exported, whole)
    assert undo_export(to)["kept"] == {}
    assert tree(tmp_path / "source") == before


def test_a_list_that_was_cut_off_is_not_completed_where_other_files_are(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to)
    cut(to, 0.5)
    (to / "cat" / "mine.png").write_bytes(b"mine")
    before = tree(tmp_path)
    with pytest.raises(UserError, match=r"cut off.*mine\.png is not what this command would put"):
        go(run, to)
    (to / "cat" / "mine.png").rename(to / "cat" / "0_0.png")
    with pytest.raises(UserError, match=r"0_0\.png is not what this command would put"):
        go(run, to)
    assert len(tree(tmp_path)) == len(before) - 1


def test_a_list_that_was_cut_off_is_not_completed_by_another_export(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to)
    cut(to, 0.5)
    with pytest.raises(UserError, match="not the list of an export"):
        go(run, to, "move")
    assert len(tree(tmp_path / "source")) == 16


def test_moved_images_of_one_name_are_not_taken_for_each_other(tmp_path):
    rows = [replace(row, file_name=row.file_name.replace("_", "/")) for row in predictions()]
    run, to = make_run(tmp_path, rows), tmp_path / "out"
    go(run, to, "move")
    cut(to, 0)
    moved = tree(to)
    with pytest.raises(UserError, match=r"4 images are named 0\.png; move them back by hand"):
        go(run, to, "move")
    assert tree(to) == moved


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("then", ["undo", "continue"])
def test_a_crash_before_or_after_any_action_can_be_undone_or_continued(
    tmp_path, how, then, monkeypatch
):
    run = make_run(tmp_path, predictions()[:3])
    before = tree(tmp_path / "source")
    whole = tmp_path / "whole"
    go(run, whole, how)
    expected = tree(whole)
    undo_export(whole)
    for stop in range(40):
        to, calls = tmp_path / f"out{stop}", iter(range(100))

        def dies(call, *rest, limit=stop, calls=calls, **named):
            if next(calls) == limit:
                raise KilledError
            return call(*rest, **named)

        with monkeypatch.context() as patch:
            for owner, name in (
                (os, "link"),
                (os, "unlink"),
                (os, "symlink"),
                (shutil, "copy2"),
                (placing, "_rename"),
            ):
                real = getattr(owner, name)
                patch.setattr(owner, name, lambda *a, _real=real, **k: dies(_real, *a, **k))
            try:
                go(run, to, how)
                finished = True
            except KilledError:
                finished = False
        if then == "continue":
            go(run, to, how)
            assert tree(to) == expected
        undo_export(to)
        assert tree(tmp_path / "source") == before
        assert not to.exists()
        if finished:
            break
    assert stop > 2
    assert finished


def test_a_real_kill_in_the_middle_of_a_move_loses_no_image(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    before = tree(tmp_path / "source")
    code = (
        "import os, signal, sys\n"
        "from bacon_gcd.discovery import export\n"
        "from bacon_gcd.cli import main\n"
        "real, calls = export._place, []\n"
        "def place(*a):\n"
        "    calls.append(a)\n"
        "    if len(calls) == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*a)\n"
        "export._place = place\n"
        "main()\n"
    )
    words = [sys.executable, "-c", code, "export", str(run), "--to", str(to), "--how", "move"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert len(tree(to)) == 6
    undo_export(to)
    assert tree(tmp_path / "source") == before


def test_a_folder_with_other_things_in_it_is_refused(tmp_path):
    to = tmp_path / "out"
    (to / "cat").mkdir(parents=True)
    (to / "cat" / "0_0.png").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        go(make_run(tmp_path), to)
    assert tree(to) == {"cat/0_0.png": b"mine"}


def test_a_file_that_came_in_between_is_neither_overwritten_nor_taken_back(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to)
    (to / "cat" / "0_0.png").write_bytes(b"edited by hand")
    with pytest.raises(UserError, match="nothing overwritten"):
        go(run, to)
    assert list(undo_export(to)["kept"]) == ["cat/0_0.png"]
    assert tree(to) == {"cat/0_0.png": b"edited by hand"}


def test_undo_never_deletes_the_only_copy_of_an_image(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to)
    (tmp_path / "source" / "in" / "0_0.png").unlink()
    assert "only one" in undo_export(to)["kept"]["cat/0_0.png"]
    assert (to / "cat" / "0_0.png").is_file()


def test_after_more_edits_the_old_export_has_to_be_undone_first(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    go(run, to)
    append_edit(edits_path(run), {"kind": "rename", "class": "cat", "to": "lion"})
    with pytest.raises(UserError, match="bacon export --undo"):
        go(run, to)


@pytest.mark.parametrize("inside", ["", "sorted", "in/sorted"])
def test_an_export_into_the_images_own_folder_is_refused(tmp_path, inside):
    run = make_run(tmp_path)
    with pytest.raises(UserError, match="choose one outside"):
        go(run, tmp_path / "source" / inside)


def test_linked_images_are_copied_and_links_put_into_the_export_are_not_followed(tmp_path):
    rows = [replace(predictions()[0], file_name=n) for n in ("a.png", "out.png", "../x.png")]
    run, to = make_run(tmp_path, rows, images=False), tmp_path / "out"
    (tmp_path / "x.png").write_bytes(b"secret")
    (tmp_path / "source" / "a.png").write_bytes(b"a")
    (tmp_path / "source" / "out.png").symlink_to(tmp_path / "x.png")
    assert set(go(run, to)["left out"]) == {"../x.png"}
    assert tree(to) == {"cat/a.png": b"a", "cat/out.png": b"secret"}
    for name in ("a.png", "out.png"):
        (to / "cat" / name).unlink()
    (to / "cat").rmdir()
    (to / "cat").symlink_to(tmp_path / "source")
    with pytest.raises(UserError, match="a link"):
        go(run, to)
    assert undo_export(to)["kept"] == dict.fromkeys(
        ("cat/a.png", "cat/out.png"), "its folder is a link"
    )
    assert (tmp_path / "source" / "a.png").read_bytes() == b"a"


def test_hostile_class_names_stay_inside_the_export(tmp_path):
    names = ["../../up", "CON", "a", "A", "_unlabeled", "Unlabeled", MANIFEST, "x" * 400, "/abs"]
    classes = [FoundClass(i, name, False) for i, name in enumerate(names)]
    run, to = make_run(tmp_path, predictions(classes, 1), classes), tmp_path / "out"
    go(run, to)
    found = {path.name for path in to.iterdir()} - {MANIFEST}
    long = "x" * MAX_BYTES
    numbered = {"A (2)", "_unlabeled (2)", "Unlabeled (2)", f"{MANIFEST} (2)"}
    assert found == {"_._.._up", "_CON", "a", long, "_abs"} | numbered


def test_boxes_of_one_file_are_placed_once_per_class_and_not_torn_apart_by_a_move(tmp_path):
    rows = predictions()
    names = ["a.png#0,0,2,2", "a.png#1,1,2,2", "a.png#2,2,2,2"]
    rows = [replace(row, file_name=n) for row, n in zip(rows[3:6], names, strict=True)]
    run = make_run(tmp_path, rows, images=False)
    (tmp_path / "source" / "a.png").write_bytes(b"a")
    assert go(run, tmp_path / "out")["folders"] == {"cat": 1, "dog": 1}
    moved = go(run, tmp_path / "moved", "move")
    assert moved["images"] == 0
    assert "several classes" in next(iter(moved["left out"].values()))


@pytest.mark.parametrize("target", ["../x", "a/../../x", "/etc/x", "x", "a/b/c"])
def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path, target):
    item = {"source": str(tmp_path / "s"), "target": target}
    stored = {"run": "", "how": "move", "items": [item], "left_out": {}}
    (tmp_path / MANIFEST).write_text(json.dumps(stored))
    with pytest.raises(UserError, match=MANIFEST):
        undo_export(tmp_path)


def test_the_command_tells_what_it_would_do_does_it_and_takes_it_back(tmp_path):
    run, to = make_run(tmp_path), tmp_path / "out"
    call = CliRunner().invoke
    dry = call(app, ["export", str(run), "--to", str(to), "--dry-run"])
    assert "nothing was written" in dry.stdout
    assert "novel_001  4" in dry.stdout
    assert not to.exists()
    done = call(app, ["export", str(run), "--to", str(to), "--json"])
    assert json.loads(done.stdout)["placed"] == 16
    back = call(app, ["export", "--undo", str(to)])
    assert "images  16" in back.stdout
    assert not to.exists()


@pytest.mark.parametrize(
    "words", [["export"], ["export", "RUN"], ["export", "RUN", "--to", "x", "--how", "teleport"]]
)
def test_a_mistake_in_the_command_is_one_line(tmp_path, words):
    run = str(make_run(tmp_path))
    failed = CliRunner().invoke(app, [run if word == "RUN" else word for word in words])
    assert isinstance(failed.exception, UserError)
    assert "\n" not in str(failed.exception)


def test_a_move_takes_no_image_out_of_a_linked_folder(tmp_path):
    rows = [replace(predictions()[0], file_name="far/a.png")]
    run = make_run(tmp_path, rows, images=False)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").write_bytes(b"a")
    (tmp_path / "source" / "far").symlink_to(tmp_path / "elsewhere")
    plan = plan_export(DiscoverRun.load(run), how="move")
    assert plan.left_out == {"far/a.png": "a link is not moved; use --how copy"}
    assert len(plan_export(DiscoverRun.load(run), how="copy").items) == 1
