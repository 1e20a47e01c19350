"""What to expect of the result, in words a person reads; no number contradicts another."""

from dataclasses import replace

import numpy as np
import pytest

from bacon_gcd.report import choices, quality, summary
from bacon_gcd.report.contents import ClassInfo, Expected, Inputs, ReportData, Rows, Share
from bacon_gcd.report.page import render

from ..report_samples import picture, sample

EXPECTED = Expected(
    Share(0.671, 0.61, 0.72),
    known_recall=Share(0.82),
    known_precision=Share(0.74, 0.739, 0.741),
    n_images=230,
    n_classes=4,
)


def head(page: str) -> str:
    return page[page.index('id="summary"') : page.index('id="sizes"')]


def test_the_expected_accuracy_is_told_for_all_images_with_its_interval():
    told = quality.expected_sentences(EXPECTED)
    assert told[0] == (
        "Expect about 67% of the images without a label to be in the right class "
        "(between 61% and 72%), known and new classes together."
    )
    assert "about 82% were found again" in told[1]
    assert "about 74% belong there" in told[1]
    assert "4 known classes were treated as new" in quality.how_measured(EXPECTED)
    assert "half" not in quality.how_measured(EXPECTED)
    asked = replace(EXPECTED, halves=0.731)
    assert "73% of the images came into the same class" in quality.how_measured(asked)


def test_an_interval_of_one_number_is_not_told():
    assert quality.interval(Share(0.74, 0.739, 0.741)) == ""
    assert "between" not in quality.expected_sentences(Expected(Share(0.5, 0.5, 0.5)))[0]
    meters = quality.expected_meters(EXPECTED)
    assert [meter.text for meter in meters] == ["about 67% (61% to 72%)", "about 82%", "about 74%"]


def test_the_page_shows_what_to_expect_and_how_it_was_decided():
    page = head(
        render(sample(scores=None, expected=EXPECTED, chosen=["Dense groups, not k-means."]))
    )
    for text in ("expected to be right", "(recall)", "(precision)", "Dense groups, not k-means."):
        assert text in page
    assert "no accuracy" not in page


@pytest.mark.parametrize("expected", [None, Expected(Share(float("nan")))])
def test_without_an_estimate_none_is_made_up(expected):
    page = head(render(sample(scores=None, expected=expected)))
    assert "Expect about" not in page
    assert "nan%" not in page


def test_a_class_tells_its_purity_and_what_it_looks_like():
    info = ClassInfo("novel_000", False, purity=0.816, nearest_known="cat", second_choice="dog")
    assert [(fact.name, fact.value) for fact in quality.class_facts(info)] == [
        ("purity", "about 82%"),
        ("looks most like", "cat"),
        ("second choice", "dog"),
    ]
    assert quality.class_facts(ClassInfo("bird", True, precision=float("nan"))) == []


def test_suggested_names_are_shown_as_suggestions_and_change_no_name():
    data = sample()
    classes = [*data.classes[:2], replace(data.classes[2], suggested_names=[("robin", 0.61)])]
    page = render(replace(data, classes=classes))
    assert "robin (61%)" in page
    assert "Nothing was renamed." in page
    assert 'data-name="novel_000"' in page
    assert "Nothing was renamed." not in render(data)


def test_classes_come_by_doubt_purity_first_and_empty_ones_last():
    classes = [
        ClassInfo("sure", True),
        ClassInfo("impure", False, purity=0.3),
        ClassInfo("empty", False),
        ClassInfo("doubtful", False),
    ]
    rows = Rows(
        [f"{n}.png" for n in range(6)],
        np.array([0, 0, 1, 1, 3, 3]),
        np.zeros(6, bool),
        confidence=np.array([0.9, 0.9, 0.99, 0.99, 0.5, 0.6]),
    )
    data = ReportData("Doubt", rows, classes, picture)
    ordered = choices.galleries(data)
    assert [classes[g.class_id].name for g in ordered] == ["impure", "doubtful", "sure", "empty"]
    assert [g.certainty for g in ordered] == pytest.approx([0.3, 0.55, 0.9, None])


def test_files_in_are_files_sorted_set_aside_and_ignored():
    inputs = Inputs({"truncated": 3, "zero bytes": 1}, {".heic": 50, ".txt": 2})
    text = " ".join(summary.sentences(sample(inputs=inputs)))
    assert (
        "Of 67 files, 11 were sorted, 4 were set aside (3 truncated, 1 zero bytes) "
        "and 52 were ignored (50 .heic, 2 .txt)." in text
    )
    assert "What became of the 67 files" in render(sample(inputs=inputs))


def test_rows_that_name_no_file_are_told_together_and_are_no_files():
    rows = {"a label without a file (row 2 of the table)": 1, "a label without a file (row 5)": 2}
    text = " ".join(summary.sentences(sample(inputs=Inputs(rows, {}))))
    assert (
        "Of 14 files and rows, 11 were sorted and 3 were set aside (3 labels without a file)"
        in text
    )


def test_files_set_aside_are_counted_where_only_their_list_is_given():
    assert "Of 12 files, 11 were sorted and 1 was set aside (1 truncated)" in " ".join(
        summary.sentences(sample())
    )


def test_many_reasons_are_told_as_the_most_frequent_ones():
    inputs = Inputs({f"reason {n}": n for n in range(1, 8)})
    assert "4 reason 4, 6 others)" in " ".join(summary.sentences(sample(inputs=inputs)))


def test_half_of_the_images_are_never_said_to_be_surer_than_sure():
    data = sample()
    sure = replace(data, rows=replace(data.rows, confidence=np.ones(11)))
    assert "100% or more" not in " ".join(summary.sentences(sure))
