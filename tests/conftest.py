"""Settings of the whole suite."""

import os

# Torch's threads sleep instead of spinning while they wait: on a busy machine that is several times
# faster for the many small products of the tests. Must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
