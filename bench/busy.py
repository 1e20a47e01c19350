"""Work of several threads beside another job: how many times slower than without it.

python -m bench busy, on a machine that does nothing else. Embedding (ResNet-18, 224 px) with the
wait policy of the command (threads that wait sleep) and with OpenMP's own (they spin), alone and
beside one process that keeps one core. The aim is 2.2 times slower at most.
"""

import json
import os
import subprocess
import sys

from bench.measure import table

BATCHES, TURNS = 6, 3
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
        ratio = min(beside) / min(alone)
        rows.append({"policy": policy, "alone s": min(alone), "beside s": min(beside)})
        rows[-1]["times slower"] = ratio
        rows[-1]["load"] = os.getloadavg()[0]
    print(table(rows))


def embedding_seconds(policy):
    environment = os.environ | {"OMP_WAIT_POLICY": policy}
    words = [sys.executable, "-m", "bench.busy", "--child"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def child():
    import numpy as np

    from bacon_gcd.backbone.rendering import trunk_tokens
    from bacon_gcd.backbone.weights import load_backbone
    from bench.measure import seconds

    backbone = load_backbone("resnet18.pypi_in1k", image_size=224)
    pixels = np.zeros((16, 224, 224, 3), dtype=np.uint8)
    work = lambda: [trunk_tokens(backbone, pixels) for _ in range(BATCHES)]  # noqa: E731
    print(json.dumps(seconds(work, repeats=2)))


if __name__ == "__main__":
    child() if "--child" in sys.argv else main()
