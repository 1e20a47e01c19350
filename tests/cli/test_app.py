import os
import subprocess
import sys

import pytest
import typer

from bacon_gcd import cli


def words(tmp_path):
    mistake = ["discover", str(tmp_path / "absent"), "-o", str(tmp_path / "run")]
    return [sys.executable, "-m", "bacon_gcd", *mistake]


def all_of(terminal):
    """What was written until the other side was closed."""
    parts = []
    while True:
        try:
            parts.append(os.read(terminal, 65536))
        except OSError:  # how Linux says that it was closed
            break
        if not parts[-1]:
            break
    return b"".join(parts).decode(errors="replace")


def test_a_terminal_is_told_that_the_program_is_being_loaded(tmp_path):
    pty = pytest.importorskip("pty", reason="there are no terminals of this kind")
    own, others = pty.openpty()
    process = subprocess.Popen(words(tmp_path), stdin=others, stdout=others, stderr=others)
    os.close(others)
    said = all_of(own)
    os.close(own)
    assert process.wait() == 2
    assert "loading the program" in said.partition("bacon: ")[0]


def test_a_log_file_is_not(tmp_path):
    done = subprocess.run(words(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["discover", "doctor"])
def test_ctrl_c_is_one_line_and_130(monkeypatch, capsys, command):
    stopped = typer.Typer()

    @stopped.command(command)
    def work() -> None:
        raise KeyboardInterrupt

    stopped.command("other")(lambda: None)  # one command alone would need no name
    monkeypatch.setattr(cli, "app", stopped)
    monkeypatch.setattr(sys, "argv", ["bacon", command])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    line = "bacon: stopped"
    if command == "discover":
        line += "; the same command goes on: images that were embedded are kept"
    assert capsys.readouterr().err.splitlines()[-1] == line
