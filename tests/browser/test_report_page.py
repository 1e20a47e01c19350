"""The report in a real browser: quiet, closed to the network, usable by hand, key and thumb."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bacon_gcd.report import choices, columns
from bacon_gcd.report.contents import ClassInfo, ReportData, Rows
from bacon_gcd.report.page import write_report

from ..report_samples import HOSTILE, hostile, sample, two_novel
from .conftest import until

SIZES = ((390, 844), (1024, 768), (1600, 1000))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(sample(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    return write_report(hostile(), tmp_path_factory.mktemp("hostile") / "report.html")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_page_is_quiet_asks_for_nothing_and_fits_the_screen(watch, report, size):
    width, height = size
    watched = watch(viewport={"width": width, "height": height})
    page = watched.open(report)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        until(page, f"document.documentElement.dataset.theme === '{scheme}'")
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert watched.complaints == []
    assert watched.outside == []


def test_the_theme_button_overrules_the_system(watch, report):
    page = watch(color_scheme="light").open(report)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.emulate_media(color_scheme="dark")
    page.emulate_media(color_scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_hostile_names_are_shown_as_text_and_run_nothing(watch, hostile_report):
    watched = watch(viewport={"width": 390, "height": 844})
    page = watched.open(hostile_report)
    page.locator("#classes [data-image]").first.click()
    page.keyboard.press("ArrowRight")
    assert HOSTILE[0] in page.locator("#detail .near figcaption").all_inner_texts()
    page.keyboard.press("Escape")
    page.focus("#plot")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("window.hacked") is None
    assert watched.complaints == []
    assert watched.outside == []
    assert HOSTILE[0] in page.inner_text("#classes")
    assert "{{ 7 * 7 }}" in page.inner_text("#quarantine")
    assert "photo\\u202egpj.exe" in page.inner_text("#quarantine")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_thumbnail_opens_and_the_arrow_keys_go_on(watch, report):
    page = watch().open(report)
    thumbnail = page.locator("#class-2 [data-image]").first
    thumbnail.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#detail h3") == "folder/image_10.png"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#detail h3") == "folder/image_9.png"
    assert "newly found class" in page.inner_text("#detail dl")
    assert page.locator("#detail .near button").count() == 2
    near = page.locator("#detail .near figure")
    assert near.locator("figcaption").all_inner_texts() == near.locator("button").evaluate_all(
        "found => found.map((each) => each.getAttribute('aria-label').split(', ').pop())"
    )
    page.keyboard.press("Escape")
    assert not page.evaluate("document.querySelector('#detail').open")
    assert thumbnail.evaluate("element => element === document.activeElement")


def test_the_map_can_be_used_with_keys_alone(watch, report):
    page = watch().open(report)
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    first = page.text_content("#spoken")
    page.keyboard.press("ArrowLeft")
    assert first
    assert page.text_content("#spoken") != first
    name = page.text_content("#spoken").split(",")[0]
    page.keyboard.press("Enter")
    assert page.inner_text("#detail h3") == name


def on_the_map(page, n):
    """Pixels of image n on the whole map, which shows -40 to 1040 of both axes."""
    box = page.locator("#plot canvas").bounding_box()
    x, y = page.evaluate(
        "n => { const d = JSON.parse(document.querySelector('#payload').textContent);"
        " return [d.x[n], d.y[n]]; }",
        n,
    )
    across, up = (x + 40) / 1080, (y + 40) / 1080
    return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]


def map_facts(page):
    """What the map last drew."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    facts = page.evaluate("({...document.querySelector('#plot').dataset})")
    return {name: float(value) for name, value in facts.items()}


