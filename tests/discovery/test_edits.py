import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bacon_gcd.config import UserError
from bacon_gcd.discovery.edits import (
    Constraints,
    append_edit,
    apply_edits,
    checked,
    novel_number,
    read_edits,
)

from .discover_samples import CLASSES, predictions

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
    assert apply() == (tuple(ROWS), CLASSES, Constraints())


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


@pytest.mark.parametrize(
    "edit",
    [
        [],
        {"kind": "delete"},
        {"kind": "rename", "class": "cat"},
        {"kind": "move", "files": "a.png", "to": "x"},
        {"kind": "move", "files": [3], "to": "x"},
        {"kind": "undo", "of": True},
        {"kind": "undo", "of": 1, "n": "2"},
        {"kind": "split", "class": "cat", "parts": ["a"], "names": ["x"]},
    ],
    ids=str,
)
def test_an_edit_of_the_wrong_shape_is_refused(edit):
    with pytest.raises(UserError):
        checked(edit)


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


def test_a_number_used_by_an_undone_split_is_never_used_again():
    parts = split("novel_000", [FILES[8:9], FILES[9:10]], ["novel_000", "novel_004"])
    assert novel_number(numbered(parts, undo(1)), start=2) == 5
    assert novel_number([], start=2) == 2


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


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "edits.jsonl"
    path.write_text('{"kind": "rename", "class": "a", "to": "b"}\nxx\n')
    with pytest.raises(UserError, match="line 2"):
        read_edits(path)
