import numpy as np
import pytest
import torch

from bacon_gcd.classes.clusterings import clusterings, labels_per_class, named_after, one_clustering
from bacon_gcd.classes.rules import Rules
from bacon_gcd.cluster import unit

RULES = Rules(clusterings=3, many_labels=3.0)


def blobs(each=20, n_classes=4, n_labeled=1, seed=0):
    """Unit rows of classes that are far apart, some of two known ones labeled."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(n_classes), each)
    rows = np.eye(n_classes, 12)[true] + 0.1 * rng.normal(size=(len(true), 12))
    place = np.arange(len(true)) % each
    labels = np.where((true < 2) & (place < n_labeled), true, -1)
    return unit(torch.from_numpy(rows).float()), true, labels


def test_images_of_a_known_class_count():
    assert labels_per_class(np.array([-1, 0, 0, 1, 0, -1])) == 2.0
    assert labels_per_class(np.array([-1, -1])) == 0.0


@pytest.mark.parametrize(("n_labeled", "n_found"), [(0, 0), (1, 3), (2, 3), (3, 0)])
def test_they_are_asked_where_labels_are_few_but_not_where_there_are_none(n_labeled, n_found):
    rows, true, labels = blobs(n_labeled=n_labeled)
    found = clusterings(rows, labels, true, n_classes=4, seed=0, rules=RULES)
    assert len(found) == n_found
    for each in found:
        np.testing.assert_array_equal(each, true)


def test_new_clusters_have_the_names_of_new_classes():
    rows, true, labels = blobs()
    swapped = np.array([0, 1, 3, 2])[true]  # the evidence numbers its new classes otherwise
    for each in clusterings(rows, labels, swapped, n_classes=4, seed=0, rules=RULES):
        np.testing.assert_array_equal(each, swapped)


def test_a_cluster_is_named_after_the_new_class_with_which_it_shares_most():
    clusters = np.array([0, 2, 2, 2, 3, 3, 1])
    class_ids = np.array([0, 3, 3, 2, 2, 0, 3])
    assert named_after(clusters, class_ids, 2, 4).tolist() == [0, 3, 3, 3, 2, 2, 1]


def test_a_cluster_that_shares_no_image_with_a_new_class_says_nothing():
    clusters = np.array([2, 2, 3, 3, 0])
    class_ids = np.array([2, 2, 1, 0, 3])
    assert named_after(clusters, class_ids, 2, 4).tolist() == [2, 2, 1, 0, 0]


def test_without_new_classes_there_is_nothing_to_name():
    ids = np.array([0, 1, 1])
    assert named_after(ids, ids[::-1].copy(), 2, 2).tolist() == [0, 1, 1]


def test_labeled_images_stay_in_their_class():
    rows, _, labels = blobs()
    labels[45] = 0  # among images of a new class
    assert one_clustering(rows, labels, 4, seed=0)[45] == 0


def test_of_many_images_a_sample_decides_and_labels_are_always_in_it():
    rows, true, labels = blobs(each=60)
    found = one_clustering(rows, labels, 4, seed=0, rules=Rules(sample=40))
    assert (found[true < 2] == true[true < 2]).all()
    assert len(np.unique(found[true == 2])) == len(np.unique(found[true == 3])) == 1