def test_pointing_at_the_map_shows_the_image_and_a_click_opens_it(watch, report):
    page = watch(viewport={"width": 1024, "height": 768}).open(report)
    page.locator("#plot").scroll_into_view_if_needed()
    x, y = on_the_map(page, 3)
    page.mouse.move(x - 30, y)
    page.mouse.move(x, y, steps=4)
    page.wait_for_selector("#card:not(.hidden-card)")
    assert "image_3.png" in page.inner_text("#card")
    assert "sheet-0" in page.get_attribute("#card .thumb", "class")
    page.mouse.click(x, y)
    assert page.inner_text("#detail h3") == "folder/image_3.png"


def test_coloring_changes_the_legend(watch, report):
    page = watch().open(report)
    assert page.locator("#legend li").all_inner_texts()[0].split() == ["●", "cat", "4"]
    page.check("#coloring input[value=kind]", force=True)
    assert "newly found" in page.inner_text("#legend")
    page.check("#coloring input[value=confidence]", force=True)
    assert "unsure" in page.inner_text("#legend")


def test_the_legend_filters_the_map_by_mouse_and_key(watch, report):
    page = watch().open(report)
    assert map_facts(page)["points"] == 11
    page.click("#legend li:has-text('dog') button")
    assert map_facts(page)["points"] == 3
    page.locator("#legend li:has-text('cat') button").focus()
    page.keyboard.press("Enter")
    assert map_facts(page)["points"] == 7
    assert page.locator("#legend [aria-pressed=true]").count() == 2
    page.click("#legend-all")
    assert map_facts(page)["points"] == 11


def test_every_class_has_its_name_on_the_map(watch, report):
    page = watch(viewport={"width": 1024, "height": 768}).open(report)
    assert map_facts(page)["names"] == 3
    page.uncheck("#names")
    assert map_facts(page)["names"] == 0


def crowded(n_classes: int, per_class: int) -> ReportData:
    """Classes on a grid, each a cloud of points."""
    rng = np.random.default_rng(0)
    class_ids = np.repeat(np.arange(n_classes), per_class)
    grid = np.stack([class_ids % 8, class_ids // 8], axis=1)
    n = len(class_ids)
    xy = grid + 0.15 * rng.normal(size=(n, 2))
    rows = Rows([f"{i}.png" for i in range(n)], class_ids, np.zeros(n, bool), xy=xy)
    classes = [ClassInfo(f"class {c}", c % 2 == 0) for c in range(n_classes)]
    return ReportData("Crowded", rows, classes, lambda row: Image.new("RGB", (8, 8)))


def test_sixty_classes_are_named_filtered_and_found(watch, tmp_path):
    path = write_report(crowded(60, 30), tmp_path / "report.html")
    watched = watch(viewport={"width": 1280, "height": 900})
    page = watched.open(path)
    assert map_facts(page)["names"] >= 55
    page.fill("#legend-find", "class 42")
    assert page.locator("#legend li:visible").all_inner_texts()[0].split("\n")[1] == "class 42"
    page.click("#legend li:visible button")
    page.mouse.move(1, 1)
    assert map_facts(page) == {"points": 30, "names": 1, "thumbnails": 0, "zoom": 1}
    assert watched.complaints == []


def test_the_wheel_zooms_until_images_appear_and_the_whole_map_comes_back(watch, report):
    watched = watch(viewport={"width": 1024, "height": 768})
    page = watched.open(report)
    page.locator("#plot").scroll_into_view_if_needed()
    x, y = on_the_map(page, 3)
    page.mouse.move(x, y)
    assert map_facts(page)["thumbnails"] == 0
    for _ in range(5):
        page.mouse.wheel(0, -100)
    until(page, "document.querySelector('#plot').dataset.thumbnails > 0")
    assert map_facts(page)["zoom"] > 2
    page.mouse.move(x + 3, y + 3)
    assert "image_3.png" in page.inner_text("#card"), "what is under the pointer stays there"
    page.click("[data-zoom='0']")
    assert map_facts(page) == {"zoom": 1, "points": 11, "thumbnails": 0, "names": 3}
    assert watched.complaints == []


def test_the_wheel_scrolls_the_page_on_when_the_whole_map_is_in_view(watch, report):
    page = watch(viewport={"width": 1024, "height": 768}).open(report)
    page.locator("#plot").scroll_into_view_if_needed()
    x, y = on_the_map(page, 3)
    page.mouse.move(x, y)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    until(page, f"scrollY > {before}")
    assert map_facts(page)["zoom"] == 1


def test_dragging_moves_the_zoomed_map_and_opens_nothing(watch, report):
    page = watch(viewport={"width": 1024, "height": 768}).open(report)
    page.locator("#plot").scroll_into_view_if_needed()
    x, y = on_the_map(page, 3)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -100)
    page.mouse.down()
    page.mouse.move(x + 60, y + 20, steps=5)
    page.mouse.up()
    assert not page.evaluate("document.querySelector('#detail').open")
    page.mouse.move(x + 62, y + 21)
    assert "image_3.png" in page.inner_text("#card")


# Classes


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    """Three classes of 200 images, of which 150 have a thumbnail; the originals are on disk."""
    folder = tmp_path_factory.mktemp("full")
    data = full(folder / "my photos")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(choices.shown_rows, "__kwdefaults__", {"limit": 150})
        return write_report(data, folder / "run" / "report.html")


def full(folder: Path) -> ReportData:
    n = 600
    rng = np.random.default_rng(0)
    ids = [f"part {i % 2}/im#age_{i:03d}.png" for i in range(n)]
    for i, name in enumerate(ids):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (50, 40), (i % 256, 0, 255)).save(folder / name)
    rows = Rows(
        ids,
        np.arange(n) % 3,
        np.arange(n) < 9,
        confidence=np.linspace(0, 1, n),
        second_choice=(np.arange(n) + 1) % 3,
        nearest_known=np.zeros(n, int),
        xy=rng.normal(size=(n, 2)) + 5 * (np.arange(n) % 3)[:, None],
    )
    classes = [
        ClassInfo("wren", True, precision=0.9, recall=0.8),
        ClassInfo("robin", True, precision=0.5),
        ClassInfo("novel_000", False, purity=0.7, nearest_known="wren"),
    ]
    thumbnail = lambda row: Image.open(folder / ids[row])  # noqa: E731
    return ReportData("Full", rows, classes, thumbnail, file=lambda row: folder / ids[row])


