import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi.testclient import TestClient  # noqa: E402

from bacon_gcd.discovery.edits import edits_path, read_edits  # noqa: E402
from bacon_gcd.discovery.folder import FoundClass  # noqa: E402
from bacon_gcd.review.server import OpenRun, Secret, new_app  # noqa: E402
from tests.discover_samples import make_run, predictions  # noqa: E402

CONFIRMED, WRONG, LABELED = 1, 2, 4
TOKEN, PORT = "secret-token", 8123
BASE = f"http://127.0.0.1:{PORT}"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path)


def new_client(run):
    app = new_app(OpenRun(run), Secret(TOKEN), port=PORT)
    return TestClient(app, base_url=BASE, follow_redirects=False, raise_server_exceptions=False)


@pytest.fixture
def page(run):
    client = new_client(run)
    client.headers["x-review-token"] = TOKEN
    return client


def edit(page, **asked):
    return page.post("/edit", json=asked)


PATHS = (
    *("/", "/state", "/changes?since=0", "/map", "/about/0", "/refit", "/image/0"),
    *("/static/page.js", "/static/page.css"),
)


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "é"])
def test_nothing_is_told_without_the_token(run, path, token):
    client = new_client(run)
    headers = {} if token is None else {"x-review-token": token.encode()}
    assert client.get(path, headers=headers).status_code == 403
    for name in ("token", "code"):
        assert client.get(path.split("?")[0], params={name: token or ""}).status_code == 403
    client.cookies.set(f"bacon_review_{PORT}", (token or "").encode("ascii", "ignore").decode())
    assert client.get(path).status_code == 403
    assert client.post("/edit", json={"kind": "undo"}).status_code == 403


def test_the_address_gives_a_cookie_and_leaves_the_address_bar(run):
    client = new_client(run)
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert [client.get(path).status_code for path in PATHS] == [200] * len(PATHS)


def test_the_token_in_the_address_opens_the_front_page_only(run):
    assert new_client(run).get("/state", params={"token": TOKEN}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""]
)
def test_another_host_is_refused_even_with_the_token(page, host):
    assert page.get("/state", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", ""])
def test_another_origin_is_refused_even_with_the_token(page, run, origin):
    assert page.get("/state", headers={"origin": origin}).status_code == 403
    answer = page.post("/edit", json={"kind": "confirm", "images": [0]}, headers={"origin": origin})
    assert answer.status_code == 403
    assert read_edits(edits_path(run)) == []


def test_its_own_host_and_origin_are_accepted(page):
    for name in ("127.0.0.1", "localhost"):
        headers = {"host": f"{name}:{PORT}", "origin": f"http://{name}:{PORT}"}
        assert page.get("/state", headers=headers).status_code == 200


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
def test_every_answer_forbids_scripts_and_frames_of_others(page, path):
    headers = page.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        *("/image/16", "/image/-1", "/image/99999999999999999999", "/image/../config.toml"),
        *("/image/%2e%2e%2fconfig.toml", "/image/0.png", "/image/", "/image", "/image/0/"),
        *("/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/server.py", "/static/"),
        *("/static/page.html%00", "/run/config.toml", "/config.toml", "//etc/passwd", "/docs"),
        *("/openapi.json", "/image/%5c%5chost%5cshare", "/image/0%00", "/static/" + "a" * 5000),
    ],
)
def test_no_path_leads_to_a_file(page, path):
    answer = page.get(path)
    assert answer.status_code in (404, 422, 307)
    assert answer.status_code != 307 or answer.headers["location"].startswith(BASE)
    assert b"source" not in answer.content


def test_an_image_outside_the_source_folder_is_not_there(tmp_path):
    rows = [replace(predictions()[0], file_name=name) for name in ("../secret.png", "gone.png")]
    client = new_client(make_run(tmp_path, rows, images=False))
    client.headers["x-review-token"] = TOKEN
    assert [client.get(f"/image/{n}").status_code for n in (0, 1)] == [404, 404]


def test_images_come_small_or_large_as_jpeg(page):
    for size in ("small", "large", "original"):
        answer = page.get("/image/3", params={"size": size})
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.content[:2] == b"\xff\xd8"
    assert page.get("/image/3", params={"size": "huge"}).status_code == 400


