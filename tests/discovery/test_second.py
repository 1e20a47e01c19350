"""Second choices: what they are, and the columns that hold them."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bacon_gcd.config import UserError
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.second import Second, none_of, read_second, second_of
from tests.discover_samples import CLASSES, make_run
from tests.new_photos import add

SHARES = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.35, 0.45]], dtype=np.float32)
POSITIONS = {each.name: number for number, each in enumerate(CLASSES)}


def test_the_second_choice_is_the_likeliest_class_that_the_image_is_not_in():
    found = second_of(SHARES, np.array([0, 1, 1]))
    assert found.class_ids.tolist() == [1, 2, 2]
    np.testing.assert_allclose(found.confidence, [0.3, 0.3, 0.45], atol=1e-7)


def test_classes_that_were_merged_are_no_choice_beside_each_other():
    found = second_of(SHARES, np.array([0, 1, 1]), merged=np.array([0, 1, 1]))
    assert found.class_ids.tolist() == [2 - 1, 0, 0]
    none = second_of(SHARES, np.array([0, 1, 1]), merged=np.zeros(3, dtype=int))
    assert (none.class_ids.tolist(), none.confidence.tolist()) == ([-1] * 3, [0.0] * 3)


def test_of_a_single_class_there_is_no_second():
    found = second_of(np.ones((2, 1), dtype=np.float32), np.zeros(2, dtype=np.int64))
    assert found.cells(["cat"]) == [{"second_class": "", "second_confidence": 0.0}] * 2


def columns_of(folder):
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    return list(rows[0]), [(row["second_class"], float(row["second_confidence"])) for row in rows]


def test_the_columns_stand_behind_the_others_and_every_reader_goes_on(tmp_path):
    plain = make_run(tmp_path / "plain", images=False)
    before, header = DiscoverRun.load(plain), (plain / "predictions.csv").read_text().split("\n")[0]
    second = Second(np.array([1, *[-1] * 15]), np.array([0.25, *[0.0] * 15]))
    run = make_run(tmp_path / "more", images=False, second=second)
    names, cells = columns_of(run)
    assert names == [*header.split(","), "second_class", "second_confidence"]
    assert cells == [("dog", 0.25), *[("", 0.0)] * 15]
    assert DiscoverRun.load(run).rows == before.rows
    found = read_second(run, POSITIONS, 16)
    assert found.cells([each.name for each in CLASSES]) == second.cells(
        [each.name for each in CLASSES]
    )
    assert read_second(run, {"cat": 0}, 16).class_ids.tolist() == [-1] * 16


def test_a_run_without_the_columns_has_no_second_choices(tmp_path):
    run = make_run(tmp_path, images=False)
    found = read_second(run, POSITIONS, 16)
    assert found.cells([]) == none_of(16).cells([])


def test_columns_of_another_kind_are_one_line(tmp_path):
    run = make_run(tmp_path, images=False)
    path = run / "predictions.parquet"
    table = pq.read_table(path).append_column("second_class", pa.array(["cat"] * 16))
    table = table.append_column("second_confidence", pa.array(["much"] * 16))
    pq.write_table(table, path)
    with pytest.raises(UserError, match="not the predictions of a run"):
        read_second(run, POSITIONS, 16)


def test_a_discover_run_says_for_every_image_without_a_label_what_else_it_may_be(planted):
    _, cells = columns_of(planted.folder)
    shares, names = planted.run.probabilities, [each.name for each in planted.run.classes]
    for row, prediction, (name, sure) in zip(range(24), planted.run.rows, cells, strict=False):
        if prediction.labeled:
            assert (name, sure) == ("", 0.0)
            continue
        others = np.where(np.array(names) == prediction.class_name, -1.0, shares[row])
        assert name == names[int(others.argmax())]
        assert sure == pytest.approx(float(others.max()), abs=1e-4)
    assert planted.table.column_names[-2:] == ["second_class", "second_confidence"]


def test_an_updated_run_keeps_second_choices_and_has_those_of_new_images(small, planted):
    _, before = columns_of(planted.folder)
    grown = add(small, ("red", "blue")).run
    _, cells = columns_of(grown.folder)
    assert cells[: len(before)] == before
    for row, (name, sure) in zip(grown.rows[-8:], cells[-8:], strict=True):
        assert name not in ("", row.class_name)
        assert 0 <= sure <= 1 - row.confidence + 2e-4


def test_an_updated_run_of_an_earlier_version_has_only_those_of_new_images(small, planted):
    path = planted.folder / "predictions.parquet"
    stored = pq.read_table(path).drop_columns(["second_class", "second_confidence"])
    pq.write_table(stored, path)
    _, cells = columns_of(add(small, ("red",)).run.folder)
    assert {name for name, _ in cells[:-4]} == {""}
    assert "" not in {name for name, _ in cells[-4:]}


def test_classes_json_tells_how_sure_each_class_is(planted):
    stored = json.loads((planted.folder / "classes.json").read_text())["classes"]
    for each in stored:
        sure = [
            row.confidence
            for row in planted.run.rows
            if row.class_name == each["name"] and not row.labeled
        ]
        assert each["purity"] == pytest.approx(np.mean(sure), abs=2e-4)
    listed = [replace(each) for each in planted.run.classes]
    assert [each["name"] for each in stored] == [each.name for each in listed]