def test_every_image_of_a_class_can_be_reached_by_pages(watch, full_report):
    watched = watch(viewport={"width": 1280, "height": 800})
    page = watched.open(full_report)
    button = page.locator("#class-2 [data-all]")
    assert button.inner_text() == "all 200 images"
    button.click()
    seen = []
    for number in range(1, 6):
        assert page.input_value("#class-2 .pages input[type=number]") == str(number)
        seen += page.eval_on_selector_all(
            "#class-2 .pages [data-image]", "all => all.map(e => e.getAttribute('aria-label'))"
        )
        if number < 5:
            page.click("#class-2 .pages [aria-label='Next page']")
    assert len(seen) == len(set(seen)) == 200
    assert page.is_disabled("#class-2 .pages [aria-label='Next page']")
    page.select_option("#class-2 .pages select", "name")
    first = page.locator("#class-2 .pages figcaption").first
    assert "im#age_002.png" in first.inner_text()
    button.click()
    assert page.locator("#class-2 .pages").is_hidden()
    assert watched.complaints == []


def test_the_original_opens_on_click_and_has_a_link(watch, full_report):
    watched = watch(viewport={"width": 1280, "height": 800})
    page = watched.open(full_report)
    page.click("#class-2 [data-all]")
    page.select_option("#class-2 .pages select", "name")
    link = page.locator("#class-2 .pages figcaption a").first
    assert link.get_attribute("href") == "./../my%20photos/part%200/im%23age_002.png"
    page.locator("#class-2 .pages [data-image]").first.click()
    page.wait_for_selector("#detail .original:not([hidden])")
    size = page.evaluate("document.querySelector('#detail .original').naturalWidth")
    assert size == 50, "the file itself, not its thumbnail"
    with page.context.expect_page() as opened:
        page.click("#detail .to-original a")
    assert opened.value.url.endswith("/my%20photos/part%200/im%23age_002.png")
    assert watched.complaints == []


