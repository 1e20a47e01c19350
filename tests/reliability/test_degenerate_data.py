"""Data at the edge of sense, by command line and Python: an answer, or one line.

Every case is a row of a table: vectors, labels, options, and the line that refuses it, if any.
"""

import warnings

import numpy as np
import pytest
from PIL import Image

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.folder import DiscoverRun
from tests.planted_photos import bacon

RNG = np.random.default_rng(0)
BLOBS = np.repeat(np.eye(3, 6), 5, axis=0) + 0.05 * RNG.normal(size=(15, 6))
FIRST = ["a"] * 3 + [""] * 12


def labels(n, **given):
    """n labels, "" = unlabeled; given: name -> how many at the front, in turn."""
    named = [name for name, times in given.items() for _ in range(times)]
    return named + [""] * (n - len(named))


# name -> (vectors, labels, options of discover, what the line says or "")
CASES = {
    "no labels": (BLOBS, labels(15), {}, ""),
    "one label": (BLOBS, labels(15, a=1), {}, ""),
    "every image labeled": (BLOBS, ["a"] * 5 + ["b"] * 5 + ["c"] * 5, {}, ""),
    "one class, every image labeled": (BLOBS, ["a"] * 15, {}, ""),
    "every image a class of its own": (BLOBS, [f"c{n}" for n in range(15)], {}, ""),
    "one image not labeled": (BLOBS, ["a"] * 5 + ["b"] * 9 + [""], {}, ""),
    "labels against the vectors": (BLOBS, ["a", "b", "c"] * 5, {}, ""),
    "four images": (BLOBS[:4], labels(4), {}, ""),
    "three images": (BLOBS[:3], labels(3), {}, "at least 4"),
    "all vectors equal": (np.ones((8, 4)), labels(8, a=2), {}, ""),
    "all vectors zero": (np.zeros((8, 4)), labels(8, a=2), {}, ""),
    "one vector zero": (np.vstack([BLOBS, np.zeros(6)]), [*FIRST, ""], {}, ""),
    "two points, many times": (np.repeat(np.eye(2, 4), 8, axis=0), labels(16, a=3), {}, ""),
    "opposite vectors": (np.vstack([np.eye(2)] * 4 + [-np.eye(2)] * 4), labels(16), {}, ""),
    "two dimensions": (BLOBS[:, :2], FIRST, {}, ""),
    "one dimension": (BLOBS[:, :1], FIRST, {}, "D of at least 2"),
    "a constant dimension": (np.hstack([BLOBS, np.full((15, 1), 9.0)]), FIRST, {}, ""),
    "huge values": (BLOBS * 1e18, FIRST, {}, ""),
    "tiny values": (BLOBS * 1e-18, FIRST, {}, ""),
    "values of all sizes": (BLOBS * np.logspace(-9, 9, 15)[:, None], FIRST, {}, ""),
    "a value that is no number": (np.where(BLOBS > 1, np.nan, BLOBS), FIRST, {}, "not finite"),
    "an infinite value": (np.where(BLOBS > 1, np.inf, BLOBS), FIRST, {}, "not finite"),
    "a class called like a new one": (BLOBS, labels(15, novel_000=4), {}, ""),
    "class names of any kind": (BLOBS, labels(15, **{"=1+1": 2, "ü\u202e": 2, " a/..": 2}), {}, ""),
    "as many classes as images": (BLOBS, FIRST, {"classes": 13}, ""),
    "more classes than images": (BLOBS, FIRST, {"classes": 16}, "at most 13"),
    "one class": (BLOBS, labels(15), {"classes": 1}, None),
    "fewer classes than labels": (BLOBS, labels(15, a=2, b=2), {"classes": 1}, "2 classes already"),
    "no class": (BLOBS, FIRST, {"classes": 0}, "classes"),
    "a threshold of 1": (BLOBS, FIRST, {"threshold": 1.0}, ""),
    "a threshold of 2": (BLOBS, FIRST, {"threshold": 2.0}, "threshold"),
    "an odd seed": (BLOBS, FIRST, {"seed": 2**32 - 1}, ""),
}


@pytest.fixture
def source(tmp_path, request, monkeypatch):
    """A folder of images, their labels in a table, their vectors in a file."""
    vectors, names, options, said = CASES[request.param]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(summary, "write_report", lambda data, path: path)
    (tmp_path / "photos").mkdir()
    lines = ["file_name,label"]
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (number, 40, 90)).save(tmp_path / f"photos/{number:02d}.png")
        lines.append(f'{number:02d}.png,"{name}"')
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    np.save(tmp_path / "vectors.npy", vectors.astype(np.float32))
    return len(names), options, said


def given(options):
    """Options of Python as words of the command line."""
    return [word for name, value in options.items() for word in (f"--{name}", value)]


@pytest.mark.parametrize("source", CASES, indirect=True)
def test_the_command_answers_or_says_why_in_one_line(source, tmp_path):
    n_images, options, said = source
    words = ["photos", "--labels", "labels.csv", "--features", "vectors.npy", *given(options)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        done = bacon("discover", *words, "-o", "run")
    error = done.exception
    if said == "" or (said is None and error is None):
        assert done.exit_code == 0, repr(error)
        rows = DiscoverRun.load("run").rows
        assert len(rows) == n_images
        assert all(np.isfinite([r.confidence, r.known_probability, r.x, r.y]).all() for r in rows)
        assert all(row.class_name == row.label for row in rows if row.labeled)
        return
    assert isinstance(error, UserError | SystemExit), repr(error)
    assert said is None or said in f"{error} {done.output}"
    assert not (tmp_path / "run").exists()


PYTHON = ("all vectors equal", "one label", "more classes than images", "a threshold of 2")


@pytest.mark.parametrize("source", PYTHON, indirect=True)
def test_python_answers_as_the_command_does(source):
    n_images, options, said = source
    files = {"labels": "labels.csv", "features": "vectors.npy"}
    if said:
        with pytest.raises(UserError, match=said):
            bacon_gcd.discover("photos", "run", **files, **options)
    else:
        assert len(bacon_gcd.discover("photos", "run", **files, **options).run.rows) == n_images
