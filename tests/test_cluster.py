"""k-means, matching and the number of classes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans, kmeans_plusplus
from torch.utils._python_dispatch import TorchDispatchMode

from bacon_gcd import points
from bacon_gcd.cluster import assign, estimate_n_classes, kmeans, match, squared_distances, unit
from bacon_gcd.config import UserError
from tests.reference.accuracy import best_hits
from tests.reference.clustering import semi_supervised_kmeans


def blobs(n_rows, n_clusters, dim, *, noise, seed):
    """Rows around random centers, and which center each came from."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.arange(n_rows) % n_clusters
    centers = torch.randn(n_clusters, dim, generator=generator)
    return centers[true] + noise * torch.randn(n_rows, dim, generator=generator), true


def hide(true, n_known, every=2):
    """Labels of every second row of the known classes, -1 elsewhere."""
    shown = (true < n_known) & (torch.arange(len(true)) // (true.max() + 1) % every == 0)
    return torch.where(shown, true, -1)


rows = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_match_hits_as_often_as_the_best_permutation(pair):
    predicted, true = np.array(pair[0]), np.array(pair[1])
    mapping = match(predicted, true, 4)
    assert int((mapping[predicted] == true).sum()) == best_hits(*pair, n_classes=4)
    used = mapping[mapping >= 0]
    assert len(set(used.tolist())) == len(used)


def test_match_leaves_surplus_clusters_without_a_class():
    mapping = match(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 0, 1]), 2)
    assert sorted(mapping.tolist()) == [-1, 0, 1]
    assert mapping[1] == 0


def test_match_refuses_a_class_outside_the_range():
    with pytest.raises(UserError, match=r"class ids 0\.\.2 are not all in 0\.\.1"):
        match(np.array([0, 1]), np.array([0, 2]), 2)


def test_kmeans_finds_planted_clusters():
    features, true = blobs(300, 6, 8, noise=0.05, seed=0)
    found = kmeans(features, 6, n_init=3, seed=0)
    mapping = match(found.labels, true, 6)
    assert (mapping[found.labels] == true.numpy()).all()


def test_kmeans_labels_centroids_and_inertia_belong_together():
    features, _ = blobs(500, 7, 5, noise=1.0, seed=1)
    found = kmeans(features, 7, n_init=1, seed=0)
    distances = torch.cdist(features.double(), found.centroids.double()).square()
    assert (distances.argmin(dim=1).numpy() == found.labels).all()
    assert found.inertia == pytest.approx(float(distances.amin(dim=1).sum()), rel=1e-5)
    means = torch.stack([features[found.labels == j].mean(dim=0) for j in range(7)])
    torch.testing.assert_close(found.centroids, means, atol=0.02, rtol=0)


def test_kmeans_is_as_good_as_scikit_learn():
    features = unit(blobs(1000, 20, 16, noise=1.0, seed=2)[0])
    ours = kmeans(features, 20, n_init=5, seed=0).inertia
    theirs = KMeans(20, n_init=5, random_state=0).fit(features.numpy()).inertia_
    assert ours < 1.01 * theirs


def test_seeds_are_as_good_as_those_of_scikit_learn():
    features, _ = blobs(600, 20, 6, noise=0.3, seed=2)
    ours, theirs = [], []
    for seed in range(12):
        ours.append(kmeans(features, 20, n_init=1, seed=seed, max_iterations=0).inertia)
        centers, _ = kmeans_plusplus(features.numpy(), 20, random_state=seed)
        distances = squared_distances(features, torch.from_numpy(centers))
        theirs.append(float(distances.amin(dim=1).sum()))
    assert np.mean(ours) < 1.05 * np.mean(theirs)


def test_the_first_centroid_may_be_any_row():
    features = torch.arange(6.0)[:, None]
    runs = (kmeans(features, 1, n_init=1, seed=seed, max_iterations=0) for seed in range(60))
    assert {run.centroids.item() for run in runs} >= {1.0, 2.0, 3.0, 4.0}


def test_more_restarts_are_never_worse():
    features, _ = blobs(400, 12, 4, noise=0.7, seed=3)
    inertia = [kmeans(features, 12, n_init=n, seed=0).inertia for n in (1, 3, 6)]
    assert inertia == sorted(inertia, reverse=True)


@pytest.mark.parametrize("anchored", [False, True])
def test_chunks_change_nothing(monkeypatch, anchored):
    features, true = blobs(1500, 8, 6, noise=0.8, seed=4)
    labels = hide(true, 4) if anchored else None
    whole = kmeans(features, 8, labels=labels, n_init=2, seed=1)
    monkeypatch.setattr(points, "CHUNK_SCORES", 1)
    parts = kmeans(features, 8, labels=labels, n_init=2, seed=1)
    assert (whole.labels == parts.labels).all()
    torch.testing.assert_close(whole.centroids, parts.centroids)