def test_an_image_without_a_thumbnail_is_shown_from_disk(watch, full_report):
    page = watch(viewport={"width": 1280, "height": 800}).open(full_report)
    page.click("#class-0 [data-all]")
    until(
        page,
        "[...document.querySelectorAll('#class-0 .unsampled img')]"
        ".some(i => i.naturalWidth === 50)",
    )


def test_an_original_that_is_gone_leaves_its_thumbnail(watch, tmp_path):
    data = replace(sample(), file=lambda row: tmp_path / "photos" / f"gone_{row}.png")
    page = watch().open(write_report(data, tmp_path / "run" / "report.html"))
    page.locator("#class-0 .strips [data-image]").first.click()
    page.wait_for_timeout(200)
    assert page.locator("#detail .picture .thumb").is_visible()
    assert page.locator("#detail .original").is_hidden()


def test_where_no_link_is_possible_the_reader_says_where_the_images_are(watch, tmp_path):
    data = full(tmp_path / "my photos")
    elsewhere = Path(tmp_path.anchor) / "elsewhere"
    data = replace(data, file=lambda row: elsewhere / data.rows.ids[row])
    path = write_report(data, tmp_path / "run" / "report.html")
    assert "elsewhere" not in path.read_text()
    page = watch().open(path)
    page.fill("#originals input", f"{tmp_path}/my photos/")
    page.keyboard.press("Tab")
    page.locator("#class-2 .strips [data-image]").first.click()
    until(page, "document.querySelector('#detail .original').naturalWidth === 50")
    assert page.locator("#detail .to-original a").is_visible()


def test_facts_of_an_image_name_its_second_choice_and_nearest_known_class(watch, full_report):
    page = watch().open(full_report)
    page.locator("#class-2 .strips [data-image]").first.click()
    facts = page.inner_text("#detail dl")
    assert "second choice\nwren" in facts
    assert "nearest known class\nwren" in facts


def test_classes_are_sorted_by_doubt_until_another_order_is_chosen(watch, full_report):
    page = watch().open(full_report)

    def names():
        return page.eval_on_selector_all(
            "#class-list article", "all => all.map(e => e.dataset.name)"
        )

    assert names() == ["robin", "novel_000", "wren"]
    page.select_option("#order", "name")
    assert names() == ["novel_000", "robin", "wren"]
    page.select_option("#order", "new")
    assert names() == ["novel_000", "robin", "wren"]
    page.select_option("#order", "doubt")
    assert names() == ["robin", "novel_000", "wren"]


def test_a_compressed_payload_is_read(watch, tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "PLAIN", 100)
    watched = watch()
    page = watched.open(write_report(sample(), tmp_path / "report.html"))
    page.locator("#class-2 [data-image]").first.click()
    assert page.inner_text("#detail h3") == "folder/image_10.png"
    assert watched.complaints == []


def test_every_picture_and_button_has_a_name(watch, report):
    page = watch().open(report)
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, [role=img], select, input')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    # The picture of the detail view gets its name when it opens.
    assert [html for html in nameless if "thumb" not in html] == []
    assert len(nameless) <= 1


