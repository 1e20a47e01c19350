"""Damaged bytes in everything that is read: an answer, or one line."""

import importlib.util
import random
import re
import subprocess
import sys
import warnings

import pytest

from tests.reliability.damage import damaged
from tests.reliability.readers import MAKERS, readers
from tests.soaking import SECONDS, note, rounds, seed

NESTED = {
    "empty": b"",
    "deep": b"[" * 100_000,
    "deep table": b'{"a":' * 100_000,
    "digits": b"9" * 10_000,
    "not UTF-8": b"\xff\xfe" * 20,
    "zeros": bytes(4096),
    "constant": b"NaN",
    "null": b"null",
    "list": b"[]",
    "large number": b"a.png " + b"9" * 5000 + b"\n",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return readers(tmp_path_factory.mktemp("readers"))


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_bytes_are_one_line(made, name):
    reader = made[name]
    sound = reader.file.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader.call(reader.file)
        for data in NESTED.values():
            reader.holds(data)
        for number in rounds(f"damaged {name}", short=40, share=0.10 / len(MAKERS)):
            rng = random.Random(seed(number))
            data = damaged(sound, rng)
            try:
                reader.holds(data)
            except BaseException as error:
                reader.file.write_bytes(sound)
                raise AssertionError(f"{name}: {data!r}") from error
    reader.file.write_bytes(sound)


@pytest.mark.skipif(not SECONDS, reason="only in make soak")
@pytest.mark.skipif(not importlib.util.find_spec("atheris"), reason="atheris is not installed")
@pytest.mark.parametrize("name", ["csv", "jsonl", "safetensors", "published list", "index file"])
def test_bytes_that_lead_to_new_branches_are_one_line(tmp_path, name):
    seconds = max(10, int(0.02 * SECONDS))
    words = [sys.executable, "-m", "tests.reliability.fuzz", name, str(tmp_path), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds * 3 + 120)
    assert done.returncode == 0, done.stderr[-3000:]
    tried = re.search(r"Done (\d+) runs", done.stderr)
    note(f"fuzzed {name}", int(tried[1]) if tried else 0)