def test_the_same_seed_gives_the_same_clusters_on_any_number_of_threads():
    features, _ = blobs(3000, 20, 32, noise=1.0, seed=5)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(kmeans(features, 20, n_init=1, seed=7))
    finally:
        torch.set_num_threads(before)
    assert (found[0].labels == found[1].labels).all()
    torch.testing.assert_close(found[0].centroids, found[1].centroids)
    assert (found[0].labels != kmeans(features, 20, n_init=1, seed=8).labels).any()


def test_a_warm_start_from_the_answer_stays_there_and_keeps_its_input():
    features, _ = blobs(600, 9, 6, noise=0.6, seed=6)
    cold = kmeans(features, 9, n_init=2, seed=0, tolerance=0.0)
    start = cold.centroids.clone()
    warm = kmeans(features, 9, n_init=5, seed=3, start=start)
    assert warm.n_iterations == 1
    assert (warm.labels == cold.labels).all()
    assert torch.equal(start, cold.centroids)


def test_rows_far_from_zero_keep_their_distances():
    features, true = blobs(400, 5, 16, noise=0.1, seed=7)
    found = kmeans(features + 2000.0, 5, n_init=3, seed=0)
    near = kmeans(features, 5, n_init=3, seed=0)
    assert (match(found.labels, true, 5)[found.labels] == true.numpy()).all()
    assert found.inertia == pytest.approx(near.inertia, rel=0.02)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_read_only_memory_maps_of_any_float_type_are_clustered(tmp_path, kind):
    features = blobs(300, 5, 8, noise=0.3, seed=8)[0].numpy().astype(kind)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_disk = kmeans(mapped, 5, n_init=2, seed=0)
        assert (assign(mapped, on_disk.centroids) == on_disk.labels).all()
    in_memory = kmeans(torch.from_numpy(features), 5, n_init=2, seed=0)
    assert (on_disk.labels == in_memory.labels).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounds", [1, 10])
def test_anchored_kmeans_is_the_literal_one(seed, rounds):
    features, true = blobs(90, 6, 4, noise=0.6, seed=seed)
    labels = hide(true, 3)
    inertia, assigned, centers = semi_supervised_kmeans(
        features.double().numpy(), labels.numpy(), 6, n_init=3, seed=seed, rounds=rounds
    )
    limit = None if rounds == 10 else rounds  # ten is the default
    found = kmeans(features, 6, labels=labels, n_init=3, seed=seed, max_iterations=limit)
    assert (found.labels == assigned).all()
    assert found.inertia == pytest.approx(inertia, rel=1e-5)
    np.testing.assert_allclose(found.centroids, centers, atol=1e-5)


def test_labeled_rows_stay_in_their_class_even_when_it_is_far_away():
    features, true = blobs(60, 4, 3, noise=0.1, seed=9)
    labels = hide(true, 2)
    labels[0] = 1  # a row of class 0, wrongly labeled
    found = kmeans(features, 4, labels=labels, n_init=10, seed=0)
    shown = (labels >= 0).numpy()
    assert (found.labels[shown] == labels.numpy()[shown]).all()


def test_a_known_class_without_labels_is_a_free_cluster_under_its_own_id():
    features, true = blobs(80, 4, 3, noise=0.05, seed=10)
    labels = hide(true, 3)
    labels[labels == 1] = -1
    found = kmeans(features, 4, labels=labels, n_init=5, seed=0)
    assert set(found.labels[(true == 0).numpy()]) == {0}
    assert set(found.labels[(true == 2).numpy()]) == {2}
    assert len(np.unique(found.labels)) == 4


def test_anchored_kmeans_without_any_label_finds_planted_clusters():
    features, true = blobs(80, 4, 3, noise=0.05, seed=11)
    found = kmeans(features, 4, labels=torch.full((80,), -1), n_init=10, seed=0)
    assert (match(found.labels, true, 4)[found.labels] == true.numpy()).all()


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("n_clusters", [5, 9, 12])
@pytest.mark.parametrize("distinct", [1, 3, 12])
def test_every_cluster_has_a_member_however_few_points_differ(anchored, n_clusters, distinct):
    features = torch.randn(distinct, 4, generator=torch.Generator().manual_seed(0))
    features = features[torch.arange(12) % distinct]
    labels = torch.tensor([0, 1, 0, *[-1] * 9]) if anchored else None
    n_clusters = min(n_clusters, 11) if anchored else n_clusters
    found = kmeans(features, n_clusters, labels=labels, n_init=2, seed=0)
    assert sorted(set(found.labels.tolist())) == list(range(n_clusters))
    assert found.centroids.isfinite().all()
    assert np.isfinite(found.inertia)
    if anchored:
        assert found.labels[:3].tolist() == [0, 1, 0]