def test_a_thumbnail_shows_its_own_image(watch, report):
    """Colors of the sample change with the row; the middle pixel tells which one is drawn."""
    import io

    from PIL import Image

    page = watch().open(report)
    for number in (0, 10):
        shot = page.locator(f"#classes [data-image='{number}']").first.screenshot()
        image = Image.open(io.BytesIO(shot)).convert("RGB")
        middle = image.getpixel((image.width // 2, image.height // 2))
        assert middle == pytest.approx((20 * number, 255 - 20 * number, 128), abs=14)


def test_the_page_can_be_read_without_scripts(watch, report):
    watched = watch(java_script_enabled=False)
    watched.page.goto(report.as_uri())
    assert "11 images were sorted into 3 classes" in watched.page.inner_text("#summary")
    assert "The map needs JavaScript" in watched.page.inner_text("#map")


@pytest.fixture(scope="module")
def cut_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a run's folder")
    return write_report(two_novel(), folder / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_both_sliders_move_by_key_and_stay_on_the_screen(watch, cut_report, size, scheme):
    watched = watch(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = watched.open(cut_report)
    for slider, shown, keys in (
        ("#cut-number", "#cut-now", ("ArrowLeft", "ArrowRight", "ArrowRight")),
        ("#side-line", "#side-say", ("Home", "ArrowRight", "End")),
    ):
        page.focus(slider)
        said = {page.inner_text(shown)}
        for key in keys:
            page.keyboard.press(key)
            said.add(page.inner_text(shown))
        assert len(said) > 2
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert watched.complaints == []
    assert watched.outside == []


def test_the_cut_says_what_becomes_of_the_classes(watch, cut_report):
    page = watch().open(cut_report)
    run = str(cut_report.parent).replace("'", "'\\''")
    assert page.inner_text("#cut-now") == "3 classes, as it is"
    assert page.locator("#cut-changes li").count() == 0
    page.focus("#cut-number")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#cut-now") == "2 classes, 1 fewer"
    assert page.inner_text("#cut-changes") == "novel_000 (3) + novel_001 (4) → novel_001 (7)"
    command = f"bacon discover --recut '{run}' --classes 2 -o '{run}-2'"
    assert page.inner_text("#cut-command") == command
    assert page.locator("#tree path.done").count() == 3
    assert page.locator("#tree li:not(.inside)").count() == 2
    assert page.locator("#cut-sizes li").all_inner_texts() == ["novel_001 7", "cat 4"]
    page.keyboard.press("End")
    assert "cat (4) → cat (2) + a new class (2)" in page.inner_text("#cut-changes")
    assert page.locator("#tree li:not(.inside)").count() == 5
    page.locator("#cut-changes [data-image]").first.click()
    assert page.inner_text("#detail h3").startswith("folder/image_")


def test_the_line_counts_the_images_and_shows_those_that_change_sides(watch, cut_report):
    page = watch().open(cut_report)
    page.focus("#side-line")
    page.keyboard.press("Home")
    say = "8 known, 0 new: 0 images would become new, 6 known."
    assert page.inner_text("#side-say") == say
    assert page.locator("#side-near .moves").count() == 6
    page.keyboard.press("End")
    assert page.inner_text("#side-say").startswith("0 known, 8 new: 2 images would become new")
    assert "becomes new" in page.inner_text("#side-near")
    assert "--threshold 1.00 -o" in page.inner_text("#side-command")


def test_a_command_is_copied(watch, cut_report):
    watched = watch(permissions=["clipboard-read", "clipboard-write"])
    page = watched.open(cut_report)
    page.click("[data-copy='#cut-command']")
    until(page, "/copied|selected/.test(document.querySelector('[data-copy]').textContent)")
    copied = page.evaluate("getSelection().toString() || navigator.clipboard.readText()")
    assert copied == page.inner_text("#cut-command")


def test_hostile_classes_are_joined_as_text(watch, hostile_report):
    watched = watch()
    page = watched.open(hostile_report)
    page.focus("#cut-number")
    page.keyboard.press("End")
    assert HOSTILE[0] in page.inner_text("#cut-changes")
    assert HOSTILE[0] in page.inner_text("#cut-sizes")
    page.focus("#side-line")
    page.keyboard.press("End")
    assert page.evaluate("window.hacked") is None
    assert watched.complaints == []
    assert watched.outside == []
