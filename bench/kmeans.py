"""k-means against scikit-learn's: 10,000 x 512, 100 clusters."""

import numpy as np
import torch
from sklearn.cluster import KMeans

from bacon_gcd.cluster import kmeans
from bench.measure import seconds, table


def main():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(100, 512))
    points = centers[rng.integers(100, size=10_000)] + 2 * rng.normal(size=(10_000, 512))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    features = torch.from_numpy(points)
    found = kmeans(features, 100, n_init=1, seed=0)
    theirs = KMeans(100, n_init=1, random_state=0).fit(points)
    ours_s = seconds(lambda: kmeans(features, 100, n_init=1, seed=0))
    warm_s = seconds(lambda: kmeans(features, 100, n_init=1, seed=0, start=found.centroids))
    theirs_s = seconds(lambda: KMeans(100, n_init=1, random_state=0).fit(points))
    print(
        table(
            [
                {"": "ours", "s": ours_s, "x": theirs_s / ours_s, "inertia": found.inertia},
                {"": "ours, warm", "s": warm_s, "x": theirs_s / warm_s, "inertia": found.inertia},
                {"": "scikit-learn", "s": theirs_s, "x": 1.0, "inertia": float(theirs.inertia_)},
            ]
        )
    )


if __name__ == "__main__":
    main()
