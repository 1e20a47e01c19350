"""How many threads NumPy and SciPy use."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from bacon_gcd.classes import find
from bacon_gcd.classes.find import find_classes
from bacon_gcd.cluster import unit
from bacon_gcd.system.threads import FEW_ROWS, threads_for


def blas_threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_numpy_and_scipy_have_one_thread_inside_and_as_many_as_before_after_it():
    before, of_torch = blas_threads(), torch.get_num_threads()
    with threads_for(FEW_ROWS + 1):
        assert blas_threads() == [1] * len(before)
        assert torch.get_num_threads() == of_torch
    assert blas_threads() == before


def fails_inside():
    with threads_for(FEW_ROWS):
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError


def test_torch_has_one_thread_for_few_rows_and_as_many_as_before_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            fails_inside()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("said", [None, "active"])
def test_threads_of_who_uses_python_sleep_while_they_wait_unless_they_said_otherwise(said):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": said} if said else {}
    code = "import os, bacon_gcd; bacon_gcd.UserError; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (said or "passive")


def test_classes_are_found_on_one_thread(monkeypatch):
    rows = unit(torch.from_numpy(np.random.default_rng(0).normal(size=(40, 8))).float())
    labels = np.where(np.arange(40) < 8, np.arange(40) % 2, -1)
    seen, inside = [], find.by_evidence

    def watched(question):
        seen.append({*blas_threads(), torch.get_num_threads()})
        return inside(question)

    monkeypatch.setattr(find, "by_evidence", watched)
    find_classes(rows, labels, seed=0)
    assert seen[0] == {1}
