"""Benchmarks: python -m bench NAME."""

import os

# As the command does, before torch is loaded: threads that wait sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
