"""The review page of a large run: from a click to the answer of the server, in milliseconds.

python -m bench review [N]. A run of N planted images (100,000). Every request goes through the
server as the page sends it; the aim is 100 ms for each but the first look at everything.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fastapi.testclient import TestClient

from bacon_gcd.discovery.pipeline import discover
from bacon_gcd.review.server import OpenRun, Secret, new_app
from bench.discover import N_CLASSES, plant
from bench.measure import table

SIZE, PORT, TOKEN = 100_000, 8765, "bench"
REPEATS = 5
CLICKS = {
    "details of an image": lambda client, n: client.get(f"/about/{n}"),
    "an image, large": lambda client, n: client.get(f"/image/{n}?size=large"),
    "confirm 1": lambda client, n: edit(client, kind="confirm", images=[n]),
    "move 100": lambda client, n: edit(client, kind="move", images=list(range(n, n + 100)), to=1),
    "rename a class": lambda client, n: edit(client, kind="rename", **{"class": 2}, to=f"name {n}"),
    "undo": lambda client, n: edit(client, kind="undo"),
    "merge two classes": lambda client, n: edit(client, kind="merge", classes=[30, 31], to=30),
    "undo the merge": lambda client, n: edit(client, kind="undo"),
}


def main():
    size = next((int(word) for word in sys.argv[1:] if word.isdecimal()), SIZE)
    with tempfile.TemporaryDirectory() as folder:
        images, vectors = plant(Path(folder), size)
        run = Path(folder) / "run"
        discover(images, run, features=vectors, effort="quick", classes=N_CLASSES)
        print(table(measure(run)))


def measure(run):
    """One row per click: wall time and processor time."""
    start = time.process_time()
    app = new_app(OpenRun(run), Secret(TOKEN), port=PORT)
    rows = [{"click": "open the run", "ms": "-", "processor ms": since(start)}]
    client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}")
    client.headers["x-review-token"] = TOKEN
    for name, path in (("first look at all images", "/state"), ("map", "/map")):
        rows.append(clicked(name, lambda _, path=path: client.get(path), repeats=1))
    for name, click in CLICKS.items():
        repeats = 1 if "merge" in name else REPEATS
        rows.append(clicked(name, lambda n, click=click: click(client, n), repeats=repeats))
    return rows


def clicked(name, click, *, repeats):
    walls, works = [], []
    for number in range(repeats):
        wall, work = time.perf_counter(), time.process_time()
        answer = click(100 * (number + 1))
        walls.append(1000 * (time.perf_counter() - wall))
        works.append(since(work))
        assert answer.status_code == 200, (name, answer.text[:200])
    return {"click": name, "ms": median(walls), "processor ms": median(works)}


def edit(client, **asked):
    return client.post("/edit", json=asked)


def since(start):
    return 1000 * (time.process_time() - start)


if __name__ == "__main__":
    main()
