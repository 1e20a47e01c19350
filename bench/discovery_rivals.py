"""What a person would otherwise use, on the same features and labels."""

import warnings

import numpy as np
import torch
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.semi_supervised import LabelSpreading

from bacon_gcd.cluster import estimate_n_classes, kmeans

SMALLEST_CLUSTER = 5  # of HDBSCAN; its own default


def named(clusters, labels, n_known):
    """Clusters called after the class most of their labels name; without labels they are new."""
    result = np.where(labels >= 0, labels, -1)
    unlabeled = labels < 0
    for number, cluster in enumerate(c for c in np.unique(clusters) if c >= 0):
        inside = clusters == cluster
        seen = labels[inside & ~unlabeled]
        name = int(np.bincount(seen).argmax()) if len(seen) else n_known + number
        result[inside & unlabeled] = name
    result[(clusters < 0) & unlabeled] = -1  # noise is nobody's
    return result


def kmeans_true(x, labels, n_known, n_classes):
    found = KMeans(n_classes, n_init=3, random_state=0).fit_predict(x)
    return named(found, labels, n_known)


def ward_true(x, labels, n_known, n_classes):
    return named(AgglomerativeClustering(n_classes).fit_predict(x), labels, n_known)


def hdbscan(x, labels, n_known, n_classes):
    return named(HDBSCAN(min_cluster_size=SMALLEST_CLUSTER).fit_predict(x), labels, n_known)


def spreading_hdbscan(x, labels, n_known, n_classes):
    """Sure labels of LabelSpreading, HDBSCAN for the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100).fit(x, labels)
    sure = np.nan_to_num(model.label_distributions_).max(axis=1) > 0.5
    result = np.where(labels >= 0, labels, np.where(sure, model.transduction_, -1))
    rest = np.flatnonzero(result < 0)
    if len(rest) > SMALLEST_CLUSTER:
        found = HDBSCAN(min_cluster_size=SMALLEST_CLUSTER).fit_predict(x[rest])
        result[rest] = np.where(found >= 0, n_known + found, -1)
    return result


def gcd_true(x, labels, n_known, n_classes):
    """GCD's semi-supervised k-means."""
    return kmeans(torch.from_numpy(x), n_classes, labels=labels, n_init=10, seed=0).labels


def gcd_counted(x, labels, n_known, n_classes):
    """The same with GCD's own number of classes."""
    high = min(len(x), max(4 * n_known, n_known + 10))
    n = n_known
    if n_known > 1:
        n = estimate_n_classes(
            torch.from_numpy(x), labels, low=n_known, high=high, seed=0
        ).n_classes
    return gcd_true(x, labels, n_known, n)


def _umap(x, n_dims):
    import umap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return umap.UMAP(n_components=n_dims, metric="cosine", random_state=0).fit_transform(x)


def umap_hdbscan(x, labels, n_known, n_classes):
    return named(
        HDBSCAN(min_cluster_size=SMALLEST_CLUSTER).fit_predict(_umap(x, 5)), labels, n_known
    )


def umap_gcd_true(x, labels, n_known, n_classes):
    return gcd_true(_umap(x, 10).astype(np.float32), labels, n_known, n_classes)


RIVALS = {
    "KMeans, true K": kmeans_true,
    "Ward, true K": ward_true,
    "HDBSCAN": hdbscan,
    "LabelSpreading + HDBSCAN": spreading_hdbscan,
    "semi-supervised k-means (GCD), true K": gcd_true,
    "semi-supervised k-means (GCD), its own K": gcd_counted,
    "UMAP + HDBSCAN": umap_hdbscan,
    "UMAP + semi-supervised k-means, true K": umap_gcd_true,
}
