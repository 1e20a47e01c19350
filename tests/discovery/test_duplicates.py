"""The same picture twice: equal bytes, another format, another size; and what only looks alike."""

import numpy as np
import torch
from PIL import Image

from bacon_gcd.classes.assign import Sorted
from bacon_gcd.classes.rules import RULES
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import duplicates
from bacon_gcd.discovery.duplicates import (
    Duplicates,
    Thumbnail,
    connected,
    contradicted,
    exact_groups,
    find_duplicates,
    with_contradicted,
)


def photo(seed, size=48):
    """Smooth random colors: something a thumbnail can hold."""
    coarse = np.random.default_rng(seed).integers(0, 255, size=(6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)


def everyone(n):
    """All other rows as neighbors."""
    return np.array([[other for other in range(n) if other != row] for row in range(n)])


def same_features(n):
    return torch.nn.functional.normalize(torch.ones(n, 4), dim=1)


def test_exact_and_near_duplicates_are_told_apart(tmp_path):
    photo(0).save(tmp_path / "a.png")
    photo(0).save(tmp_path / "b.png")
    photo(0, size=64).save(tmp_path / "c.jpg", quality=90)
    photo(1).save(tmp_path / "d.png")
    table = read_images(tmp_path)
    found = find_duplicates(table, same_features(4), everyone(4))
    assert [(t.kind, [table.ids[r] for r in t.rows]) for t in found] == [
        ("exact", ["a.png", "b.png"]),
        ("near", ["a.png", "b.png", "c.jpg"]),
    ]


def test_a_labeled_image_may_have_an_unlabeled_duplicate(tmp_path):
    for folder in ("cat", "_unlabeled"):
        (tmp_path / folder).mkdir()
        photo(0).save(tmp_path / folder / "x.png")
    table = read_images(tmp_path)
    (pair,) = find_duplicates(table, same_features(2), everyone(2))
    assert (pair.kind, pair.rows) == ("exact", (0, 1))
    assert sorted(table.labels) == [-1, 0]


def test_pictures_whose_features_differ_are_not_compared(tmp_path):
    photo(0).save(tmp_path / "a.png")
    photo(0, size=64).save(tmp_path / "b.png")
    table = read_images(tmp_path)
    assert find_duplicates(table, torch.eye(2), everyone(2)) == []


def test_two_boxes_of_one_file_are_two_pictures(tmp_path):
    photo(0).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(
        "file_name,label,x,y,width,height\na.png,,0,0,20,20\na.png,,24,24,20,20\n"
    )
    table = read_images(tmp_path / "t.csv")
    assert len(table) == 2
    assert exact_groups(table) == []


def test_plain_areas_of_another_color_are_not_the_same():
    red, blue = (Thumbnail.of(Image.new("RGB", (20, 20), color)) for color in ("red", "blue"))
    assert red.same(red)
    assert not red.same(blue)


def test_pairs_of_any_chunk_are_those_of_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(duplicates, "CHUNK", 7)
    rng = np.random.default_rng(0)
    features = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(30, 2))), dim=1)
    neighbors = everyone(30)[:, :20]
    similar = features @ features.T >= RULES.similar
    expected = {(min(a, b), max(a, b)) for a in range(30) for b in neighbors[a] if similar[a, b]}
    assert len(expected) > 30
    assert duplicates._similar_pairs(features, neighbors) == sorted(expected)


def test_one_image_alone_has_no_pair():
    assert duplicates._similar_pairs(torch.ones(1, 4), np.empty((1, 0), dtype=np.int64)) == []


def test_pairs_join_into_groups():
    assert connected([(4, 5), (0, 1), (1, 2), (5, 4), (2, 0)]) == [(0, 1, 2), (4, 5)]
    assert connected([(0, 1), (2, 3), (1, 2)]) == [(0, 1, 2, 3)]
    assert connected([]) == []


def labels_of_copies(labels, *groups):
    found = contradicted(np.array(labels), [Duplicates(kind, rows) for kind, rows in groups])
    return found.tolist()


def test_copies_with_other_labels_contradict_each_other():
    assert labels_of_copies([1, 0, 0], ("exact", (0, 2))) == [0, -1, 1]


def test_copies_with_the_same_label_or_without_one_contradict_nothing():
    groups = (("exact", (0, 1)), ("exact", (2, 3)), ("exact", (4, 5, 6)))
    assert labels_of_copies([1, 1, 0, -1, 2, 2, -1], *groups) == [-1] * 7


def test_of_many_copies_the_most_frequent_other_label_counts_then_the_smallest_id():
    found = labels_of_copies([3, 2, 2, 0, -1, 0], ("exact", (0, 1, 2, 3, 4, 5)))
    assert found == [0, 0, 0, 2, -1, 2]
    assert labels_of_copies([0, 1, 2, 2], ("exact", (0, 1, 2, 3))) == [2, 2, 0, 0]


def test_labels_of_images_that_are_only_alike_contradict_nothing():
    assert labels_of_copies([0, 1], ("near", (0, 1))) == [-1, -1]


def test_neighbors_go_before_copies_and_a_person_before_both():
    suggested = np.array([2, -1, -1, -1])
    images = Sorted(np.zeros(4, int), *np.zeros((3, 4)), suggested)
    labels = np.array([0, 1, 0, 1])
    pairs = [Duplicates("exact", (0, 1)), Duplicates("exact", (2, 3))]
    found = with_contradicted(images, labels, pairs)
    assert found.suggested.tolist() == [2, 0, 1, 0]
    confirmed = np.array([False, False, True, False])
    found = with_contradicted(images, labels, pairs, confirmed=confirmed)
    assert found.suggested.tolist() == [2, 0, -1, 0]