def test_the_state_shows_every_image_and_class(page):
    state = page.get("/state").json()
    assert state["images"]["class"] == [n // 4 for n in range(16)]
    assert [c["name"] for c in state["classes"]] == ["cat", "dog", "novel_000", "novel_001"]
    assert [c["count"] for c in state["classes"]] == [4] * 4
    assert state["undo"] is None
    assert state["images"]["marks"][:3] == [LABELED, LABELED, 0]
    assert state["images"]["confidence"][0] == 950


def test_every_button_writes_its_edit_at_once(page, run):
    assert edit(page, kind="rename", **{"class": 2}, to=" heron ").status_code == 200
    assert edit(page, kind="move", images=[0, 8], to=1).status_code == 200
    assert edit(page, kind="move", images=[9], to="new bird").status_code == 200
    assert edit(page, kind="confirm", images=[4]).status_code == 200
    assert edit(page, kind="wrong", images=[5]).status_code == 200
    changed = edit(page, kind="merge", classes=[2, 3], to=3).json()
    stored = [{k: v for k, v in e.items() if k != "time"} for e in read_edits(edits_path(run))]
    assert stored == [
        {"n": 1, "kind": "rename", "class": "novel_000", "to": "heron"},
        {"n": 2, "kind": "move", "files": ["in/0_0.png", "in/2_0.png"], "to": "dog"},
        {"n": 3, "kind": "move", "files": ["in/2_1.png"], "to": "new bird", "opens": [4]},
        {"n": 4, "kind": "confirm", "files": ["in/1_0.png"]},
        {"n": 5, "kind": "wrong", "files": ["in/1_1.png"]},
        {"n": 6, "kind": "merge", "classes": ["heron", "novel_001"], "to": "novel_001"},
    ]
    assert changed["gone"] == [2]
    assert changed["undo"] == "merge into novel_001"
    state = page.get("/state").json()
    assert [c["name"] for c in state["classes"]] == ["cat", "dog", "novel_001", "new bird"]
    assert state["images"]["marks"][5] == LABELED | WRONG
    for _ in range(6):
        edit(page, kind="undo")
    assert shown(page.get("/state").json()) == shown(new_client_state(run))
    assert edit(page, kind="undo").json()["error"] == "there is nothing to undo"


def shown(state):
    """Without what differs between servers."""
    return {name: value for name, value in state.items() if name not in ("key", "version")}


def new_client_state(run):
    """The state of a server that begins now: only what is on disk counts."""
    return new_client(run).get("/state", headers={"x-review-token": TOKEN}).json()


def test_a_split_finds_the_two_halves_of_a_class_and_uses_a_new_id(page, run):
    edit(page, kind="split", **{"class": 2}, parts=2)
    state = page.get("/state").json()
    assert [c["name"] for c in state["classes"]][2:] == ["novel_000", "novel_001", "novel_002"]
    now = state["images"]["class"][8:12]
    assert now[0] == now[2] != now[1] == now[3]
    edit(page, kind="undo")
    changed = edit(page, kind="split", **{"class": 2}, parts=2).json()
    assert [c["name"] for c in changed["classes"] if c["id"] == 5] == ["novel_003"]
    assert [e.get("opens") for e in read_edits(edits_path(run))] == [[4], None, [5]]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"kind": "rename", "class": 99, "to": "x"}, 404),
        ({"kind": "rename", "class": "cat", "to": "x"}, 404),
        ({"kind": "rename", "class": True, "to": "x"}, 404),
        ({"kind": "rename", "class": 0, "to": "dog"}, 400),
        ({"kind": "rename", "class": 0, "to": "  "}, 400),
        ({"kind": "rename", "class": 0, "to": "x" * 201}, 400),
        ({"kind": "rename", "class": 0}, 400),
        ({"kind": "move", "images": [16], "to": 0}, 404),
        ({"kind": "move", "images": [-1], "to": 0}, 404),
        ({"kind": "move", "images": [], "to": 0}, 400),
        ({"kind": "move", "images": ["in/0_0.png"], "to": 0}, 400),
        ({"kind": "move", "images": [0], "to": None}, 404),
        ({"kind": "split", "class": 0, "parts": 1}, 400),
        ({"kind": "split", "class": 0, "parts": 5}, 400),
        ({"kind": "split", "class": 0, "parts": "2"}, 400),
        ({"kind": "format disk"}, 400),
        ([], 400),
        ("x", 400),
    ],
    ids=str,
)
def test_a_bad_edit_is_told_in_one_line_and_not_written(page, run, asked, status):
    answer = page.post("/edit", json=asked)
    assert answer.status_code == status
    assert "\n" not in answer.json()["error"]
    assert not edits_path(run).exists()


