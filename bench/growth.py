"""How time and memory grow from 10,000 to 1,000,000 images, part by part.

OMP_NUM_THREADS=1 python -m bench growth [SIZE ...]. Processor seconds of one thread, which other
jobs on the machine hardly change; peak memory of each part, without what was there before it.
`tree` and `report` are parts of `write and report`. `predict a tenth` sorts a tenth of the vectors
by the same model: a model of 10,000 images has half as many to compare with as one of 100,000.
Small images (32 px, up to 50,000) go through a bank by themselves. One size alone:
python -m bench.growth --vectors N (or --images N).
"""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.classes.neighbors import exact_neighbors, nearest
from bacon_gcd.cluster import unit
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import learn, pipeline, sorting, write
from bacon_gcd.discovery.learn import short_plan
from bacon_gcd.methods.class_sizes import clustered_counts
from bacon_gcd.model import load_model
from bacon_gcd.training.start import new_trainer
from bench.discover import N_CLASSES, N_KNOWN, plant
from bench.measure import table

SIZES = (10_000, 100_000, 1_000_000)
IMAGE_SIZES = (10_000, 50_000)
IMAGE_SIDE, READ_AT_ONCE = 32, 1024
LIMIT = 1.2  # a tenfold set may take this many times ten times as long
ASKED_ROWS = 500  # whose neighbors are compared with the exact ones
# Parts of `bacon discover`: name -> module and function that are measured wherever they are called.
PARTS = {
    "read": (pipeline, "read_inputs"),
    "tree": (write, "grow_tree"),
    "report": (write, "write_page"),
    "neighbors": (learn, "nearest"),
    "count and place": (sorting, "find_classes"),
    "sort": (sorting, "sort_by"),
    "map": (pipeline, "map_of"),
    "duplicates": (pipeline, "find_duplicates"),
    "outliers": (pipeline, "with_sorter"),
    "write and report": (pipeline, "write_run"),
}


class Meter:
    """Processor seconds and peak megabytes of each part."""

    def __init__(self):
        self.seconds, self.megabytes = {}, {}
        self.peak = 0.0  # of parts inside the one that is measured now

    @contextmanager
    def part(self, name):
        outer, self.peak = max(self.peak, memory("VmHWM")), 0.0
        forget_peak()
        before, start = memory("VmRSS"), time.process_time()
        yield
        taken, peak = time.process_time() - start, max(self.peak, memory("VmHWM"))
        most, self.peak = peak - before, max(outer, peak)
        self.seconds[name] = self.seconds.get(name, 0.0) + taken
        self.megabytes[name] = max(self.megabytes.get(name, 0.0), most)
        print(f"  {name}: {taken:.1f} s, {most:.0f} MB", file=sys.stderr, flush=True)

    def measured(self, name, function, *given, **more):
        with self.part(name):
            return function(*given, **more)


def memory(what):
    """VmRSS or VmHWM of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(what))) / 1024


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def measure_vectors(size):
    """One size, in a process of its own."""
    meter = Meter()
    for name, (module, function) in PARTS.items():
        setattr(module, function, partial(meter.measured, name, getattr(module, function)))
    with tempfile.TemporaryDirectory() as folder:
        images, vectors = plant(Path(folder), size)
        run = Path(folder) / "run"
        pipeline.discover(images, run, features=vectors, effort="quick", device="cpu")
        report = (run / "report.html").stat().st_size / 1e6
        print(f"  report: {report:.1f} MB", file=sys.stderr, flush=True)
        rows, labels = np.load(vectors), np.load(images)["labels"]
        model = load_model(run / "model")
        for part, n in (("predict a tenth", size // 10), ("predict", size)):
            with meter.part(part):
                model.answer(tuple(map(str, range(n))), ReadyTokens(rows[:n]))
    tenth = 10 * meter.seconds["predict a tenth"]
    features = unit(rows)
    with meter.part("class counts"):
        clustered_counts(features, labels, n_classes=N_CLASSES, n_known=N_KNOWN, rank_match=True)
    with meter.part("training epoch"):
        train_an_epoch(rows, labels)
    shown = f"report {report:.1f} MB, recall {recall(features):.3f}, "
    shown += f"predict {meter.seconds['predict'] / tenth:.2f} times ten times a tenth"
    return {"seconds": meter.seconds, "megabytes": meter.megabytes, "shown": shown}


def measure_images(size):
    """Small pictures through a bank of pooled tokens, and all of it read again."""
    meter = Meter()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        pictures = rng.integers(256, size=(size, IMAGE_SIDE, IMAGE_SIDE, 3), dtype=np.uint8)
        np.savez(Path(folder) / "images.npz", images=pictures, labels=np.full(size, -1))
        del pictures
        backbone = load_backbone("resnet18.pypi_in1k", image_size=IMAGE_SIDE, tuned="mirrored")
        with meter.part("images: read"):
            table = read_images(Path(folder) / "images.npz")
        with meter.part("images: fill the bank"):
            bank = build_bank(table, np.arange(size), backbone, n_views=0, folder=Path(folder))
        with meter.part("images: read the bank"):
            for start in range(0, size, READ_AT_ONCE):
                bank.test(np.arange(start, min(start + READ_AT_ONCE, size)))
    shown = f"bank of {bank.n_bytes / 1e6:.0f} MB"
    return {"seconds": meter.seconds, "megabytes": meter.megabytes, "shown": shown}


def train_an_epoch(rows, labels):
    plan = short_plan(1)
    new_trainer(
        plan.name,
        plan.settings,
        plan.recipe,
        ReadyTokens(rows, noise=0.1),
        labels,
        Vectors(rows.shape[1]),
        n_classes=N_CLASSES,
        n_known=N_KNOWN,
        seed=0,
    ).run()


def recall(features):
    """The share of the ten nearest rows that is found, of some rows."""
    asked = np.random.default_rng(0).choice(len(features), ASKED_ROWS, replace=False)
    found = nearest(features, n_neighbors=10)[asked]
    exact = exact_neighbors(features[torch.from_numpy(asked)], features, n_neighbors=11)[:, 1:]
    hits = [len({*a} & {*b}) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    return float(np.mean(hits)) / 10


def rows_of(found):
    """One row per part: seconds and megabytes of each size, and the growth from the last one."""
    rows = []
    for part in next(iter(found.values()))["seconds"]:
        row, before = {"part": part}, None
        for size, facts in found.items():
            taken = facts["seconds"][part]
            row[f"{size:,} s"] = round(taken, 1)
            row[f"{size:,} MB"] = round(facts["megabytes"][part])
            if before is not None:
                times = taken / max(before[1], 0.05) / (size / before[0])
                row[f"x{size // before[0]}"] = f"{times:.2f}" + (" !" if times > LIMIT else "")
            before = size, taken
        rows.append(row)
    return rows


def main():
    if len(sys.argv) == 3 and sys.argv[1] in MEASURES:
        print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]))))
        return
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    grow("--images", [size for size in IMAGE_SIZES if size <= max(sizes)])
    grow("--vectors", sizes)


def grow(what, sizes):
    """Each size in a process of its own, and what came of it."""
    found = {}
    for size in sizes:
        words = [sys.executable, "-m", "bench.growth", what, str(size)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        found[size] = json.loads(done.stdout.splitlines()[-1])
        print(table(rows_of(found)), flush=True)
    for size, facts in found.items():
        print(f"{size:,}: {facts['shown']}", flush=True)


MEASURES = {"--vectors": measure_vectors, "--images": measure_images}

if __name__ == "__main__":
    main()
