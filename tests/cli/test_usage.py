import os
import subprocess
import sys

import pytest


def bacon(*words, terminal=None):
    """What a person sees who types this."""
    return subprocess.run(
        [sys.executable, "-m", "bacon_gcd", *words],
        capture_output=True,
        text=True,
        stdin=terminal or subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("discover photos -o new --threshold 3", "3 for '--threshold'"),
        ("discover photos -o new --seed many", "many for '--seed'"),
        ("discover photos --colour", "No such option: --colour"),
        ("discovr", "Did you mean 'discover'? (see "),
        ("weights get", "weights get --help)"),
        ("benchmark tabel", "No such command 'tabel'"),
    ],
)
def test_a_mistake_in_an_option_is_one_line_with_the_value_and_where_to_read(words, said):
    done = bacon(*words.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bacon: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize("words", [[], ["benchmark"]])
def test_a_command_that_was_given_nothing_shows_its_help(words):
    done = bacon(*words)
    assert done.returncode == 2
    assert "Commands:" in done.stderr


def test_help_is_no_mistake():
    done = bacon("discover", "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "--threshold" in done.stdout


def test_a_question_answered_with_no_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("BACON_CACHE", str(tmp_path))
    weights = tmp_path / "weights" / "resnet18.pypi_in1k.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"some")
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"n\n")
    done = bacon("cache", "clear", "weights", terminal=terminal)
    assert done.returncode == 1
    assert done.stderr.endswith("bacon: stopped\n")
    assert weights.exists()
