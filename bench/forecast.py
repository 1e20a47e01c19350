"""The time that `bacon discover` tells beforehand, and the time it takes.

python -m bench forecast. Ready vectors, so that sorting alone is judged; the limit is a factor 1.5.
"""

import tempfile
import time
from pathlib import Path

from bacon_gcd.discovery import inputs as reading
from bacon_gcd.discovery import pipeline
from bench import discover
from bench.measure import table

SIZES = (500, 2000, 10_000, 50_000)
DIM = 512
LIMIT = 1.5


def main():
    discover.DIM, told, forecast = DIM, [], reading.forecast

    def kept(*given, **more):
        told.append(forecast(*given, **more))
        return told[-1]

    reading.forecast = kept
    rows = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            images, vectors = discover.plant(Path(folder), size)
            start = time.perf_counter()
            pipeline.discover(images, Path(folder) / "run", features=vectors, effort="quick")
            taken = time.perf_counter() - start
        ratio = told[-1].total / taken
        right = 1 / LIMIT <= ratio <= LIMIT
        rows.append({"images": size, "told s": told[-1].total, "took s": taken, "ratio": ratio})
        rows[-1]["within 1.5"] = "yes" if right else "no"
    print(table(rows))


if __name__ == "__main__":
    main()
