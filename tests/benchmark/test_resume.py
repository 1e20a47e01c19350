"""What a resumed run refuses, and that its log says nothing twice."""

import json
import shutil

import pytest

from bacon_gcd.config import UserError
from bacon_gcd.system.locks import locked
from tests.planted_photos import bacon, plant
from tests.small_backbone import use_small_backbone

WORDS = ["--method", "gcd", "--views", "2", "--epochs", "2", "--batch-size", "8"]
WORDS += ["--image-size", "64", "--save-seconds", "0"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A finished run with a checkpoint after every step."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", str(folder / "cache"))
        use_small_backbone(patch)
        plant(folder / "photos", known=("red", "green", "blue", "gray"), novel=(), n=8, labeled=8)
        done = bacon(
            "train", "--dataset", f"folder:{folder / 'photos'}", *WORDS, "-o", folder / "a"
        )
        assert done.exit_code == 0, (done.output, done.exception)
        yield folder


@pytest.fixture
def run(work, tmp_path):
    return shutil.copytree(work / "a", tmp_path / "run")


def lines(run):
    """The log without times."""
    said = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in said]


@pytest.mark.parametrize(
    ("line", "other"),
    [("seed = 0", "seed = 1"), ("epochs = 2", "epochs = 9"), ('views = "2"', 'views = "3"')],
)
def test_an_edited_config_is_refused_by_name(run, line, other):
    config = run / "config.toml"
    config.write_text(config.read_text().replace(line, other, 1))
    failed = bacon("train", "--resume", run)
    assert isinstance(failed.exception, UserError)
    assert "cannot resume, " in str(failed.exception)
    name = line.split()[0]
    assert f"{name}: {line.split()[-1].strip(chr(34))} -> " in str(failed.exception)


def test_the_log_after_a_kill_before_the_first_checkpoint_is_not_doubled(run):
    whole = lines(run)
    shutil.rmtree(run / "checkpoints")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"kind": "ep')
    done = bacon("train", "--resume", run)
    assert done.exit_code == 0, (done.output, done.exception)
    assert lines(run) == whole


def test_the_log_after_a_kill_between_checkpoints_is_the_same(run):
    whole = lines(run)
    newest = max((run / "checkpoints").iterdir())
    shutil.rmtree(newest)  # the one before it is in the middle of the last epoch
    with (run / "log.jsonl").open("a") as log:
        log.write('{"kind": "epoch", "epoch": 2')
    done = bacon("train", "--resume", run)
    assert done.exit_code == 0, (done.output, done.exception)
    assert lines(run) == whole


def test_damaged_checkpoints_do_not_start_the_run_anew(run):
    for manifest in run.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    before = (run / "log.jsonl").read_bytes()
    failed = bacon("train", "--resume", run)
    assert "checkpoints can be used" in str(failed.exception)
    assert (run / "log.jsonl").read_bytes() == before


def test_a_live_run_is_not_resumed(run):
    with locked(run / ".lock"):
        failed = bacon("train", "--resume", run)
    assert "another process is training this run" in str(failed.exception)
    assert isinstance(failed.exception, UserError)
