import json
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from bacon_gcd import __version__
from bacon_gcd.cli import app

runner = CliRunner()


def commands(group=None, prefix=()):
    """Every command with its words, e.g. ("weights", "get")."""
    click_app = group or typer.main.get_command(app)
    for name, command in click_app.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name), command


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda x: str(x))
def test_every_command_has_help_with_an_example_and_speaks_json(words, command):
    text = runner.invoke(app, [*words, "--help"]).stdout
    assert re.search(rf"Example: bacon {' '.join(words)}\b", text), words
    assert "--json" in text
    for option in command.params:
        if option.param_type_name == "option":
            assert option.help, f"{words}: --{option.name} says nothing"


def test_version():
    assert runner.invoke(app, ["--version"]).stdout.strip() == f"bacon {__version__}"


def test_the_doctor_tells_what_it_finds():
    facts = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert {"python", "torch", "device", "threads", "bfloat16", "disk free"} <= facts.keys()
    assert "optional parts" in runner.invoke(app, ["doctor"]).stdout


def test_methods_are_listed_with_every_setting_explained():
    assert "bacon-s" in runner.invoke(app, ["methods"]).stdout
    text = runner.invoke(app, ["methods", "bacon-s"]).stdout
    assert re.search(r"alpha +released=0.0 +paper=0.8 +keep-rate power", text)


def test_a_mistake_is_one_line_and_exit_code_2():
    done = subprocess.run(
        [sys.executable, "-m", "bacon_gcd", "methods", "magic"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("bacon: method 'magic' is not known; choose from bacon-s")
