import numpy as np
import torch

from bacon_gcd.classes import map as maps
from bacon_gcd.classes.map import between, project
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
