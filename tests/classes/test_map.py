import numpy as np
import pytest
import sklearn.manifold
import torch

from bacon_gcd.classes import map as maps
from bacon_gcd.classes.map import between, by_tsne, project, reduce
from bacon_gcd.cluster import unit


def clusters(n_each, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(3, 12))
    ids = np.repeat(np.arange(3), n_each)
    rows = torch.from_numpy(centers[ids] + 0.1 * rng.normal(size=(len(ids), 12))).float()
    return unit(rows), ids


def test_an_image_lies_in_the_middle_of_those_it_looks_like():
    others = torch.eye(5)
    positions = np.arange(10, dtype=np.float32).reshape(5, 2)
    new = unit(torch.tensor([[1.0, 1.1, 1.2, 0, 0]]))
    np.testing.assert_allclose(between(new, others, positions), [positions[:3].mean(axis=0)])


def test_images_beyond_the_landmarks_lie_with_their_cluster(monkeypatch):
    monkeypatch.setattr(maps, "LANDMARKS", 60)
    features, ids = clusters(40)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        placed = project(features)
    apart = np.linalg.norm(placed[:, None] - placed[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert placed.shape == (120, 2)
    assert (ids[apart.argmin(axis=1)] == ids).mean() > 0.95
    assert len(np.unique(placed[:, 0])) > 80  # not all on the landmarks


def test_the_map_is_the_same_every_time():
    features, _ = clusters(5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = project(features)
        torch.manual_seed(0)
        np.testing.assert_array_equal(first, project(features))


def test_few_images_have_a_map():
    assert project(torch.eye(4)).shape == (4, 2)


@pytest.mark.parametrize(("n", "placed"), [(9, 0), (10, 10), (1000, 1000), (1500, 1000)])
def test_ten_to_a_thousand_images_are_placed_by_tsne(monkeypatch, n, placed):
    given = []

    def by_tsne(rows):
        given.append(rows)
        return np.zeros((len(rows), 2), dtype=np.float32)

    monkeypatch.setattr(maps, "by_tsne", by_tsne)
    assert project(unit(torch.eye(n, 4) + 1)).shape == (n, 2)
    assert sum(len(rows) for rows in given) == placed


def test_landmarks_stay_where_tsne_has_put_them(monkeypatch):
    monkeypatch.setattr(maps, "LANDMARKS", 11)
    monkeypatch.setattr(maps, "by_tsne", lambda rows: 100 * rows[:, :2].numpy())
    features, _ = clusters(5)
    on_landmarks = (project(features) == 100 * features[:, :2].numpy()).all(axis=1)
    assert on_landmarks.sum() == 11


@pytest.mark.parametrize(("n", "perplexity"), [(12, 3.0), (119, 29.75), (124, 30)])
def test_tsne_starts_along_the_principal_axes_and_looks_at_no_more_than_a_quarter(
    monkeypatch, n, perplexity
):
    asked = {}

    class Recorder:
        def __init__(self, **options):
            asked.update(options)

        def fit_transform(self, rows):
            return rows[:, :2]

    monkeypatch.setattr(sklearn.manifold, "TSNE", Recorder)
    features = unit(torch.randn(n, 6, generator=torch.Generator().manual_seed(0)))
    rows = by_tsne(features)
    start = asked.pop("init")
    assert asked == {"perplexity": perplexity, "random_state": 0, "max_iter": 500}
    np.testing.assert_allclose(start, rows * 1e-4 / rows[:, 0].std(ddof=1), rtol=1e-4)
    assert rows.shape == (n, 2)


def test_principal_axes_are_those_of_the_centered_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 3)) * [5, 2, 0.5] + 7
    away = rows - rows.mean(axis=0)
    expected = away @ np.linalg.svd(away)[2].T
    found = reduce(torch.from_numpy(rows))
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)


def test_no_more_than_32_axes_are_kept():
    rows = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    assert reduce(rows).shape == (50, 32)
    assert reduce(rows[:5]).shape == (5, 5)
