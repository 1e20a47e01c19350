"""Settings of the whole suite."""

import os

# Torch's threads sleep instead of spinning while they wait: on a busy machine that is several times
# faster for the many small products of the tests. Must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Tests run in two processes at a time (make test), each of which must not take both cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