def test_an_edit_must_be_json_of_reasonable_size(page, run):
    body = json.dumps({"kind": "confirm", "images": [0]})
    plain = page.post("/edit", content=body, headers={"content-type": "text/plain"})
    assert plain.status_code == 400
    kind = {"content-type": "application/json"}
    assert page.post("/edit", content=b"{", headers=kind).status_code == 400
    assert page.post("/edit", content=b" " * 4_000_001, headers=kind).status_code == 400
    assert not edits_path(run).exists()


def test_hostile_names_travel_as_plain_text(tmp_path):
    classes = [FoundClass(0, HOSTILE, True), FoundClass(1, "b", False)]
    client = new_client(make_run(tmp_path, predictions(classes, 2), classes))
    client.headers["x-review-token"] = TOKEN
    answer = client.get("/state")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["classes"][0]["name"] == HOSTILE[:-1] + "\\u202e"
    kind, body = (
        {"content-type": "application/json"},
        rb'{"kind":"rename","class":1,"to":"\ud800x"}',
    )
    renamed = client.post("/edit", content=body, headers=kind)
    assert renamed.json()["classes"][0]["name"] == "?x"
    assert b"onerror" not in client.get("/").content


def start(run):
    """A real `bacon review` in its own process, and its address."""
    words = [sys.executable, "-m", "bacon_gcd", "review", str(run), "--no-open", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())["url"]


def test_a_killed_server_has_lost_nothing_when_it_comes_back(run):
    process, url = start(run)
    try:
        with httpx.Client(follow_redirects=True) as client:
            assert client.get(url).status_code == 200
            asked = {"kind": "rename", "class": 2, "to": "heron"}
            base = url.split("/?")[0]
            assert client.post(f"{base}/edit", json=asked).status_code == 200
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        with edits_path(run).open("ab") as file:
            file.write(b'{"n": 2, "kind": "rena')  # it died in the middle of the next one
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
    assert [c["name"] for c in new_client_state(run)["classes"]][2] == "heron"


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    words = [sys.executable, "-m", "bacon_gcd", "review", str(tmp_path), "--no-open"]
    failed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert len(failed.stderr.splitlines()) == 1
    assert "classes.json" in failed.stderr
    assert Path(tmp_path).exists()


@pytest.fixture
def refit_command(monkeypatch):
    """The refit's process becomes a script of our own, so that its ends can be chosen."""

    real = subprocess.Popen

    def use(script):
        def popen(words, **options):
            return real([sys.executable, "-c", script, *words[3:]], **options)

        monkeypatch.setattr("bacon_gcd.review.learning.subprocess.Popen", popen)

    return use


def wait_for(page, what, seconds=20):
    for _ in range(seconds * 20):
        if (status := page.get("/refit").json())["is"] == what:
            return status
        time.sleep(0.05)
    raise AssertionError(status)


def learn(page, do):
    return page.post("/refit", json={"do": do})


def test_there_is_nothing_to_learn_without_a_correction(page, run):
    assert page.get("/refit").json()["is"] == "idle"
    answer = learn(page, "start")
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "there is no correction to learn from yet",
    )
    assert learn(page, "open").status_code == 400
    assert learn(page, "dance").json()["error"].endswith("choose from start, stop, open")
    assert not list(run.parent.glob(".*"))


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"host": "evil.example"}])
def test_nobody_else_starts_a_refit(page, run, headers):
    edit(page, kind="confirm", images=[0])
    assert page.post("/refit", json={"do": "start"}, headers=headers).status_code == 403
    assert new_client(run).post("/refit", json={"do": "start"}).status_code == 403
    assert page.post("/refit", content=b'{"do": "start"}').status_code == 400
    assert page.get("/refit").json()["is"] == "idle"


def test_a_refit_that_fails_says_why_in_one_line(page, run, refit_command):
    refit_command("import sys; sys.exit('a long story\\n<b>images</b> changed')")
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    assert wait_for(page, "failed")["line"] == "<b>images</b> changed"
    assert not list(run.parent.glob(".*.log"))


def test_one_refit_at_a_time_no_edits_meanwhile_and_stop_ends_it(page, run, refit_command):
    refit_command(
        "import sys, time; sys.stderr.write('3 of 9\\n'); sys.stderr.flush(); time.sleep(60)"
    )
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    while page.get("/refit").json() != {"is": "running", "line": "3 of 9"}:
        time.sleep(0.05)
    assert learn(page, "start").json()["error"] == "it is learning already"
    assert "no corrections meanwhile" in edit(page, kind="confirm", images=[1]).json()["error"]
    assert len(read_edits(edits_path(run))) == 1
    assert learn(page, "stop").json()["is"] == "failed"
    assert edit(page, kind="confirm", images=[1]).status_code == 200


