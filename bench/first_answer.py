"""From the command `bacon discover PHOTOS` to its report, with its parts and the time it told.

python -m bench first_answer [N ...]. Photographs of $BACON_DATA (birds, textures; objects where
these are not enough, and crops of all of them after that), three labels for every other class; the
default effort. An empty cache of stored tokens: every image is embedded.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from bench.measure import table

SIZES = (500, 5000)
SETS = ("birds", "textures", "objects")
N_LABELS = 3  # of every other class


def main():
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append({"photographs": size, **answered(Path(folder), size)})
        print(table(rows[-1:]), flush=True)


def answered(folder, size):
    """Seconds of the command and of its parts."""
    photos, labels = plant(folder / "photos", size), folder / "labels.csv"
    words = ["discover", photos, "--labels", labels, "-o", folder / "run"]
    environment = os.environ | {"BACON_CACHE": str(own_cache(folder / "cache"))}
    begun = time.time()
    child = [sys.executable, "-m", "bench.first_answer", "--child", str(begun), *map(str, words)]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, check=True)
    taken = time.time() - begun
    parts = json.loads(done.stdout.splitlines()[-1])
    return {"s": taken, "told s": parts.pop("told"), **parts}


def own_cache(folder):
    """A cache with the weights of this machine and no stored tokens."""
    from bacon_gcd.system.files import cache_dir

    folder.mkdir()
    for each in cache_dir().iterdir():
        if each.name != "banks":
            (folder / each.name).symlink_to(each)
    return folder


def plant(folder, size):
    """So many photographs in one folder, evenly from all classes; labels.csv beside it."""
    folder.mkdir(parents=True)
    source, labels, left = Path(os.environ["BACON_DATA"]), [], size
    for name in SETS:
        with (source / name / "truth.csv").open() as lines:
            rows = list(csv.DictReader(lines))
        step = max(len(rows) / left, 1) if left else len(rows)
        chosen = [rows[int(number * step)] for number in range(min(left, len(rows)))]
        for row in chosen:
            new = f"{name}-{Path(row['file_name']).name}"
            shutil.copyfile(next((source / name).rglob(Path(row["file_name"]).name)), folder / new)
            labels.append((new, row["class"]))
        left -= len(chosen)
    labels += [crop(folder, *labels[number % len(labels)], number) for number in range(left)]
    write_labels(folder.parent / "labels.csv", labels)
    return folder


def crop(folder, file, name, number):
    """Another photograph: nine tenths of one, from anywhere in it."""
    with Image.open(folder / file) as picture:
        sides = np.array(picture.size)
        first = np.floor(np.random.default_rng(number).random(2) * 0.1 * sides).astype(int)
        new = f"{number:06d}-{file}"
        picture.crop((*first, *(first + 9 * sides // 10))).save(folder / new, quality=90)
    return new, name


def write_labels(path, labels):
    known, given = sorted({name for _, name in labels})[::2], {}
    with path.open("w", newline="") as lines:
        out = csv.writer(lines)
        out.writerow(["file_name", "label"])
        for file, name in labels:
            if name in known and given.get(name, 0) < N_LABELS:
                given[name] = given.get(name, 0) + 1
                out.writerow([file, name])


def child(begun, words):
    """The command in this process; what its parts took, on the last line."""
    from bacon_gcd import cli
    from bacon_gcd.discovery import inputs, pipeline, sorting, write

    parts = {"start": time.time() - begun}
    measured = {
        "forecast": (inputs, "forecast"),
        "embedding": (inputs, "from_images"),
        "classes": (sorting, "find_classes"),
        "map": (pipeline, "map_of"),
        "report": (write, "write_page"),
    }
    for name, (module, function) in measured.items():
        setattr(module, function, partial(timed, parts, name, getattr(module, function)))
    sys.argv = ["bacon", *words]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
    print(json.dumps(parts))


def timed(parts, name, function, *given, **more):
    start = time.perf_counter()
    made = function(*given, **more)
    parts[name] = parts.get(name, 0.0) + time.perf_counter() - start
    if name == "forecast":
        parts["told"] = made.total
    return made


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(float(sys.argv[2]), sys.argv[3:])
    else:
        main()
