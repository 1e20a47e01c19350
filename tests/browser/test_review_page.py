"""The review page in a real browser: a person corrects a run, the server dies, nothing is lost."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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


def test_keys_act_on_the_first_image_when_the_page_or_a_list_opens(watch, serve, tmp_path):
    run = make_run(tmp_path)
    page = visit(watch(), serve(run))
    assert page.inner_text("#chosen") == "framed image"
    first = page.locator("#grid .card").first.get_attribute("data-image")
    assert page.get_attribute(":focus", "data-image") == first
    page.keyboard.press("c")
    page.wait_for_selector("#undo:has-text('confirm 1')")
    page.keyboard.press("j")  # the first class
    page.wait_for_selector("#view-name:has-text('cat')")
    page.keyboard.press("w")
    page.wait_for_selector("#undo:has-text('wrong 1')")
    confirmed, wrong = read_edits(edits_path(run))
    assert (confirmed["kind"], wrong["kind"]) == ("confirm", "wrong")
    assert confirmed["files"] == [DiscoverRun.load(run).rows[int(first)].file_name]


def test_names_are_broken_after_underscores_and_are_the_same_text(watch, serve, tmp_path):
    bird = "Whip_poor_Will_of_the_Far_North"
    classes = [FoundClass(0, bird, True), FoundClass(1, "__<b>_x", True)]
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, serve(make_run(tmp_path, predictions(classes), classes)))
    lines = """(element) => {
      const range = document.createRange(), lines = new Map();
      for (const node of element.childNodes) {
        if (node.nodeType !== Node.TEXT_NODE) continue;
        for (let at = 0; at < node.length; at++) {
          range.setStart(node, at);
          range.setEnd(node, at + 1);
          const top = Math.round(range.getBoundingClientRect().top);
          lines.set(top, (lines.get(top) ?? "") + node.data[at]);
        }
      }
      return [...lines.values()];
    }"""
    open_class(page, bird)
    caption = page.locator("#grid .card .name").first
    for each in (caption, page.locator("#classes .name", has_text=bird)):
        each.evaluate("(element) => { element.style.width = '6rem'; }")
        broken = each.evaluate(lines)
        assert len(broken) > 1
        assert all(line.endswith("_") for line in broken[:-1])
        assert each.evaluate("each => each.textContent") == bird
        assert each.inner_text() == bird
    assert "__<b>_x" in class_names(page)
    assert watched.complaints == []


def test_the_large_view_names_the_second_choice_where_it_is_known(watch, serve, tmp_path):
    run = make_run(tmp_path)
    table = pq.read_table(run / "predictions.parquet")
    second = ["dog" if name == "cat" else "" for name in table["class"].to_pylist()]
    table = table.append_column("second_class", pa.array(second))
    table = table.append_column("second_confidence", pa.array([0.214] * len(second)))
    pq.write_table(table, run / "predictions.parquet")
    watched = watch()
    page = visit(watched, serve(run))
    open_class(page, "cat")
    page.locator("#grid .card").first.dblclick()
    page.wait_for_selector("#large-facts:has-text('second choice dog (21%)')")
    page.keyboard.press("Escape")
    open_class(page, "novel_000")
    page.locator("#grid .card").first.dblclick()
    page.wait_for_selector("#large-name:has-text('in/2_')")
    assert "second" not in page.inner_text("#large-facts")
    assert watched.complaints == []


def test_a_class_is_split_and_the_most_uncertain_image_comes_first(watch, serve, tmp_path):
    page = visit(watch(), serve(make_run(tmp_path)))
    sure = [int(text.strip("%")) for text in page.locator("#grid .sure").all_inner_texts()]
    assert sure == sorted(sure)
    assert len(sure) == 12  # the four labeled ones are certain
    open_class(page, "novel_000")
    page.click("#split")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:has-text('split novel_000')", timeout=60_000)
    assert class_names(page)[-1] == "novel_002"
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


def slow_edits(page, seconds):
    """Every edit takes this long on its way."""

    def hold(route):
        page.wait_for_timeout(1000 * seconds)
        route.continue_()

    page.route("**/edit", hold)


def test_no_key_is_lost_while_the_server_is_busy(watch, serve, tmp_path):
    run = make_run(tmp_path)
    page = visit(watch(), serve(run))
    page.keyboard.press("ArrowRight")
    slow_edits(page, 0.3)
    keys = ["c", "c", "w", "m", *"owl", "Enter", "c", "u", "m", *"d", "Backspace", *"cat", "Enter"]
    page.evaluate(
        """(keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
             new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })))""",
        keys,
    )  # all of them before the first answer
    page.wait_for_selector("#undo:has-text('move 1 to cat')", timeout=20_000)
    stored = read_edits(edits_path(run))
    said = [(each["kind"], each.get("to", each.get("of"))) for each in stored]
    assert said == [
        *(("confirm", None),) * 2,
        ("wrong", None),
        ("move", "owl"),
        ("confirm", None),
        ("undo", 5),
        ("move", "cat"),
    ]
    files = [each["files"][0] for each in stored if "files" in each and each["n"] != 5]
    assert len(set(files)) == len(files)  # each key acted on the next image


def test_the_large_view_shows_the_image_its_neighbors_examples_and_acts(watch, serve, tmp_path):
    run = make_run(tmp_path)
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, serve(run))
    open_class(page, "cat")
    page.locator("#grid .card").nth(0).dblclick()
    page.wait_for_selector("#large[open]")
    page.wait_for_selector("#large-name:has-text('in/0_3.png')")
    assert page.inner_text("#large-class").startswith("cat")
    assert page.locator("#large-neighbors img").count() == 1
    assert page.inner_text("#large-examples h4") == "Labeled or confirmed images of cat"
    assert page.locator("#large-examples img").count() == 2
    page.keyboard.press("f")
    page.wait_for_selector("#large-pane.full")
    original = page.request.get(page.locator("#large-original").evaluate("each => each.href"))
    assert original.headers["content-type"] == "image/jpeg"
    page.keyboard.press("c")
    page.wait_for_selector("#large-name:has-text('in/0_2.png')")  # on to the next one
    page.click("#large-actions [data-do=move]")
    page.keyboard.type("dog")
    page.keyboard.press("Enter")
    page.wait_for_selector("#large-name:has-text('in/0_1.png')")
    page.keyboard.press("ArrowLeft")
    page.locator("#large-neighbors button").first.click()
    page.keyboard.press("Escape")
    page.wait_for_selector("#large:not([open])", state="attached")
    assert [each["kind"] for each in read_edits(edits_path(run))] == ["confirm", "move"]
    assert watched.complaints == []


def test_images_are_selected_by_dragging_and_tagged_at_once(watch, serve, tmp_path):
    run = make_run(tmp_path)
    page = visit(watch(viewport={"width": 1280, "height": 800}), serve(run))
    first, third = (page.locator("#grid .card").nth(i).bounding_box() for i in (0, 2))
    page.mouse.move(first["x"] - 8, first["y"] + 20)
    page.mouse.down()
    page.mouse.move(third["x"] + 10, third["y"] + 40, steps=5)
    page.mouse.up()
    assert page.inner_text("#chosen") == "3 selected"
    page.mouse.move(third["x"] + 20, third["y"] + 20)
    page.keyboard.press("m")
    page.keyboard.type("owl")
    page.keyboard.press("Enter")
    page.wait_for_selector("#undo:has-text('move 3 to owl')")
    assert len(read_edits(edits_path(run))[0]["files"]) == 3


def test_a_lasso_on_the_map_selects_what_lies_inside(watch, serve, tmp_path):
    run = make_run(tmp_path)
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, serve(run))
    page.keyboard.press("p")
    page.wait_for_selector("#map:visible")
    page.wait_for_load_state("networkidle")
    box = page.locator("#map-canvas").bounding_box()
    left, bottom = box["x"], box["y"] + box["height"]
    # Each class is a row of the map; the lowest is `cat`.
    corners = [(2, -2), (box["width"] - 2, -2), (box["width"] - 2, -60), (2, -60)]
    page.mouse.move(left + 2, bottom - 60)
    page.mouse.down()
    for x, y in corners:
        page.mouse.move(left + x, bottom + y, steps=3)
    page.mouse.up()
    page.wait_for_selector("#chosen:has-text('4 selected')")
    assert page.locator("#grid .card").count() == 4
    page.keyboard.press("c")
    page.wait_for_selector("#undo:has-text('confirm 4')")
    assert read_edits(edits_path(run))[0]["files"] == [f"in/0_{k}.png" for k in range(4)]
    assert watched.complaints == []


def test_the_page_the_browser_is_started_with_leads_to_the_review_once(watch, serve, tmp_path):
    run = make_run(tmp_path)
    serve(run)
    page = watch().page
    page.goto((run / ".review.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.url.endswith("/")
    assert class_names(page) == ["cat", "dog", "novel_000", "novel_001"]
    other = watch().page
    other.goto((run / ".review.html").as_uri())
    other.wait_for_selector("text=open the address that")


def test_long_names_are_shown_whole_and_one_of_many_classes_is_found(watch, serve, tmp_path):
    names = [f"{'a name of quite some length ' * 3}{i}" for i in range(60)]
    classes = [FoundClass(i, name, i < 30) for i, name in enumerate(names)]
    run = make_run(tmp_path, predictions(classes, 2), classes)
    watched = watch(viewport={"width": 1280, "height": 800})
    page = visit(watched, serve(run))
    cut = """() => [...document.querySelectorAll("#classes .name, .card .name, .card .mark, #undo")]
      .filter((each) => getComputedStyle(each).textOverflow === "ellipsis"
        || each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0).length"""
    assert page.evaluate(cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    page.fill("#find-class", "length 47")
    assert class_names(page) == [names[47]]
    open_class(page, names[47])
    assert page.locator("#grid .card").count() == 2
    assert watched.complaints == []


def test_lines_that_were_left_out_are_told(watch, serve, tmp_path):
    run = make_run(tmp_path)
    edits_path(run).write_text('{"kind": "confirm", "files": ["<b>gone.png"]}\n')
    page = visit(watch(), serve(run))
    assert "line 1: file '<b>gone.png' is not one of the 16" in page.inner_text("#skipped")


def test_rows_appear_as_one_scrolls_and_a_click_redraws_only_what_changed(watch, serve, tmp_path):
    run = make_run(tmp_path, predictions(per_class=130), images=False)
    page = visit(watch(viewport={"width": 1280, "height": 800}), serve(run))
    assert page.locator("#grid .card").count() == 200
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function("document.querySelectorAll('#grid .card').length > 200")
    page.evaluate(
        """() => { window.touched = new Set();
        const note = ({ target }) => {
          const card = target.closest?.(".card");
          if (card) window.touched.add(card.dataset.image);
        };
        const how = { subtree: true, childList: true, characterData: true };
        new MutationObserver((seen) => seen.forEach(note))
          .observe(document.querySelector("#grid"), how); }"""
    )
    open_class(page, "dog")
    page.locator("#grid .card").nth(3).focus()
    page.evaluate("window.touched.clear()")
    answers = []
    page.on("response", lambda answer: "/edit" in answer.url and answers.append(answer))
    page.keyboard.press("c")
    page.wait_for_selector("#undo:has-text('confirm 1')")
    assert page.evaluate("window.touched.size") <= 1
    assert len(answers[0].body()) < 300