MAKE_RUN = """
import pathlib, shutil, sys
run, new = sys.argv[-3], sys.argv[-1]
shutil.copytree(run, new + ".draft")
config = pathlib.Path(new + ".draft/config.toml")
lines = [line for line in config.read_text().splitlines() if not line.startswith("refit")]
config.write_text("\\n".join([*lines, f'refit = "{run}"']))
open(new + ".draft/edits.jsonl", "w").close()
shutil.move(new + ".draft", new)
"""


def test_the_new_result_is_opened_and_corrected_by_the_same_page(page, run, refit_command):
    refit_command(MAKE_RUN)
    (run.parent / "run-2").mkdir()  # a name that is taken
    (run.parent / "run-2/config.toml").write_text("not a setting")
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    done = wait_for(page, "done")
    assert done["line"] == "run-3"
    assert done["command"].endswith("run-3")
    assert learn(page, "open").json()["is"] == "idle"
    assert page.get("/state").json()["title"] == "run-3"
    edit(page, kind="rename", **{"class": 2, "to": "heron"})
    assert len(read_edits(edits_path(run))) == 1
    assert [e["kind"] for e in read_edits(edits_path(run.parent / "run-3"))] == ["rename"]
    learn(page, "start")
    assert wait_for(page, "done")["line"] == "run-4"


def test_a_server_that_comes_back_knows_the_result_of_the_one_before(page, run, refit_command):
    refit_command(MAKE_RUN)
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    wait_for(page, "done")
    again = new_client(run)
    again.headers["x-review-token"] = TOKEN
    assert again.get("/refit").json()["line"] == "run-2"


SLOW = "import sys, time; sys.stderr.write('3 of 9\\n'); sys.stderr.flush(); time.sleep(60)"


def again_at(run):
    """Another server, as after a restart."""
    client = new_client(run)
    client.headers["x-review-token"] = TOKEN
    return client


def test_a_server_started_during_a_refit_knows_of_it_and_can_stop_it(page, run, refit_command):
    refit_command(SLOW)
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    again = again_at(run)
    while again.get("/refit").json() != {"is": "running", "line": "3 of 9"}:
        time.sleep(0.05)
    assert "no corrections meanwhile" in edit(again, kind="confirm", images=[1]).json()["error"]
    assert learn(again, "start").json()["error"] == "it is learning already"
    assert learn(again, "stop").json() == {"is": "failed", "line": "stopped; nothing was written"}
    assert edit(again, kind="confirm", images=[1]).status_code == 200
    assert not list(run.parent.glob(".*.log"))


def test_a_refit_that_ended_while_no_server_ran_is_told_by_the_next(page, run, refit_command):
    refit_command("import sys; sys.exit('images changed')")
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    again = again_at(run)
    assert wait_for(again, "failed")["line"] == "images changed"
    refit_command(MAKE_RUN)
    learn(again, "start")
    assert wait_for(again_at(run), "done")["line"] == "run-2"


def test_another_process_with_the_same_id_is_never_stopped(page, run, refit_command):
    refit_command(SLOW)
    edit(page, kind="confirm", images=[0])
    learn(page, "start")
    record = json.loads((run / ".refit.json").read_text())
    (run / ".refit.json").write_text(json.dumps(record | {"process": os.getpid()}))
    answer = learn(again_at(run), "stop")
    assert answer.json()["error"] == "it was started elsewhere and cannot be stopped from here"
    learn(page, "stop")


def test_an_error_of_the_system_is_one_line_in_the_page(page, run, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device", str(run / "edits.jsonl"))

    monkeypatch.setattr(os, "fsync", full)
    answer = edit(page, kind="confirm", images=[0])
    assert answer.status_code == 507
    assert answer.json() == {"error": "not saved: edits.jsonl: No space left on device"}


def test_a_damaged_line_is_told_by_the_page_and_by_every_command(page, run, tmp_path):
    edit(page, kind="rename", **{"class": 2, "to": "heron"})
    with edits_path(run).open("ab") as file:
        file.write(b"xx\n")
    assert new_client_state(run)["skipped"] == ["line 2: not an edit"]
    words = [sys.executable, "-m", "bacon_gcd", "export", str(run), "--to", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == f"bacon: {edits_path(run)}, line 2: not an edit; left out\n"
    assert (tmp_path / "out" / "heron").is_dir()
