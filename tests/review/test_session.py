"""The run under review: differences instead of everything, and nothing is lost or half done."""

import json
import os

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")

from bacon_gcd.config import UserError
from bacon_gcd.discovery import journal
from bacon_gcd.discovery.edited import EditedRun
from bacon_gcd.discovery.edits import append_edit, edits_path, read_edits
from bacon_gcd.review import session as session_module
from bacon_gcd.review.asked import NotThereError, split_edit
from bacon_gcd.review.session import Session
from tests.discover_samples import CLASSES, make_run, predictions

CONFIRMED, WRONG, LABELED = 1, 2, 4


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path)


@pytest.fixture
def session(run):
    return Session(run)


def confirm(session, *images, **more):
    return session.edit({"kind": "confirm", "images": list(images), **more})


def seen(session):
    """What a page sees that loads everything now, without what differs between servers."""
    return {k: v for k, v in session.state().items() if k not in ("key", "version")}


def follow(state, changes):
    """A page's copy of the state after a difference, as model.js makes it."""
    if "images" in changes:
        return changes
    images = {
        name: dict(enumerate(c)) for name, c in state["images"].items() if name != "suggested"
    }
    suggested = {int(row): each for row, each in state["images"]["suggested"].items()}
    for row, class_id, marks, proposed in changes["changed"]:
        images["class"][row], images["marks"][row] = class_id, marks
        suggested.pop(row, None)
        suggested |= {} if proposed is None else {row: proposed}
    classes = {each["id"]: each for each in state["classes"] if each["id"] not in changes["gone"]}
    classes |= {each["id"]: each for each in changes["classes"]}
    columns = {name: list(column.values()) for name, column in images.items()}
    ordered = sorted(classes.values(), key=lambda each: each["position"])
    return state | {
        "images": columns | {"suggested": suggested},
        "classes": ordered,
        "version": changes["version"],
        "undo": changes["undo"],
    }


EDITS = (
    {"kind": "rename", "class": 2, "to": "heron"},
    {"kind": "move", "images": [0, 8], "to": 1},
    {"kind": "move", "images": [9], "to": "owl"},
    {"kind": "confirm", "images": [4]},
    {"kind": "wrong", "images": [5]},
    {"kind": "split", "class": 3, "parts": 2},
    {"kind": "merge", "classes": [2, 3], "to": 3},
    *({"kind": "undo"},) * 3,
    {"kind": "confirm", "images": [12, 13]},
)


def test_a_page_that_follows_the_differences_sees_what_is_there(session):
    state = session.state()
    for edit in EDITS:
        state = follow(state, session.edit({**edit, "since": state["version"]}))
        assert state == session.state()


def test_a_split_leaves_labeled_and_confirmed_images_where_a_person_put_them():
    edited = EditedRun(predictions(), CLASSES)  # of the four cats the first two have labels
    edit = split_edit(edited, "cat", {0: 0, 1: 1, 2: 1, 3: 0})
    assert edit["names"][0] == "cat"
    assert edit["parts"] == [["in/0_0.png", "in/0_1.png", "in/0_3.png"], ["in/0_2.png"]]
    most = split_edit(edited, "cat", {0: 1, 1: 1, 2: 0, 3: 0})
    assert most["parts"] == [["in/0_0.png", "in/0_1.png"], ["in/0_2.png", "in/0_3.png"]]
    edited.apply({"kind": "confirm", "files": ["in/0_2.png"]})
    assert split_edit(edited, "cat", {0: 0, 1: 1, 2: 1, 3: 0})["parts"][1] == ["in/0_3.png"]
    with pytest.raises(UserError, match="'cat' are all alike"):
        split_edit(edited, "cat", {0: 0, 1: 0, 2: 1, 3: 0})


def test_a_page_that_missed_edits_of_another_one_hears_of_them_with_its_next_answer(session):
    state = session.state()
    for edit in EDITS[:4]:
        session.edit(edit)
    changes = session.edit({**EDITS[4], "since": state["version"]})
    assert "images" not in changes
    assert follow(state, changes) == session.state()
    assert session.changes(changes["version"])["changed"] == []


