"""The report in a real browser: quiet, closed to the network, usable by hand, key and thumb."""

import pytest

from bacon_gcd.report.page import write_report

from ..report_samples import HOSTILE, hostile, sample, two_novel

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
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
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


def test_a_thumbnail_opens_and_the_arrow_keys_walk_on(watch, report):
    page = watch().open(report)
    thumbnail = page.locator("#class-2 [data-image]").first
    thumbnail.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#detail h3") == "folder/image_10.png"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#detail h3") == "folder/image_9.png"
    assert "newly found class" in page.inner_text("#detail dl")
    assert page.locator("#detail .near button").count() == 2
    page.keyboard.press("Escape")
    assert not page.evaluate("document.querySelector('#detail').open")
    assert thumbnail.evaluate("element => element === document.activeElement")


def test_the_map_can_be_walked_and_opened_with_keys_alone(watch, report):
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


def test_pointing_at_the_map_shows_the_image(watch, report):
    page = watch(viewport={"width": 1024, "height": 768}).open(report)
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.locator("#plot path.point").nth(3).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 30, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.wait_for_selector("#card:not(.hidden-card)")
    assert "image_3.png" in page.inner_text("#card")
    assert "sheet-0" in page.get_attribute("#card .thumb", "class")


def test_coloring_and_class_choice_change_the_map(watch, report):
    page = watch().open(report)
    page.check("#coloring input[value=kind]", force=True)
    assert "newly found" in page.inner_text("#legend")
    page.check("#coloring input[value=confidence]", force=True)
    assert "unsure" in page.inner_text("#legend")
    page.select_option("#only", label="dog")
    page.wait_for_function("document.querySelectorAll('#plot path.point').length === 3")


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
    page.wait_for_function(
        "/copied|selected/.test(document.querySelector('[data-copy]').textContent)"
    )
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