@pytest.mark.parametrize("max_iterations", [0, 300])
def test_an_empty_cluster_moves_to_the_row_farthest_from_its_centroid(max_iterations):
    features = torch.tensor([[0.0], [0.1], [0.2], [10.0], [10.1], [30.0]])
    start = torch.tensor([[0.0], [10.0], [1000.0]])
    found = kmeans(features, 3, n_init=1, seed=0, start=start, max_iterations=max_iterations)
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert found.centroids[2].item() == 30.0
    assert start[2].item() == 1000.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 7}, "7 clusters asked of 6 rows"),
        ({"n_clusters": 0}, "0 clusters asked of 6 rows"),
        ({"labels": [0] * 5}, "5 labels for 6 feature rows"),
        ({"labels": [3] * 6}, "label 3 does not fit into 3 clusters"),
        ({"labels": [0, 0, 0, 0, 0, -1]}, "2 unlabeled clusters asked of 1 unlabeled rows"),
        ({"features": torch.full((6, 2), torch.nan)}, "6 feature rows are not finite"),
        ({"features": torch.zeros(0, 2)}, "3 clusters asked of 0 rows"),
        ({"features": torch.zeros(6)}, r"shape \(6,\), not \(N, D\)"),
        ({"n_init": 0}, "n_init is 0"),
        ({"start": torch.zeros(2, 2)}, r"shape \(2, 2\), not \(3, 2\)"),
    ],
)
def test_what_cannot_be_clustered_is_said_in_one_line(change, message):
    given = {"features": torch.randn(6, 2), "n_clusters": 3, "n_init": 1, **change}
    if "labels" in given:
        given["labels"] = np.array(given["labels"])
    with pytest.raises(UserError, match=message):
        kmeans(**given, seed=0)


def test_distances_and_assignment_are_those_of_cdist():
    features, _ = blobs(200, 5, 7, noise=1.0, seed=12)
    centroids = torch.randn(9, 7, generator=torch.Generator().manual_seed(1))
    expected = torch.cdist(features.double(), centroids.double()).square()
    torch.testing.assert_close(
        squared_distances(features, centroids), expected.float(), atol=1e-4, rtol=1e-5
    )
    assert (assign(features, centroids) == expected.argmin(dim=1).numpy()).all()
    assert assign(features[:0], centroids).shape == (0,)


def test_unit_rows_have_length_one_and_zero_rows_stay_zero():
    lengths = unit(np.array([[3.0, 4.0], [0.0, 0.0]])).norm(dim=1)
    assert lengths.tolist() == pytest.approx([1.0, 0.0])


def test_the_number_of_planted_classes_is_found():
    features, true = blobs(400, 8, 6, noise=0.15, seed=13)
    found = estimate_n_classes(features, hide(true, 6), low=6, high=20, seed=0, n_init=3)
    assert abs(found.n_classes - 8) <= 1
    assert found.interval[0] <= found.n_classes <= found.interval[1]
    assert found.accuracies[found.n_classes] == max(found.accuracies.values()) > 95
    assert found.accuracies[20] < found.accuracies[found.n_classes]


def test_candidates_beyond_the_rows_are_not_tried():
    features, true = blobs(12, 3, 4, noise=0.1, seed=14)
    found = estimate_n_classes(features, true, low=3, high=1000, seed=0)
    assert max(found.accuracies) == 12
    assert found.n_classes == 3


@pytest.mark.parametrize(
    ("labels", "low", "message"),
    [([-1] * 4, 2, "without labeled images"), ([0] * 4, 5, "between 5 and 4")],
)
def test_an_estimate_without_basis_is_refused(labels, low, message):
    with pytest.raises(UserError, match=message):
        estimate_n_classes(torch.randn(4, 2), np.array(labels), low=low, high=9, seed=0)


class LargestTensor(TorchDispatchMode):
    """Watches every operation for the most values any of its results holds."""

    values = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            self.values = max(self.values, tensor.numel() if torch.is_tensor(tensor) else 0)
        return result


@pytest.mark.parametrize("anchored", [False, True])
def test_no_tensor_grows_with_rows_times_clusters(monkeypatch, anchored):
    monkeypatch.setattr(points, "CHUNK_SCORES", 2**14)
    features, true = blobs(5000, 50, 4, noise=0.5, seed=15)
    labels = hide(true, 30) if anchored else None
    with LargestTensor() as largest:
        kmeans(features, 50, labels=labels, n_init=1, seed=0, max_iterations=2)
    assert largest.values <= 5000 * 5  # features are 4 wide, greedy seeding tries 5 candidates
