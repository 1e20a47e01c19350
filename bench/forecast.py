"""The time that `bacon discover` tells beforehand, and the time it takes.

python -m bench forecast [SIZE ...]. Ready vectors of 512 values, and of 1280 as EfficientNet-Lite0
gives, so that sorting alone is judged; the limit is a factor 1.5. Each in a process of its own, as
a command is. `units`: processor seconds of the command over those of the small k-means that is
measured beforehand; constants of `bacon_gcd/discovery/forecast.py` are fitted to it. On a machine
whose load changes, the ratio of the processor tells more than that of the clock.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bacon_gcd.discovery import forecast as forecasting
from bacon_gcd.discovery import inputs as reading
from bacon_gcd.discovery import pipeline
from bench import discover
from bench.measure import table

SIZES = (500, 2000, 10_000, 50_000)
DIMS = (512, 1280)
LIMIT = 1.5
REPEATS = 20


def main():
    if "--one" in sys.argv:
        print(json.dumps(measure(*map(int, sys.argv[2:]))))
        return
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    rows = []
    for dim in DIMS:
        for size in sizes:
            words = [sys.executable, "-m", "bench.forecast", "--one", str(size), str(dim)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(table(rows), flush=True)


def measure(size, dim):
    """What was told and what it took, by the clock and by the processor."""
    discover.DIM = dim
    told = kept_results(reading, "forecast")
    with tempfile.TemporaryDirectory() as folder:
        images, vectors = discover.plant(Path(folder), size)
        forecasting._clustered()
        before, start, begun = unit(), time.perf_counter(), time.process_time()
        pipeline.discover(images, Path(folder) / "run", features=vectors, effort="quick")
        taken, worked = time.perf_counter() - start, time.process_time() - begun
    ratio, units = told[-1].total / taken, 2 * worked / (before + unit())
    row = {"images": size, "values": dim, "told s": told[-1].total, "took s": taken}
    row |= {"ratio": ratio, "processor s": worked, "units": units}
    row["of the processor"] = forecasting.sortings(size, dim) / units
    return row | {"within 1.5": within(ratio), "processor": within(row["of the processor"])}


def within(ratio):
    return "yes" if 1 / LIMIT <= ratio <= LIMIT else "no"


def unit():
    """Processor seconds of the small k-means."""
    rows, start = forecasting.small_rows(), time.process_time()
    for _ in range(REPEATS):
        forecasting.cluster(rows)
    return (time.process_time() - start) / REPEATS


def kept_results(module, name):
    """What this function of the module returns, from now on."""
    found, function = [], getattr(module, name)

    def kept(*given, **more):
        found.append(function(*given, **more))
        return found[-1]

    setattr(module, name, kept)
    return found


if __name__ == "__main__":
    main()
