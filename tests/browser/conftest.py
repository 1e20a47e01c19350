"""A real Chromium, where there is one; otherwise these tests say that they were skipped."""

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--no-first-run"),
)


def chromium_path() -> str | None:
    named = os.environ.get("BACON_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    if path is None:
        pytest.skip("no chromium found: install it or set BACON_CHROMIUM")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


def until(page, expression: str, *, seconds: float = 30) -> None:
    """Wait until the expression is true. wait_for_function needs eval, which the pages forbid."""
    for _ in range(int(seconds * 20)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"still not true: {expression}")


class Watched:
    """A page that remembers what it complained about and what it asked for."""

    def __init__(self, browser, **options):
        self.page = browser.new_context(**options).new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on(
            "console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text)
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path):
        self.page.goto(path.as_uri())
        until(
            self.page,
            "document.documentElement.dataset.ready"
            " && (document.querySelector('#plot')?.dataset.points ?? true)",
        )
        return self.page

    @property
    def outside(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture
def watch(browser):
    opened: list[Watched] = []

    def new(**options) -> Watched:
        opened.append(Watched(browser, **options))
        return opened[-1]

    yield new
    for watched in opened:
        watched.page.context.close()