@pytest.mark.parametrize("since", [None, 3, "", "x.1", "99", ".", "é.1"])
def test_a_version_nobody_knows_gets_everything(session, since):
    confirm(session, 0)
    assert "images" in session.changes(since)
    assert "images" in session.changes(f"{session.key}.99")


def test_what_an_edit_costs_does_not_grow_with_the_session(tmp_path, monkeypatch):
    session = Session(make_run(tmp_path, predictions(per_class=50), images=False))
    applied = []
    real = EditedRun.apply
    monkeypatch.setattr(
        EditedRun, "apply", lambda self, edit: applied.append(edit) or real(self, edit)
    )
    for number in range(60):
        answer = confirm(session, number, since=session.version)
        assert len(applied) == number + 1  # the edit itself, no other one again
        assert len(json.dumps(answer)) < 150
    session.edit({"kind": "undo"})
    assert len(applied) == 60


def test_an_edit_that_another_program_made_is_heeded(session, run):
    confirm(session, 0)
    append_edit(edits_path(run), {"kind": "rename", "class": "novel_000", "to": "heron"})
    with pytest.raises(UserError, match="there is a class 'heron' already"):
        session.edit({"kind": "rename", "class": 3, "to": "heron"})
    assert len(read_edits(edits_path(run))) == 2
    assert "images" in confirm(session, 1, since=f"{session.key}.2")
    assert session.edited.classes[2].name == "heron"
    assert session.skipped == []
    assert seen(session) == seen(Session(run))


def test_lines_that_cannot_be_applied_are_told_and_the_rest_counts(session, run):
    confirm(session, 0)
    append_edit(edits_path(run), {"kind": "rename", "class": "gone", "to": "x"})
    append_edit(edits_path(run), {"kind": "rename", "class": "cat", "to": "kitty"})
    again = Session(run)
    (said,) = again.state()["skipped"]
    assert said.startswith("line 2: class 'gone' is not known")
    assert again.edited.classes[0].name == "kitty"
    again.edit({"kind": "undo"})
    assert again.edited.classes[0].name == "cat"
    assert seen(again) == seen(Session(run))


def test_a_full_disk_changes_nothing(session, run, monkeypatch):
    confirm(session, 0)
    before, stored = seen(session), edits_path(run).read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for edit in ({"kind": "move", "images": [1, 9], "to": "owl"}, {"kind": "undo"}):
            with pytest.raises(OSError, match="No space left"):
                session.edit(edit)
    assert (seen(session), edits_path(run).read_bytes()) == (before, stored)
    confirm(session, 1)
    assert seen(session) == seen(Session(run))


def test_undo_reaches_further_back_than_what_is_kept_in_memory(session, run, monkeypatch):
    first = seen(session)
    monkeypatch.setattr(journal, "KEPT_CHANGES", 3)
    for number in range(12):
        confirm(session, number)
    for _ in range(12):
        session.edit({"kind": "undo"})
    assert seen(session) == first
    with pytest.raises(UserError, match="nothing to undo"):
        session.edit({"kind": "undo"})


def test_a_page_that_slept_too_long_gets_everything(session, monkeypatch):
    old = session.version
    for number in range(session_module.KEPT_DIFFERENCES + 1):
        session.edit({"kind": "confirm" if number % 2 else "wrong", "images": [0]})
    assert "images" in session.changes(old)


def test_an_image_is_shown_beside_its_neighbors_and_examples_of_its_class(session):
    about = session.about(2)
    assert about["name"] == "in/0_2.png"
    assert about["neighbors"] == [3]
    assert about["examples"] == [{"class": 0, "labeled": True, "images": [0, 1]}]
    assert session.about(8)["examples"] == [{"class": 2, "labeled": False, "images": [9, 10, 11]}]
    confirm(session, 11)
    assert session.about(8)["examples"] == [{"class": 2, "labeled": True, "images": [11]}]
    with pytest.raises(NotThereError):
        session.about(16)


def test_names_are_asked_for_in_small_numbers(session):
    assert session.names([0, 15]) == ["in/0_0.png", "in/3_3.png"]
    for wrong in ("0", ["0"], [0] * 1001):
        with pytest.raises(UserError):
            session.names(wrong)
    with pytest.raises(NotThereError):
        session.names([-1])
