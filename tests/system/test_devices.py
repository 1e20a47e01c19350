import pytest
import torch
from typer.testing import CliRunner

from bacon_gcd.cli import app
from bacon_gcd.config import UserError
from bacon_gcd.system.devices import available, describe, device_line, find_device


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)


def test_a_name_is_the_device_and_none_is_torchs_default():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device(torch.device("meta")) == torch.device("meta")
    with torch.device("meta"):
        assert find_device(None) == torch.device("meta")
        assert find_device("cpu") == torch.device("cpu")


def test_auto_is_the_first_gpu_where_there_are_some(two_gpus):
    assert find_device("auto") == torch.device("cuda:0")
    assert find_device("cuda") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda:1")
    assert available()[0] == "cpu"


def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:10"])
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(two_gpus, name):
    with pytest.raises(UserError, match=f"device '{name}' is not here; choose from cpu.*cuda:0"):
        find_device(name)


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "meta", "cpu:0", ""])
def test_an_unknown_name_is_refused_with_the_choices(name):
    with pytest.raises(UserError, match="is not one of auto, cpu, cuda, cuda:N or mps"):
        find_device(name)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "-o", "run", "--dataset", "demo"],
        ["discover", "photos", "-o", "run"],
        ["predict", "run", "photos"],
        ["embed", "photos"],
        ["update", "run", "photos", "-o", "new"],
        ["discover", "--refit", "run", "-o", "new"],
        ["benchmark", "run", "table2", "--quick"],
        ["benchmark", "run", "table2", "--quick", "--jobs", "2"],
        ["benchmark", "verify", "result.json"],
    ],
)
def test_every_command_refuses_a_device_that_is_not_there_in_one_line(words, monkeypatch, capsys):
    from bacon_gcd.cli import main

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["bacon", *words, "--device", "cuda:3"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "device 'cuda:3' is not here; choose from cpu" in lines[0]


def test_help_names_the_choices():
    assert "cuda:N or mps" in CliRunner().invoke(app, ["discover", "--help"]).stdout


def test_what_is_said_of_the_device_names_the_number_of_processes(monkeypatch):
    cpu = torch.device("cpu")
    assert device_line(cpu) == f"device {describe(cpu)}"
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert device_line(cpu) == f"device {describe(cpu)}, 3 processes"
