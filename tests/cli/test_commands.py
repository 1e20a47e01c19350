import json
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from bacon_gcd import __version__
from bacon_gcd.cli import app
from bacon_gcd.cli.app import errors_in_one_line, show
from bacon_gcd.config import UserError
from bacon_gcd.system import text

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
    shown = runner.invoke(app, [*words, "--help"]).stdout
    assert re.search(rf"Example: bacon {' '.join(words)}\b", shown), words
    assert "--json" in shown
    for option in command.params:
        if option.param_type_name == "option":
            assert option.help, f"{words}: --{option.name} says nothing"


def test_version():
    assert runner.invoke(app, ["--version"]).stdout.strip() == f"bacon {__version__}"


def test_the_doctor_tells_what_it_finds():
    facts = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert {"python", "torch", "device", "threads", "bfloat16", "disk free"} <= facts.keys()
    assert "optional parts" in runner.invoke(app, ["doctor"]).stdout


def test_the_doctor_names_the_devices_and_the_one_that_auto_takes(monkeypatch):
    facts = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert facts["devices"][0] == "cpu"
    assert facts["device"].startswith("cpu (") or len(facts["devices"]) > 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Fast One")
    facts = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert facts["device"] == "cuda:0 (Fast One)"
    assert facts["devices"] == ["cpu", "cuda:1", "cuda:0"]


def test_methods_are_listed_with_every_setting_explained():
    assert "bacon-s" in runner.invoke(app, ["methods"]).stdout
    shown = runner.invoke(app, ["methods", "bacon-s"]).stdout
    assert re.search(r"alpha +released=0.0 +paper=0.8 +recommended=0.0 +keep-rate power", shown)


def test_a_mistake_is_one_line_and_exit_code_2():
    done = subprocess.run(
        [sys.executable, "-m", "bacon_gcd", "methods", "magic"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("bacon: method 'magic' is not known; choose from bacon-s")


@pytest.mark.parametrize(
    "words",
    [
        ["discover", "photos", "-o", "new", "--seed", "-1"],
        ["discover", "photos", "-o", "new", "--seed", str(2**32)],
        ["discover", "photos", "-o", "new", "--threshold", "1.5"],
        ["discover", "photos", "-o", "new", "--workers", "-1"],
        ["demo", "--epochs", "0"],
        ["demo", "--seed", "-1"],
        ["train", "-o", "new", "--batch-size", "0"],
        ["train", "-o", "new", "--learning-rate", "-1"],
        ["train", "-o", "new", "--epochs", "-1"],
        ["train", "-o", "new", "--seed", "-1"],
        ["benchmark", "run", "--epochs", "0"],
        ["train", "-o", "new", "--evaluate-every", "-1"],
        ["train", "-o", "new", "--save-seconds", "-1"],
        ["train", "-o", "new", "--image-size", "0"],
        ["train", "-o", "new", "--labeled-share", "2"],
        ["train", "-o", "new", "--ratio", "0.5"],
        ["embed", "photos", "--views", "-1"],
        ["embed", "photos", "--seed", "-1"],
        ["data", "show", "cifar10-lt", "--n-max", "0"],
        ["review", "run", "--port", "70000"],
    ],
    ids=" ".join,
)
def test_numbers_out_of_range_are_refused_where_options_are_parsed(words):
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert f"Invalid value for '{words[-2]}'" in done.output


def test_training_for_no_epochs_is_refused_before_anything_is_written(tmp_path):
    done = runner.invoke(app, ["train", "-o", str(tmp_path / "run"), "--epochs", "0"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("--epochs 0: bacon-s is trained, give at least 1")
    assert not (tmp_path / "run").exists()


def test_names_cannot_send_commands_to_the_terminal(capsys):
    name = "a\x1b]0;title\x07\x9b31m\u202egpj.exe"
    show({"name": name}, as_json=False, text=f"first\n{name}")
    assert capsys.readouterr().out == ("first\na\\u001b]0;title\\u0007\\u009b31m\\u202egpj.exe\n")
    show({"name": name}, as_json=True)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": name}
    assert printed.isascii()
    with pytest.raises(SystemExit), errors_in_one_line():
        raise UserError(f"{name}\nnext: no such file")
    assert capsys.readouterr().err == (
        "bacon: a\\u001b]0;title\\u0007\\u009b31m\\u202egpj.exe next: no such file\n"
    )


def test_a_printed_command_can_be_pasted(tmp_path, monkeypatch):
    words = ["bacon", "review", "my photos/it's $HOME"]
    assert shlex.split(text.command(*words)) == words
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run/config.toml").write_text('method = "gcd"\n')
    done = runner.invoke(app, ["evaluate", "my run"])
    assert "bacon train --resume 'my run'" in str(done.exception)


@pytest.mark.parametrize("words", [["evaluate"], ["train", "--resume"], ["demo", "-o"]])
def test_a_run_of_another_command_is_called_by_its_name(tmp_path, words):
    (tmp_path / "config.toml").write_text('source = "photos"\n')
    done = runner.invoke(app, [*words, str(tmp_path)])
    assert str(done.exception) == f"{tmp_path}: a run of bacon discover, not of bacon train"


def test_scores_of_what_is_no_run_are_not_promised(tmp_path):
    done = runner.invoke(app, ["evaluate", str(tmp_path)])
    assert "not a run of bacon train" in str(done.exception)


def test_threads_that_wait_sleep_unless_the_person_says_otherwise():
    import os
    import subprocess
    import sys

    code = "import os, bacon_gcd.cli; print(os.environ['OMP_WAIT_POLICY'])"
    own = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    for given, expected in (({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=own | given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
