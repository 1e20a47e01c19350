"""One server per run, and a secret that stands on no command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")

import typer
from fastapi.testclient import TestClient

from bacon_gcd.cli.correct import review
from bacon_gcd.config import UserError
from bacon_gcd.review import one_server
from bacon_gcd.review.one_server import ServerLock, write_opener
from bacon_gcd.review.server import OpenRun, Secret, new_app
from tests.discover_samples import make_run

ADDRESS = "http://127.0.0.1:8123/"


def words(run):
    return [sys.executable, "-m", "bacon_gcd", "review", str(run), "--no-open", "--json"]


def test_a_second_server_says_where_the_first_one_listens(tmp_path):
    run = make_run(tmp_path)
    first = subprocess.Popen(words(run), stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(first.stdout.readline())["url"]
        second = subprocess.run(words(run), capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert len(second.stderr.splitlines()) == 1
        assert url.split("?")[0] in second.stderr
        assert "token" not in second.stderr
    finally:
        first.terminate()
        first.wait(20)
        first.stdout.close()
    assert not list(run.glob(".review.html"))
    ServerLock(run, ADDRESS).release()  # it is free again


def test_a_killed_server_does_not_keep_the_run(tmp_path):
    run = make_run(tmp_path)
    first = subprocess.Popen(words(run), stdout=subprocess.PIPE, text=True)
    first.stdout.readline()
    first.kill()
    first.wait(20)
    first.stdout.close()
    ServerLock(run, ADDRESS).release()


def test_a_server_that_opens_a_newer_result_leaves_the_older_one(tmp_path):
    old, new = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    opened = OpenRun(old, address=ADDRESS)
    with pytest.raises(UserError, match=f"already, at {ADDRESS}"):
        OpenRun(old, address="http://127.0.0.1:9/")
    opened.open(new)
    OpenRun(old, address=ADDRESS).close()
    with pytest.raises(UserError, match="already"):
        OpenRun(new, address=ADDRESS)
    opened.close()


def test_a_run_that_cannot_be_written_to_can_still_be_looked_at(tmp_path, monkeypatch):
    run = make_run(tmp_path)

    def refuse(self, *args, **kwargs):
        raise OSError(30, "Read-only file system", str(run / ".edits.lock"))

    monkeypatch.setattr(one_server.FileLock, "acquire", refuse)
    opened = OpenRun(run, address=ADDRESS)
    client = TestClient(new_app(opened, Secret("t"), port=8123), base_url=ADDRESS)
    client.headers["x-review-token"] = "t"
    assert client.get("/state").status_code == 200
    answer = client.post("/edit", json={"kind": "confirm", "images": [0]})
    assert answer.status_code == 507
    assert answer.json()["error"] == "not saved: .edits.lock: Read-only file system"
    assert client.get("/state").json()["undo"] is None
    opened.close()


def test_the_opener_is_for_its_owner_only_and_its_code_works_once(tmp_path):
    run = make_run(tmp_path)
    secret = Secret()
    path = write_opener(run, f"{ADDRESS}?code={secret.code}")
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret.code in path.read_text()
    assert secret.token not in path.read_text()
    client = TestClient(new_app(OpenRun(run), secret, port=8123), base_url=ADDRESS)
    code = secret.code
    answer = client.get("/", params={"code": code}, follow_redirects=False)
    assert answer.status_code == 200  # a page that goes on by itself: a redirect loses the cookie
    assert 'content="0;url=/"' in answer.text
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert client.get("/state").status_code == 200
    other = TestClient(new_app(OpenRun(run), secret, port=8123), base_url=ADDRESS)
    assert other.get("/", params={"code": code}).status_code == 403
    assert write_opener(tmp_path / "nowhere", ADDRESS) is None


def test_the_browser_is_started_without_the_secret(tmp_path, monkeypatch):
    launched = []
    monkeypatch.setattr(typer, "launch", launched.append)

    def serve(run, *, port, started):
        started(f"{ADDRESS}?token=secret", Path(run) / ".review.html")
        started(f"{ADDRESS}?token=secret", None)

    monkeypatch.setattr("bacon_gcd.review.server.serve", serve)
    review(tmp_path, port=0, no_open=False, json=True)
    assert launched == [str(tmp_path / ".review.html")]
