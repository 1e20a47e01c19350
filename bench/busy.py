"""Work of several threads beside another job: how many times slower than without it.

python -m bench busy [BATCHES], on a machine that does nothing else. Embedding (ResNet-18, 224 px)
with the wait policy of the command (threads that wait sleep) and with OpenMP's own (they spin),
alone and beside one process that keeps one core. The aim is 2.2 times slower at most. Where other
jobs run as well the clock says nothing; processor seconds then show what is lost by spinning.
"""

import json
import os
import subprocess
import sys
import time

from bench.measure import table

BATCHES, TURNS = 6, 3
WALL, PROCESSOR = 0, 1
BESIDE = "while True: pass"


def main():
    rows = []
    for policy in ("passive", "active"):
        alone, beside = [], []
        for _ in range(TURNS):  # in turn, so that a change of load meets both
            alone.append(embedding_seconds(policy))
            other = subprocess.Popen([sys.executable, "-c", BESIDE])
            try:
                beside.append(embedding_seconds(policy))
            finally:
                other.kill()
                other.wait()
        rows.append({"policy": policy})
        for which, name in ((WALL, ""), (PROCESSOR, "processor ")):
            apart, together = (min(each[which] for each in times) for times in (alone, beside))
            rows[-1] |= {f"{name}alone s": apart, f"{name}beside s": together}
            rows[-1][f"{name}ratio"] = together / apart
        rows[-1]["load"] = os.getloadavg()[0]
        print(table(rows), flush=True)


def embedding_seconds(policy):
    """Least seconds of the clock and of the processor, in a process with this policy."""
    environment = os.environ | {"OMP_WAIT_POLICY": policy}
    words = [sys.executable, "-m", "bench.busy", "--child", *filter(str.isdecimal, sys.argv[1:])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def child():
    import numpy as np

    from bacon_gcd.backbone.rendering import trunk_tokens
    from bacon_gcd.backbone.weights import load_backbone

    backbone = load_backbone("resnet18.pypi_in1k", image_size=224)
    pixels = np.zeros((16, 224, 224, 3), dtype=np.uint8)
    n_batches = int(sys.argv[-1]) if sys.argv[-1].isdecimal() else BATCHES
    trunk_tokens(backbone, pixels)  # the first call is slower
    times = []
    for _ in range(2):
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(n_batches):
            trunk_tokens(backbone, pixels)
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    print(json.dumps([min(each) for each in zip(*times, strict=True)]))


if __name__ == "__main__":
    child() if "--child" in sys.argv else main()
