"""What the documents name exists: tests, modules, links; the diffs they show still apply."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN_BY_BENCH = {"discovery-quality.md", "rules.md"}
METAPHORS = re.compile(
    r"\b(rooms?|doors?|hearts?|walks?|claimed|judges?|vouched|homeless|twins?|roof)\b"
)


def name_of(page):
    return str(page.relative_to(ROOT))


def test_every_promise_names_tests_that_exist():
    text = (ROOT / "docs/reliability.md").read_text()
    for row in re.findall(r"^\| .* \|$", text, re.MULTILINE):
        path = None
        for named, test in re.findall(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`", row):
            path = named or path  # without a file it is in the one named before
            assert f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not link.startswith("http") and Path(link).name not in WRITTEN_BY_BENCH:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in WRITTEN_BY_BENCH], ids=name_of)
def test_documents_use_plain_words(page):
    text = re.sub(r"`[^`]*`", "", page.read_text())
    assert not METAPHORS.search(text), METAPHORS.search(text)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_diffs_of_adding_apply(tmp_path):
    blocks = re.findall(r"```diff\n(.*?)```", (ROOT / "docs/adding.md").read_text(), re.DOTALL)
    changed = {
        name for block in blocks for name in re.findall(r"^--- a/(.+)$", block, re.MULTILINE)
    }
    for name in changed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for block in blocks:
        subprocess.run(
            ["git", "apply", "-C1", "-"], input=block, text=True, cwd=tmp_path, check=True
        )
    assert '"entropy": Entry(' in (tmp_path / "bacon_gcd/methods/__init__.py").read_text()
