"""Leverages, literally."""

import numpy as np


def gaussian_process_variance(rows, new, noise):
    """(n,) k(x, x) - k(x, X) (K + noise I)^-1 k(X, x) with k(x, y) = x'y (linear kernel)."""
    inverse = np.linalg.inv(rows @ rows.T + noise * np.eye(len(rows)))
    across = new @ rows.T
    return np.array([x @ x - k @ inverse @ k for x, k in zip(new, across, strict=True)])


def leverages_without_themselves(rows, penalty):
    """(n,) x' (X'X + penalty I)^-1 x, where X are all rows but x."""
    found = []
    for number, x in enumerate(rows):
        others = np.delete(rows, number, axis=0)
        system = others.T @ others + penalty * np.eye(rows.shape[1])
        found.append(x @ np.linalg.solve(system, x))
    return np.array(found)
