"""Twenty pages edit one run at once: no acknowledged edit is lost, and memory stays flat."""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx

from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.edits import edits_path, read_edits
from bacon_gcd.discovery.folder import DiscoverRun
from tests.discover_samples import make_run, predictions
from tests.soaking import SECONDS, rounds

CLIENTS, EDITS, MEMORY = 20, 25, 40_000  # edits of each client; kB more than after the first half


def edits_of(number, base, token, n_edits, acknowledged):
    """One page: random edits; refusals are answers, too."""
    rng = random.Random(number)
    with httpx.Client(base_url=base, headers={"x-review-token": token}, timeout=60) as client:
        since = client.get("/state").json()["version"]
        for _ in range(n_edits):
            images = rng.sample(range(160), 3)
            asked = rng.choice(
                [
                    {"kind": "confirm", "images": images},
                    {"kind": "wrong", "images": images},
                    {"kind": "move", "images": images, "to": rng.randrange(4)},
                    {"kind": "rename", "class": rng.randrange(4), "to": f"name {rng.random()}"},
                    {"kind": "undo"},
                ]
            )
            answer = client.post("/edit", json={**asked, "since": since})
            assert answer.status_code in (200, 400, 404), answer.text
            if answer.status_code == 200:
                since = answer.json()["version"]
                acknowledged.append(asked["kind"])
            if rng.random() < 0.2:
                assert client.get(f"/image/{images[0]}").status_code == 200


def hammer(base, token, acknowledged):
    threads = [
        threading.Thread(target=edits_of, args=(number, base, token, EDITS, acknowledged))
        for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def memory_of(process):
    """Resident kB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_no_acknowledged_edit_is_lost_and_memory_stays_flat(tmp_path):
    run = make_run(tmp_path, predictions(per_class=40))
    words = [sys.executable, "-m", "bacon_gcd", "review", str(run), "--no-open", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    acknowledged = []
    try:
        base, token = json.loads(process.stdout.readline())["url"].split("?token=")
        hammer(base, token, acknowledged)
        before = memory_of(process)
        for _ in rounds("20 pages, 25 edits each", short=1, share=60 / max(SECONDS, 60)):
            hammer(base, token, acknowledged)
        assert memory_of(process) < before + MEMORY
        with httpx.Client(base_url=base, headers={"x-review-token": token}) as client:
            shown = client.get("/state").json()
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()
    stored = read_edits(edits_path(run))
    assert sorted(edit["kind"] for edit in stored) == sorted(acknowledged)
    assert [edit["n"] for edit in stored] == list(range(1, len(stored) + 1))
    assert shown["skipped"] == []
    rows, classes, *_ = corrected(DiscoverRun.load(run))
    ids = {each.name: each.id for each in classes}
    assert [ids[row.class_name] for row in rows] == shown["images"]["class"]
    assert len(acknowledged) > CLIENTS * EDITS
