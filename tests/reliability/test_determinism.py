"""The same images, the same bytes: other path, order of files, hash seed, number of workers."""

import os
import shutil
import subprocess
import sys

import pytest

import bacon_gcd
from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone
from tests.soaking import rounds

COMPARED = ("predictions.csv", "predictions.parquet", "classes.json", "features.npy", "tree.json")
COMPARED += ("probabilities.npy", "duplicates.json", "quarantine.csv", "model/model.safetensors")
ELSEWHERE = """
import sys, pytest
import bacon_gcd
from tests.small_backbone import use_small_backbone
use_small_backbone(pytest.MonkeyPatch())
bacon_gcd.discover("pictures/of all", "deeper/run", seed=3, workers=int(sys.argv[1]))
"""


def results(run):
    return {name: (run / name).read_bytes() for name in COMPARED if (run / name).exists()}


def in_another_order(source, target):
    """A copy whose files were made in the opposite order, so that folders list them otherwise."""
    for path in sorted(source.rglob("*.png"), reverse=True):
        (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / path.relative_to(source))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", str(folder / "cache"))
        use_small_backbone(patch)
        plant(folder / "photos")
        bacon_gcd.discover(folder / "photos", folder / "run", seed=3, workers=2)
    return folder


def test_another_process_elsewhere_gives_the_same_bytes(here, tmp_path):
    expected = results(here / "run")
    assert len(expected) >= 7
    in_another_order(here / "photos", tmp_path / "pictures/of all")
    for number in rounds("determinism", short=1, share=0.02):
        out = tmp_path / "deeper/run"
        shutil.rmtree(out, ignore_errors=True)
        environment = os.environ | {
            "PYTHONHASHSEED": str(1 + number),
            "BACON_CACHE": str(tmp_path / f"cache-{number}"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        words = [sys.executable, "-c", ELSEWHERE, str(number % 4)]
        subprocess.run(words, env=environment, cwd=tmp_path, check=True)
        assert results(out) == expected
