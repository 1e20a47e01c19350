"""The review page in a real browser: a person corrects a run, the server dies, nothing is lost."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")

from bacon_gcd import discover
from bacon_gcd.data import demo
from bacon_gcd.discovery.edits import edits_path, read_edits
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from tests.discover_samples import make_run, predictions

HOSTILE = "<img src=x onerror='window.hacked=1'>\u202e\"&amp;"


class Server:
    """`bacon review` in its own process."""

    def __init__(self, run):
        words = [sys.executable, "-m", "bacon_gcd", "review", str(run), "--no-open", "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture
def serve():
    servers = []

    def new(run):
        servers.append(Server(run))
        return servers[-1]

    yield new
    for server in servers:
        if server.process.poll() is None:
            server.kill()


def visit(watched, server):
    watched.page.goto(server.url)
    watched.page.wait_for_selector("html[data-ready]")
    watched.page.wait_for_selector("#grid .card[title]:not([title=''])")
    return watched.page


def class_names(page):
    return page.locator("#classes button:not(.list) .name").all_inner_texts()


def open_class(page, name):
    page.locator("#classes button", has=page.get_by_text(name, exact=True)).click()
    page.locator("#view-name", has_text=name).wait_for()


def test_a_person_renames_merges_moves_loses_the_server_comes_back_and_exports(
    watch, serve, tmp_path
):
    run = make_run(tmp_path)
    server = serve(run)
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, server)
    assert "token" not in page.url

    open_class(page, "novel_000")
    page.click("#rename")
    page.fill("#ask-text", "heron")
    page.keyboard.press("Enter")
    page.locator("#view-name", has_text="heron").wait_for()

    open_class(page, "novel_001")
    page.keyboard.press("g")
    page.fill("#ask-text", "dog")
    page.keyboard.press("Enter")
    page.locator("#view-name", has_text="dog").wait_for()
    assert class_names(page) == ["cat", "dog", "heron"]

    open_class(page, "cat")
    page.locator("#grid .card").nth(0).click()
    page.locator("#grid .card").nth(1).click()
    assert page.inner_text("#chosen") == "2 selected"
    page.click("#move")
    page.locator("#ask-list button", has_text="heron").click()
    page.wait_for_selector("#undo:has-text('move 2 to heron')")
    assert page.locator("#grid .card").count() == 2
    assert watched.complaints == []

    server.kill()
    page.locator("#grid .card").nth(0).focus()
    page.keyboard.press("w")
    page.wait_for_selector("#note:has-text('every edit up to here is saved')")

    again = watch(viewport={"width": 390, "height": 844})
    page = visit(again, serve(run))
    assert class_names(page) == ["cat", "dog", "heron"]
    open_class(page, "heron")
    assert page.locator("#grid .card").count() == 6
    assert again.complaints == []

    to = tmp_path / "sorted"
    words = [sys.executable, "-m", "bacon_gcd", "export", str(run), "--to", str(to), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["folders"] == {"cat": 2, "dog": 8, "heron": 6}


def demo_run(folder):
    """Real images of four classes, one of them known, sorted by planted vectors."""
    table = demo.load()
    vectors = {}
    for label in range(4):
        for number, row in enumerate(np.flatnonzero(table.labels == label)[:12].tolist()):
            home = "airplane" if label == 0 and number < 5 else "_unlabeled"
            name = f"{home}/{table.class_names[label]}-{number:02d}.png"
            (folder / "photos" / home).mkdir(parents=True, exist_ok=True)
            table.image(row).save(folder / "photos" / name)
            spread = np.random.default_rng(row).normal(0, 0.05, 8)
            vectors[name] = np.eye(4, 8)[label] + spread
    np.save(folder / "vectors.npy", np.array([vectors[name] for name in sorted(vectors)]))
    ready = {"features": folder / "vectors.npy", "effort": "quick", "classes": 4}
    return discover(folder / "photos", folder / "run", **ready).folder


def test_a_person_corrects_loses_the_server_lets_it_learn_and_exports(watch, serve, tmp_path):
    run = demo_run(tmp_path)
    rows = DiscoverRun.load(run).rows
    name_of = {row.file_name.split("/")[1].split("-")[0]: row.class_name for row in rows}
    server = serve(run)
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, server)
    page.keyboard.press("l")  # nothing was corrected yet
    page.wait_for_selector("#note:has-text('no correction to learn from')")
    watched.complaints.clear()  # the browser notes the refusal itself

    open_class(page, name_of["bird"])
    page.click("#rename")
    page.fill("#ask-text", "heron")
    page.keyboard.press("Enter")
    page.locator("#view-name", has_text="heron").wait_for()
    open_class(page, name_of["cat"])
    page.keyboard.press("g")
    page.fill("#ask-text", "airplane")
    page.keyboard.press("Enter")
    page.locator("#view-name", has_text="airplane").wait_for()
    open_class(page, name_of["automobile"])
    moved = [page.locator("#grid .card").nth(i).get_attribute("title") for i in range(2)]
    for i in range(2):
        page.locator("#grid .card").nth(i).click()
    page.click("#move")
    page.locator("#ask-list button", has_text="heron").click()
    page.wait_for_selector("#undo:has-text('move 2 to heron')")

    server.kill()
    page = visit(watched, serve(run))
    expected = ["airplane", "heron", name_of["automobile"]]
    assert sorted(class_names(page)) == sorted(expected)
    page.click("#learn")
    page.wait_for_selector("#learning.running")
    page.wait_for_selector("#learning-open:visible", timeout=120_000)
    assert "run-2" in page.inner_text("#learning")
    page.click("#learning-open")
    page.wait_for_selector("#title:has-text('run-2')")
    assert sorted(class_names(page)) == sorted(expected)
    open_class(page, "heron")
    assert page.locator("#grid .mark.confirmed").count() == 2
    assert page.is_hidden("#learning")
    assert watched.complaints == []

    to = tmp_path / "sorted"
    words = ["export", str(tmp_path / "run-2"), "--to", str(to), "--json"]
    subprocess.run([sys.executable, "-m", "bacon_gcd", *words], capture_output=True, check=True)
    folders = {each: len(os.listdir(to / each)) for each in expected}
    assert folders == {"airplane": 24, "heron": 14, name_of["automobile"]: 10}
    assert {os.path.basename(name) for name in moved} <= set(os.listdir(to / "heron"))


def test_the_keyboard_alone_confirms_moves_marks_and_undoes(watch, serve, tmp_path):
    run = make_run(tmp_path)
    page = visit(watch(), serve(run))
    page.keyboard.press("ArrowRight")
    first = page.get_attribute(":focus", "title")
    page.keyboard.press("c")
    page.wait_for_selector("#undo:has-text('confirm 1')")
    second = page.get_attribute(":focus", "title")
    assert second != first
    page.keyboard.press("w")
    page.wait_for_selector("#undo:has-text('wrong 1')")
    page.keyboard.press("u")
    page.wait_for_selector("#undo:has-text('confirm 1')")
    page.keyboard.press("m")
    page.keyboard.press("Enter")  # nothing was typed: no class is picked by chance
    page.keyboard.type("owl")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:has-text('move 1 to owl')")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.inner_text("#view-name").startswith("cat")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert page.inner_text("#chosen") == "1 selected"
    page.keyboard.press("Enter")
    page.wait_for_selector("#large-image")
    kinds = [each["kind"] for each in read_edits(edits_path(run))]
    assert kinds == ["confirm", "wrong", "undo", "move"]


def test_a_class_is_split_and_the_most_uncertain_image_comes_first(watch, serve, tmp_path):
    page = visit(watch(), serve(make_run(tmp_path)))
    sure = [int(text.strip("%")) for text in page.locator("#grid .sure").all_inner_texts()]
    assert sure == sorted(sure)
    assert len(sure) == 12  # the four labeled ones are certain
    open_class(page, "novel_000")
    page.click("#split")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:has-text('split novel_000')", timeout=60_000)
    assert class_names(page)[-1] == "novel_004"
    assert page.locator("#grid .card").count() == 2


def test_hostile_names_are_text_and_the_page_asks_only_its_own_server(watch, serve, tmp_path):
    classes = [FoundClass(0, HOSTILE, True), FoundClass(1, "</script>", False)]
    run = make_run(tmp_path, predictions(classes, 2), classes)
    watched = watch(viewport={"width": 390, "height": 844})
    server = serve(run)
    page = visit(watched, server)
    assert class_names(page)[0].startswith("<img src=x onerror")
    open_class(page, "</script>")
    page.keyboard.press("a")
    page.keyboard.press("m")
    page.keyboard.type(HOSTILE[:10])
    assert "\\u202e" in page.inner_text("#ask-list")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:not([disabled])")
    assert page.evaluate("window.hacked") is None
    assert watched.complaints == []
    base = server.url.split("/?")[0]
    assert all(re.match(rf"{base}/|data:", url) for url in watched.requests)


@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_the_page_fits_the_screen_in_light_and_dark(watch, serve, tmp_path, width):
    watched = watch(viewport={"width": width, "height": 844})
    page = visit(watched, serve(make_run(tmp_path)))
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-theme={scheme}]")
        assert page.evaluate("document.documentElement.scrollWidth") == width
    bar = page.locator("#bar").bounding_box()
    assert bar["x"] >= 0
    assert bar["x"] + bar["width"] <= width
    assert watched.complaints == []
