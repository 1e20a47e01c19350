from dataclasses import replace as replace_row

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bacon_gcd.config import UserError
from bacon_gcd.discovery import journal
from bacon_gcd.discovery.apply import EditsWarning, apply_edits, corrected, replay
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.edited import EditedRun
from bacon_gcd.discovery.edits import Line, append_edit, edits_path
from bacon_gcd.discovery.folder import DiscoverRun
from tests.discover_samples import CLASSES, make_run, predictions

ROWS = predictions()
FILES = [row.file_name for row in ROWS]


def numbered(*edits):
    return [{"n": n, **edit} for n, edit in enumerate(edits, 1)]


def apply(*edits):
    return apply_edits(ROWS, CLASSES, numbered(*edits))


def place(applied):
    return {row.file_name: row.class_name for row in applied.rows}


def rename(name, to):
    return {"kind": "rename", "class": name, "to": to}


def merge(names, to):
    return {"kind": "merge", "classes": names, "to": to}


def move(files, to):
    return {"kind": "move", "files": files, "to": to}


def split(name, parts, names):
    return {"kind": "split", "class": name, "parts": parts, "names": names}


def confirm(files):
    return {"kind": "confirm", "files": files}


def wrong(files):
    return {"kind": "wrong", "files": files}


def undo(number):
    return {"kind": "undo", "of": number}


def in_class(number):
    return FILES[4 * number : 4 * number + 4]


def test_without_edits_nothing_changes():
    assert apply() == (tuple(ROWS), CLASSES, Constraints(), 4)


def test_a_renamed_class_keeps_its_id_and_images():
    applied = apply(rename("novel_000", "heron"))
    assert [(c.id, c.name, c.known) for c in applied.classes][2] == (2, "heron", False)
    assert {f for f, c in place(applied).items() if c == "heron"} == set(in_class(2))


def test_renaming_to_the_name_of_another_class_is_refused():
    with pytest.raises(UserError, match="'cat' already; merge"):
        apply(rename("novel_000", "cat"))


def test_merging_into_a_known_class_makes_its_images_known():
    applied = apply(merge(["novel_000", "cat"], "cat"))
    assert [c.id for c in applied.classes] == [0, 1, 3]
    merged = applied.classes[0]
    assert (merged.known, merged.count, merged.labeled) == (True, 8.0, 2)
    assert all(row.known for row in applied.rows if row.file_name in in_class(2))
    assert applied.constraints.must_link == (tuple(sorted(in_class(0) + in_class(2))),)


def test_merging_under_a_new_name_keeps_the_id_of_a_known_class():
    applied = apply(merge(["novel_001", "dog"], "wolf"))
    assert [(c.id, c.name, c.known) for c in applied.classes][1] == (1, "wolf", True)


def test_a_moved_image_is_certain_confirmed_and_stays_through_a_rename():
    applied = apply(move([FILES[9]], "dog"), rename("dog", "hound"))
    row = applied.rows[9]
    assert (row.class_name, row.known, row.confidence) == ("hound", True, 1.0)
    assert applied.constraints.confirmed == {FILES[9]: "hound"}
    assert [c.count for c in applied.classes] == [4.0, 5.0, 3.0, 4.0]


def test_moving_to_a_name_that_is_new_opens_a_class():
    applied = apply(move(FILES[8:10], "heron"))
    assert (applied.classes[-1].id, applied.classes[-1].name) == (4, "heron")
    assert not applied.rows[8].known


def test_the_id_of_a_merged_class_is_not_used_again():
    applied = apply(merge(["novel_000", "novel_001"], "novel_000"), move([FILES[8]], "owl"))
    assert [(c.id, c.name) for c in applied.classes][2:] == [(2, "novel_000"), (4, "owl")]


def test_wrong_forbids_the_class_until_the_image_is_confirmed_there():
    assert apply(wrong([FILES[0]])).constraints.cannot_link == ((FILES[0], "cat"),)
    later = apply(wrong([FILES[0]]), confirm([FILES[0]])).constraints
    assert later == Constraints({FILES[0]: "cat"})
    again = apply(confirm([FILES[0]]), wrong([FILES[0]])).constraints
    assert again == Constraints(cannot_link=((FILES[0], "cat"),))


