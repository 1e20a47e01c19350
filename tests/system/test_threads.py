"""How many threads NumPy and SciPy use."""

import numpy as np
import torch
from threadpoolctl import threadpool_info

from bacon_gcd.classes import find
from bacon_gcd.classes.find import find_classes
from bacon_gcd.cluster import unit
from bacon_gcd.system.threads import one_blas_thread


def blas_threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_numpy_and_scipy_have_one_thread_inside_and_as_many_as_before_after_it():
    before, of_torch = blas_threads(), torch.get_num_threads()
    with one_blas_thread():
        assert blas_threads() == [1] * len(before)
        assert torch.get_num_threads() == of_torch
    assert blas_threads() == before


def test_classes_are_found_on_one_thread(monkeypatch):
    rows = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(40, 8))).float())
    labels = np.where(np.arange(40) < 8, np.arange(40) % 2, -1)
    seen, inside = [], find.by_evidence

    def watched(question):
        seen.append(set(blas_threads()))
        return inside(question)

    monkeypatch.setattr(find, "by_evidence", watched)
    find_classes(rows, labels, seed=0)
    assert seen[0] == {1}
