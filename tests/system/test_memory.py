"""Freed memory is kept, and a C library without `mallopt` is no mistake."""

import ctypes
import platform
import subprocess
import sys

import pytest

from bacon_gcd.system.memory import keep_freed_memory
from tests.method_runs import trainer_for
from tests.planted import planted

FAULTS = """
import resource, torch
from bacon_gcd.system.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(10 << 20)  # 40 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(); new = faults(); keep_freed_memory(); faults()
print(new, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_are_reused():
    answer = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True)
    new, kept = map(int, answer.stdout.split())
    if new < 20:
        pytest.skip("this system keeps large blocks by itself")
    assert kept < new / 5


def test_without_mallopt_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory.__wrapped__() is False


def test_training_keeps_memory(monkeypatch):
    asked = []
    monkeypatch.setattr("bacon_gcd.training.loop.keep_freed_memory", lambda: asked.append(1))
    trainer_for("simgcd", planted(epochs=1), epochs=1).run()
    assert asked