def test_wrong_stays_wrong_when_its_class_is_merged():
    applied = apply(wrong([FILES[8]]), merge(["novel_000", "cat"], "cat"))
    assert applied.constraints.cannot_link == ((FILES[8], "cat"),)
    assert FILES[8] not in applied.constraints.must_link[0]


def test_a_split_gives_new_ids_and_keeps_its_parts_apart():
    a, b = in_class(2)[:2], in_class(2)[2:]
    applied = apply(split("novel_000", [a, b], ["novel_000", "novel_002"]))
    assert [(c.id, c.name, c.count) for c in applied.classes[2:]] == [
        (2, "novel_000", 2.0),
        (3, "novel_001", 4.0),
        (4, "novel_002", 2.0),
    ]
    pairs = {(f, "novel_002") for f in a} | {(f, "novel_000") for f in b}
    assert set(applied.constraints.cannot_link) == pairs


def test_merging_the_parts_of_a_split_lets_them_together_again():
    a, b = in_class(2)[:2], in_class(2)[2:]
    parts = split("novel_000", [a, b], ["novel_000", "novel_002"])
    applied = apply(parts, merge(["novel_000", "novel_002"], "novel_000"))
    assert place(applied) == place(apply())
    assert applied.constraints.cannot_link == ()


def test_a_moved_image_leaves_the_group_of_a_merge():
    applied = apply(merge(["novel_000", "novel_001"], "bird"), move([FILES[8]], "cat"))
    assert applied.constraints.must_link == (tuple(sorted(set(FILES[8:]) - {FILES[8]})),)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (rename("mouse", "x"), "'mouse'"),
        (rename("cat", "  "), "'  '"),
        (merge(["cat", "mouse"], "cat"), "'mouse'"),
        (merge([], "cat"), "'cat'"),
        (move(["no.png"], "cat"), "'no.png'"),
        (confirm(["no.png"]), "'no.png'"),
        (wrong(["no.png"]), "'no.png'"),
        (undo(7), "undo of 7"),
        (split("cat", [[FILES[0]], [FILES[9]]], ["a", "b"]), FILES[9]),
        (split("cat", [[FILES[0]], [FILES[0]]], ["a", "b"]), "two parts"),
        (split("cat", [[FILES[0]], [FILES[1]]], ["a", "dog"]), "'dog' already"),
        (split("cat", [[FILES[0]], []], ["a", "b"]), "parts with images"),
    ],
    ids=str,
)
def test_an_edit_that_cannot_be_is_one_line_that_names_why(edit, named):
    with pytest.raises(UserError) as caught:
        apply(edit)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@st.composite
def edit_lists(draw):
    """Edits that are possible one after the other."""
    edits = []
    for _ in range(draw(st.integers(1, 8))):
        names = [c.name for c in apply(*edits).classes]
        some = st.lists(st.sampled_from(FILES), min_size=1, max_size=4, unique=True)
        name = st.sampled_from(names)
        fresh = f"class {len(edits)}"
        kinds = [
            st.builds(rename, name, st.just(fresh)),
            st.builds(move, some, st.one_of(name, st.just(fresh))),
            st.builds(merge, st.lists(name, min_size=1, max_size=3, unique=True), name),
            st.builds(confirm, some),
            st.builds(wrong, some),
        ]
        edits.append(draw(st.one_of(kinds)))
    return edits


@given(edit_lists())
@settings(max_examples=40, deadline=None)
def test_undoing_everything_from_the_last_gives_the_start(edits):
    undone = [undo(n) for n in range(len(edits), 0, -1)]
    assert apply(*edits, *undone) == apply()


@given(edit_lists())
@settings(max_examples=40, deadline=None)
def test_undoing_an_undo_brings_the_edit_back(edits):
    last = len(edits)
    assert apply(*edits, undo(last), undo(last + 1)) == apply(*edits)


