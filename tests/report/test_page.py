"""The report says what is in the data, in words a person reads, and runs nothing it should not."""

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bacon_gcd.classes.tree import ClassTree, Join
from bacon_gcd.report import choices, columns, figures, sprites, summary, tree
from bacon_gcd.report.contents import (
    ClassInfo,
    ReportData,
    Rows,
    Score,
)
from bacon_gcd.report.page import render, write_report
from bacon_gcd.report.text import breakable, script_json
from bacon_gcd.system.text import visible

from ..report_samples import HOSTILE, hostile, picture, sample, sample_tree, two_novel


def bare(n=0, classes=(), **optional) -> ReportData:
    """A report with nothing optional in it."""
    rows = Rows([f"{i}.png" for i in range(n)], np.zeros(n, int), np.zeros(n, bool), **optional)
    return ReportData("Bare", rows, classes, picture)


def payload(page: str):
    return json.loads(re.search(r'id="payload">(.*?)</script>', page).group(1))


# The words


def test_the_summary_counts_what_is_in_the_data():
    text = " ".join(summary.sentences(sample()))
    assert "11 images were sorted into 3 classes: 2 known and 1 newly found." in text
    assert "3 came with a label; of the other 8, 4 joined a known class and 4 a newly" in text
    assert "“cat” with 4 images, the smallest “dog” with 3 images" in text
    assert "BaCon-S is right for 52.5% of the test images, 12.5 points more than k-means." in text
    assert "1 image that fits no class, 1 suspected label error" in text


def test_confidence_in_the_summary_is_of_unlabeled_images_only():
    data = sample()
    confidence = np.where(data.rows.labeled, 0.0, 0.9)
    text = " ".join(
        summary.sentences(replace(data, rows=replace(data.rows, confidence=confidence)))
    )
    assert "confidence of 90% or more, none below 50%" in text


@pytest.mark.parametrize("scores", [None, [], [Score("k-means", None, None, None)]])
def test_scores_that_are_missing_are_not_made_up(scores):
    assert "right for" not in " ".join(summary.sentences(sample(scores=scores)))


def test_every_missing_part_says_so_in_one_sentence():
    page = render(bare(2, [ClassInfo("only", True)]))
    for sentence in (
        "No map was drawn in this run.",
        "This run has no confidence",
        "Label errors were not searched for",
        "Duplicates were not searched for",
        "Files were not checked",
        "No settings were recorded.",
    ):
        assert sentence in page


def test_what_was_searched_for_and_not_found_says_that_instead():
    page = render(sample(suspected=[], duplicates=[], quarantine=[], uncertain=[]))
    for sentence in (
        "No label looks wrong.",
        "No image appears twice.",
        "Every file could be read.",
        "No image is uncertain.",
    ):
        assert sentence in page


def test_a_report_about_nothing_is_still_a_page():
    page = render(bare())
    assert "There are no images in this run." in page
    assert "There are no classes in this run." in page


def test_the_page_is_written_whole_and_is_the_same_every_time(tmp_path):
    path = write_report(sample(), tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8") == render(sample(), folder=path.parent)


# Hostile names


def test_hostile_names_never_become_markup():
    page = render(hostile())
    for part in (
        "<script>window",
        "<img src=x",
        "onerror=window.hacked=2>",
        "<svg onload",
        "<!--<script>",
    ):
        assert part not in page
    assert "{{ 7 * 7 }}" in page
    assert payload(page)["ids"] == [visible(name) for name in HOSTILE]


def test_what_cannot_be_seen_is_spelled_out():
    assert visible("photo\u202egpj.exe") == "photo\\u202egpj.exe"
    assert visible("a\x00b\nc\udcff") == "a\\u0000b\\u000ac\\udcff"
    assert visible("naïve Ωμέγα 猫 👩‍🔬") == "naïve Ωμέγα 猫 👩‍🔬"


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_json_in_a_script_reads_back_and_holds_no_markup(value):
    text = str(script_json(value))
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


# Which images are shown


def test_typical_images_are_the_surest_and_borderline_ones_the_least_sure():
    by_class = {g.class_id: g for g in choices.galleries(sample())}
    assert by_class[2].typical == [10, 9]
    assert by_class[2].borderline == [7, 8]
    assert by_class[0].labeled == [1, 0]
    assert by_class[0].example == [1]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 30])
