import json
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from bacon_gcd.backbone.catalogue import OFFLINE
from bacon_gcd.benchmark import demo as showcase
from bacon_gcd.benchmark.report import class_infos, estimated_counts
from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from tests.small_backbone import use_small_backbone


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    use_small_backbone(monkeypatch, OFFLINE)
    tiny = {"image_size": 64, "tuned": "block", "views": "2"}
    monkeypatch.setattr(showcase, "SMALL", tiny)
    return tmp_path


def test_the_demo_ends_with_scores_and_a_report_and_can_be_run_again(small):
    for _ in range(2):
        words = ["demo", "-o", str(small / "demo"), "--epochs", "1", "--json"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert facts["frozen"].keys() == facts["bacon"].keys() == {"all", "old", "new"}
        assert facts["ours"].keys() == facts["ours_frozen"].keys() == {"all", "old", "new"}
        page = (small / "demo/report.html").read_text()
        assert f"{facts['frozen']['all']:.1f}%" in page
        assert f"{facts['bacon']['all']:.1f}%" in page


def test_the_demo_never_clears_a_folder_that_is_not_a_demo(small):
    (small / "photos").mkdir()
    (small / "photos/holiday.jpg").write_bytes(b"precious")
    with pytest.raises(UserError, match="holds something else than a demo"):
        showcase.run_demo(small / "photos", epochs=1, seed=0)
    assert (small / "photos/holiday.jpg").read_bytes() == b"precious"


def test_classes_of_the_report_are_known_ones_by_name_and_then_new_ones():
    split = SimpleNamespace(n_known=2, n_classes=3)
    infos = class_infos(SimpleNamespace(split=split, found_names=["a", "b", "novel_000"]))
    assert [(info.name, info.known) for info in infos] == [
        *(("a", True), ("b", True)),
        ("novel_000", False),
    ]


def test_a_method_without_an_estimate_shows_none_rather_than_numbers_that_are_not():
    assert estimated_counts(SimpleNamespace(class_counts=None)) is None
    assert estimated_counts(SimpleNamespace(class_counts=torch.tensor([1.0, 2.5]))) == [1.0, 2.5]