@given(edit_lists())
@settings(max_examples=40, deadline=None)
def test_no_image_is_lost_and_confirmed_ones_are_where_the_person_put_them(edits):
    applied = apply(*edits)
    assert [row.file_name for row in applied.rows] == FILES
    assert {row.class_name for row in applied.rows} <= {c.name for c in applied.classes}
    where = place(applied)
    constraints = applied.constraints
    assert all(where[file] == name for file, name in constraints.confirmed.items())
    assert not set(constraints.confirmed.items()) & set(constraints.cannot_link)
    for group in constraints.must_link:
        assert len({where[file] for file in group}) == 1


@given(st.permutations(range(6)))
@settings(max_examples=20, deadline=None)
def test_moves_of_different_files_and_confirmations_commute(order):
    edits = [move([FILES[k]], CLASSES[k % 4].name) for k in range(3)]
    edits += [confirm([FILES[k]]) for k in range(3, 6)]
    assert apply(*(edits[k] for k in order)) == apply(*edits)


def test_an_edit_that_fails_leaves_nothing_behind():
    edited = EditedRun(ROWS, CLASSES)
    before = edited.result()
    with pytest.raises(UserError, match=r"no\.png"):
        edited.apply(move([FILES[0], "no.png"], "owl"))
    with pytest.raises(UserError, match="already"):
        edited.apply(merge(["cat", "novel_000"], "dog") | {"kind": "rename", "class": "cat"})
    assert edited.result() == before


def test_an_edit_tells_what_it_changed_and_nothing_else():
    edited = EditedRun(ROWS, CLASSES)
    assert edited.apply(confirm([FILES[3]])).rows == {3}
    assert edited.apply(rename("cat", "kitty")).rows == frozenset()
    moved = edited.apply(move([FILES[8], FILES[9]], "owl"))
    assert (moved.rows, moved.classes, moved.opened) == ({8, 9}, {2, 4}, (4,))
    merged = edited.apply(merge(["novel_001", "owl"], "owl"))
    assert merged.rows == {8, 9, 12, 13, 14, 15} - {8, 9}
    assert merged.classes == {3, 4}
    undone = edited.take_back()
    assert undone.rows == merged.rows
    assert undone.classes == {3, 4}


def test_a_suggestion_follows_its_class_through_a_merge():
    rows = [replace_row(ROWS[0], suspected=True, suggested="novel_000"), *ROWS[1:]]
    edited = EditedRun(rows, CLASSES)
    assert edited.suggested(0) == 2
    assert 0 in edited.apply(merge(["novel_000", "novel_001"], "novel_001")).rows
    assert edited.suggested(0) == 3
    assert edited.result().rows[0].suggested == "novel_001"
    edited.take_back()
    assert edited.suggested(0) == 2


def test_the_id_of_an_undone_class_is_not_used_again():
    lines = numbered(move([FILES[8]], "owl") | {"opens": [4]}, undo(1), move([FILES[8]], "jay"))
    applied = apply_edits(ROWS, CLASSES, lines)
    assert (applied.classes[-1].id, applied.next_id) == (5, 6)


def test_a_recorded_id_that_another_class_has_is_refused():
    with pytest.raises(UserError, match="id 3 belongs to another class"):
        apply(move([FILES[8]], "owl") | {"opens": [3]})


def test_memory_of_a_session_is_bounded_and_older_edits_need_a_replay(monkeypatch):
    monkeypatch.setattr(journal, "KEPT_CHANGES", 9)  # three renames
    edited = EditedRun(ROWS, CLASSES)
    for number in range(5):
        edited.apply(rename(edited.classes[0].name, f"cat {number}"))
    for number in (3, 2, 1):
        assert edited.last is not None
        edited.take_back()
        assert edited.classes[0].name == f"cat {number}"
    assert edited.last is None
    assert edited.n_edits == 2


def test_lines_that_cannot_be_applied_are_named_and_the_others_count(tmp_path):
    run = make_run(tmp_path)
    path = edits_path(run)
    append_edit(path, rename("novel_000", "heron"))
    append_edit(path, rename("novel_000", "stork"))  # of another program: the name is gone
    with path.open("a") as file:
        file.write("xx\n")
    append_edit(path, undo(77))
    append_edit(path, confirm([FILES[0]]))
    with pytest.warns(EditsWarning) as told:
        applied = corrected(DiscoverRun.load(run))
    assert [c.name for c in applied.classes][2] == "heron"
    assert applied.constraints.confirmed == {FILES[0]: "cat"}
    said = sorted(str(each.message) for each in told)
    assert [text.split(", ")[1].split(":")[0] for text in said] == ["line 2", "line 3", "line 4"]
    assert all(text.startswith(str(path)) and text.endswith("left out") for text in said)