def test_no_image_is_both_typical_and_borderline(n):
    data = bare(n, [ClassInfo("only", False)], confidence=np.linspace(0, 1, n))
    (gallery,) = choices.galleries(data)
    assert not set(gallery.typical) & set(gallery.borderline)
    assert len(gallery.typical) == min(12, n - n // 2 if n < 24 else 12)


def test_the_most_uncertain_unlabeled_image_comes_first():
    assert choices.uncertain(sample()) == [2, 3, 5, 6, 7, 8, 9, 10]


def test_an_unknown_confidence_is_neither_uncertain_nor_typical():
    data = bare(4, [ClassInfo("only", False)], confidence=np.array([0.5, np.nan, 0.9, 0.1]))
    assert choices.uncertain(data) == [3, 0, 2]
    assert choices.galleries(data)[0].typical == [2, 0]
    assert payload(render(data))["confidence"] == [0.5, None, 0.9, 0.1]


def test_a_large_set_is_sampled_with_its_shares_kept_and_the_wanted_images_in_it():
    class_ids = np.repeat([0, 1], [900, 100])
    data = bare(1000, [ClassInfo("a", False), ClassInfo("b", False)])
    data = replace(data, rows=replace(data.rows, class_ids=class_ids))
    shown = choices.shown_rows(data, [5, 999, 5], limit=100)
    assert len(shown) == len(set(shown)) == 100
    assert {5, 999} <= set(shown)
    assert np.bincount(class_ids[shown])[1] == pytest.approx(10, abs=1)


def test_a_sampled_report_says_so(monkeypatch):
    monkeypatch.setattr(choices.shown_rows, "__kwdefaults__", {"limit": 6})
    page = render(sample())
    assert "Shown are 6 of 11 images" in page
    data = payload(page)
    assert data["n_shown"] == len(data["neighbors"]) == len(data["x"]) == 6
    assert sorted(data["ids"]) == sorted(sample().rows.ids), "every image is named all the same"
    assert all(0 <= n < 6 for near in data["neighbors"] for n in near)


# Coarser or finer, known or new


def test_no_stroke_of_the_tree_crosses_another():
    joins = (Join(0, 5, 0.1), Join(1, 4, 0.1), Join(3, 2, 0.1), Join(1, 3, 0.2))
    drawing = tree.draw(ClassTree(np.arange(6), 6, joins), 6)
    assert [leaf.part for leaf in drawing.leaves] == [0, 5, 1, 4, 3, 2]
    assert [s.number for s in drawing.strokes] == [1, 2, 3, 4]
    assert drawing.strokes[0].path == "M5 0.5H4V1.5H5"
    assert drawing.strokes[3].path == "M3 3.0H1V5.0H2"
    assert drawing.stems == "M4 1.0H0M1 4.0H0"


def test_parts_that_never_join_are_not_drawn_and_split_ones_say_whose_they_are():
    drawing = tree.draw(sample_tree(), 3)
    assert [(n.part, n.class_id, n.split_off, n.n_images) for n in drawing.leaves] == [
        *((0, 0, False, 2), (3, 0, True, 2)),
        *((2, 2, False, 2), (4, 2, True, 2)),
    ]


def test_a_large_tree_is_drawn_from_its_top_with_early_joins_as_one():
    joins = tuple(Join(0, part, 0.1) for part in range(1, 100))
    drawing = tree.draw(ClassTree(np.arange(100), 100, joins), 100)
    assert (len(drawing.leaves), drawing.first) == (60, 40)
    assert sum(leaf.n_images for leaf in drawing.leaves) == 100
    assert drawing.leaves[0].n_images == 41
    data = bare(100, [ClassInfo(f"c{n}", False) for n in range(100)])
    data = replace(data, tree=ClassTree(np.arange(100), 100, joins))
    assert "the 60 largest branches are drawn" in render(data)


def test_the_surest_image_shows_a_part():
    assert tree.examples(sample()) == {0: 1, 3: 3, 1: 6, 2: 8, 4: 10}


def test_sides_are_counted_at_every_hundredth():
    found = tree.sides(sample())
    assert sum(found.counts) == 8
    assert found.n_known == 4
    assert (found.known_at[0], found.known_at[100]) == (8, 0)
    assert (found.known_at[50], found.to_new[50], found.to_known[50]) == (3, 1, 0)
    assert (found.known_at[20], found.to_new[20], found.to_known[20]) == (6, 0, 2)
    assert (found.known_at[60], found.to_new[60], found.to_known[60]) == (2, 2, 0)


def test_a_run_that_cannot_be_cut_again_has_no_such_sections():
    page = render(sample(tree=None))
    assert 'id="cut"' not in page
    assert 'id="side"' not in page
    assert payload(page)["tree"] is None


@pytest.mark.parametrize("known", [True, False])
def test_without_known_or_without_new_classes_there_is_no_line(known):
    data = sample(tree=ClassTree(np.zeros(11, dtype=int), 3, ()))
    page = render(replace(data, classes=[replace(c, known=known) for c in data.classes]))
    assert "There is no threshold to move" in page
    assert "can neither be joined nor split" in page


def test_the_page_tells_the_threshold_there_is():
    assert "No threshold was set" in render(two_novel())
    assert "known from 0.35 on; 2 were" in render(replace(two_novel(), threshold=0.35))


# Thumbnails


def test_every_thumbnail_lies_on_the_tile_its_number_says():
    colors = [(0, 40 * (i // 60), 4 * (i % 60)) for i in range(300)]
    made = sprites.make_sprites(lambda i: Image.new("RGB", (9, 9), colors[i]), list(range(300)))
    assert len(made.sheets) == 2
    for number in (0, 17, 255, 256, 299):
        sheet = Image.open(io.BytesIO(made.sheets[number // 256])).convert("RGB")
        middle = (np.array([number % 16, number % 256 // 16]) + 0.5) * made.tile
        assert sheet.getpixel(tuple(middle.astype(int))) == pytest.approx(colors[number], abs=12)


def test_a_wide_picture_is_shown_whole_between_transparent_bars():
    small = np.asarray(sprites.thumbnail(Image.new("RGB", (80, 20), "red"), 64))
    assert (small[..., 3] > 0).sum() == 64 * 16


def test_thumbnails_get_coarser_until_they_fit_the_budget():
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)) for _ in range(64)]
    fine = sprites.make_sprites(noise.__getitem__, list(range(64)))
    tight = sprites.make_sprites(noise.__getitem__, list(range(64)), budget=60_000)
    assert sum(map(len, tight.sheets)) <= 60_000 < sum(map(len, fine.sheets))
    assert tight.tile < fine.tile


def test_sheets_are_embedded_as_they_are():
    (uri,) = sprites.Sprites([b"abc"], 64).data_uris()
    assert base64.b64decode(uri.split(",")[1]) == b"abc"


# Figures


def test_the_size_of_a_class_is_the_number_of_images_sorted_into_it():
    bars = figures.class_size_bars(sample())
    assert [(b.class_id, b.size, b.labeled, b.width) for b in bars] == [
        *((0, 4, 2, 100), (2, 4, 0, 100)),
        (1, 3, 1, 75),
    ]
    page = render(sample(estimated_counts=[210.0, 9.4, float("nan")]))
    for class_id, size in enumerate((4, 3, 4)):
        article = page[page.index(f'id="class-{class_id}"') :]
        assert f">{size} images" in article[: article.index("</article>")]
    assert "210" not in page[: page.index('id="estimates"')]


def test_estimated_sizes_have_a_section_of_their_own_beside_what_was_sorted_in():
    data = sample(estimated_counts=[2.0, 9.4, float("nan")])
    assert figures.estimates(data) == [(1, 9, 3), (0, 2, 4), (2, None, 4)]
    assert "Class sizes that training estimated" in render(data)


@pytest.mark.parametrize("counts", [None, [float("nan")] * 3])
def test_without_an_estimate_there_is_no_such_section(counts):
    assert 'id="estimates"' not in render(sample(estimated_counts=counts))


def test_scores_that_are_not_numbers_are_dashes():
    nan = float("nan")
    page = render(
        sample(scores=[Score("k-means", 40.0, nan, nan), Score("BaCon-S", nan, nan, None)])
    )
    assert "nan" not in page[: page.index('id="sizes"')].lower()
    assert "40.0%" in page


def test_every_term_of_the_loss_is_drawn_with_what_it_asks_for():
    drawn = figures.training_curves([{"epoch": 1, "terms": dict.fromkeys(figures.TERMS, 1.0)}])
    for name, words in figures.TERMS.items():
        assert f"{words} ({name})" in drawn


def test_a_log_with_nan_is_still_drawn():
    epochs = [
        {"kind": "epoch", "epoch": 1, "terms": {"a": float("nan")}, "test": {"all": float("nan")}},
        {"kind": "epoch", "epoch": 2, "terms": {"a": 1.0}},
    ]
    assert figures.training_curves(epochs).startswith("<svg")


def test_classes_beyond_the_palette_differ_by_their_symbol():
    styles = [tuple(figures.class_style(c).items()) for c in range(48)]
    assert len(set(styles)) == 48


def test_positions_on_the_map_survive_missing_and_equal_coordinates():
    data = bare(3, [ClassInfo("only", False)], xy=np.array([[1, 5], [2, 5], [np.nan, 5]]))
    found = columns.map_columns(data, np.arange(3))
    assert found["x"] == [0.0, 1000.0, None]
    assert found["y"] == [0.0, 0.0, 0.0]


def test_training_curves_draw_every_term_and_leave_out_a_broken_line(tmp_path):
    lines = [
        {"kind": "counts", "epoch": 0, "error": 0.1},
        {"kind": "epoch", "epoch": 1, "terms": {"classify/a": 2.0, "contrast/b": 1.0}},
        {
            "kind": "epoch",
            "epoch": 2,
            "terms": {"classify/a": 1.0, "contrast/b": 0.5},
            "test": {"all": 50.0, "new": None},
        },
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "epo')
    epochs = figures.read_log(log)
    assert [e["epoch"] for e in epochs] == [1, 2]
    drawn = figures.training_curves(epochs)
    assert drawn.startswith("<svg")
    for text in ("classify/a", "contrast/b", "Quick check on test images"):
        assert text in drawn
    assert drawn == figures.training_curves(epochs)
    assert figures.training_curves([]) is None
    assert drawn in render(sample(training=drawn))


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one entry per image"):
        Rows(["a", "b"], np.zeros(2, int), np.zeros(3, bool))
    with pytest.raises(ValueError, match="not a position"):
        bare(1, [])


def test_names_break_between_their_words_and_stay_text():
    assert breakable("Rose_breasted-Grosbeak__x") == "Rose_<wbr>breasted-<wbr>Grosbeak__<wbr>x"
    assert breakable("<b>_&") == "&lt;b&gt;_<wbr>&amp;"
