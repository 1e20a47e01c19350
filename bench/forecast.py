"""The time that `bacon discover` tells beforehand, and the time it takes.

python -m bench forecast [SIZE ...]. Ready vectors of 512 values, so that sorting alone is judged;
the limit is a factor 1.5. `units`: processor seconds of the command over those of the small k-means
that is measured beforehand; constants of `bacon_gcd/discovery/forecast.py` are fitted to it. On a
machine whose load changes, the ratio of the processor tells more than that of the clock.
"""

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
DIM = 512
LIMIT = 1.5
REPEATS = 20


def main():
    discover.DIM = DIM
    told = kept_results(reading, "forecast")
    forecasting._clustered(DIM)
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            images, vectors = discover.plant(Path(folder), size)
            before, start, begun = unit(), time.perf_counter(), time.process_time()
            pipeline.discover(images, Path(folder) / "run", features=vectors, effort="quick")
            taken, worked = time.perf_counter() - start, time.process_time() - begun
        ratio = told[-1].total / taken
        row = {"images": size, "told s": told[-1].total, "took s": taken, "ratio": ratio}
        units = 2 * worked / (before + unit())
        row |= {"units": units, "of the processor": forecasting.sortings(size) / units}
        rows.append(
            row | {"within 1.5": within(ratio), "processor": within(row["of the processor"])}
        )
        print(table(rows), flush=True)


def within(ratio):
    return "yes" if 1 / LIMIT <= ratio <= LIMIT else "no"


def unit():
    """Processor seconds of the small k-means."""
    rows, start = forecasting.small_rows(DIM), time.process_time()
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