class EditSession(RuleBasedStateMachine):
    """Random edits and undos, applied one at a time, beside a replay of all of them."""

    def __init__(self):
        super().__init__()
        self.edited = EditedRun(ROWS, CLASSES)
        self.said = []
        self.active = []
        self.ever = {each.id: each.name for each in CLASSES}

    def do(self, edit):
        changed = self.edited.apply(edit)
        opens = {"opens": list(changed.opened)} if changed.opened else {}
        assert not set(changed.opened) & set(self.ever), "an id was used twice"
        self.ever |= dict.fromkeys(changed.opened, "")
        self.said.append({"n": len(self.said) + 1, **edit, **opens})
        self.active.append(self.said[-1]["n"])

    def name(self, data):
        return data.draw(st.sampled_from(sorted(self.edited.ids)))

    def some(self, data, among=FILES):
        return data.draw(st.lists(st.sampled_from(among), min_size=1, max_size=5, unique=True))

    @rule(data=st.data())
    def rename(self, data):
        self.do(rename(self.name(data), f"name {len(self.said)}"))

    @rule(data=st.data(), new=st.booleans())
    def move(self, data, new):
        to = f"class {len(self.said)}" if new else self.name(data)
        self.do(move(self.some(data), to))
        assert {self.edited.class_of[FILES.index(f)] for f in self.said[-1]["files"]} == {
            self.edited.ids[to]
        }

    @rule(data=st.data())
    def merge(self, data):
        names = data.draw(
            st.lists(st.sampled_from(sorted(self.edited.ids)), min_size=1, max_size=3, unique=True)
        )
        self.do(merge(names, self.name(data)))

    @rule(data=st.data())
    def confirm(self, data):
        self.do(confirm(self.some(data)))

    @rule(data=st.data())
    def mark_wrong(self, data):
        self.do(wrong(self.some(data)))

    @rule(data=st.data())
    def split(self, data):
        name = self.name(data)
        members = [FILES[row] for row in sorted(self.edited.members[self.edited.ids[name]])]
        if len(members) < 2:
            return
        cut = data.draw(st.integers(1, len(members) - 1))
        self.do(split(name, [members[:cut], members[cut:]], [name, f"part {len(self.said)}"]))

    @rule()
    def undo(self):
        if self.active:
            self.edited.take_back()
            self.said.append({"n": len(self.said) + 1, **undo(self.active.pop())})

    @rule(data=st.data())
    def refuse(self, data):
        before = self.edited.result()
        with pytest.raises(UserError):
            self.edited.apply(move([*self.some(data), "no.png"], f"class {len(self.said)}"))
        assert self.edited.result() == before

    @invariant()
    def edits_replay(self):
        again = EditedRun(ROWS, CLASSES)
        assert replay(again, [Line(n, edit) for n, edit in enumerate(self.said, 1)]) == []
        assert again.result() == self.edited.result()

    @invariant()
    def no_image_is_lost_and_confirmed_ones_stay(self):
        applied = self.edited.result()
        assert [row.file_name for row in applied.rows] == FILES
        assert {row.class_name for row in applied.rows} <= {c.name for c in applied.classes}
        where = place(applied)
        said = applied.constraints
        assert all(where[file] == name for file, name in said.confirmed.items())
        assert not set(said.confirmed.items()) & set(said.cannot_link)
        assert all(len({where[file] for file in group}) == 1 for group in said.must_link)
        members = {row for rows in self.edited.members.values() for row in rows}
        assert members == set(range(len(FILES)))

    @invariant()
    def ids_are_kept(self):
        assert set(self.edited.classes) <= set(self.ever)
        assert self.edited.ids == {each.name: each.id for each in self.edited.classes.values()}
        assert self.edited.next_id > max(self.ever)


TestEditSession = EditSession.TestCase
TestEditSession.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
