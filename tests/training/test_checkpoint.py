import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from bacon_gcd.config import UserError
from bacon_gcd.training.checkpoint import (
    MANIFEST,
    TENSORS,
    checkpoint_number,
    load_checkpoint,
    newest_checkpoint,
    optimizer_tensors,
    restore_optimizers,
    save_checkpoint,
)


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    tensors = {"a": torch.randn(3, 4), "n": torch.tensor(7), "view": torch.randn(4, 4).T}
    path = save_checkpoint(tmp_path, 3, tensors, {"epoch": 2, "sum": 0.1 + 0.2}, keep=2)
    back, facts = load_checkpoint(path)
    assert all(torch.equal(back[k], tensors[k]) for k in tensors)
    assert facts == {"epoch": 2, "sum": 0.1 + 0.2}


def test_only_the_newest_are_kept(tmp_path):
    for number in (1, 2, 10):
        save_checkpoint(tmp_path, number, {"a": torch.zeros(1)}, {}, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["step-00000002", "step-00000010"]


MANIFESTS = {
    "half manifest": b'{"sha256": ',
    "no object": b"[]",
    "no checksum": b'{"facts": {}}',
    "wrong type": b'{"sha256": 3, "facts": {}}',
    "facts missing": b'{"sha256": "0"}',
    "not UTF-8": b"\xff\xfe",
    "nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", ["flip", "cut", "no manifest", "a folder", *MANIFESTS])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_is_taken(tmp_path, damage):
    good = save_checkpoint(tmp_path, 1, {"a": torch.ones(5)}, {}, keep=2)
    bad = save_checkpoint(tmp_path, 2, {"a": torch.ones(5)}, {}, keep=2)
    data = (bad / TENSORS).read_bytes()
    if damage == "flip":
        (bad / TENSORS).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "cut":
        (bad / TENSORS).write_bytes(data[:-1])
    elif damage == "no manifest":
        (bad / MANIFEST).unlink()
    elif damage == "a folder":
        (bad / MANIFEST).unlink()
        (bad / MANIFEST).mkdir()
    else:
        (bad / MANIFEST).write_bytes(MANIFESTS[damage])
    with pytest.raises(UserError, match="step-00000002"):
        load_checkpoint(bad)
    assert newest_checkpoint(tmp_path) == good
    (good / TENSORS).unlink()
    with pytest.raises(UserError, match="none of 2 checkpoints can be used, the newest because"):
        newest_checkpoint(tmp_path)


def test_numbers_order_checkpoints_whatever_their_length(tmp_path):
    positions = [(0, 9_999), (1, 0), (1, 12_345), (2, 3), (120, 7)]
    for epoch, step in positions:
        number = checkpoint_number(epoch, step)
        save_checkpoint(tmp_path, number, {"a": torch.zeros(1)}, {"at": [epoch, step]}, keep=9)
        newest = newest_checkpoint(tmp_path)
        assert load_checkpoint(newest)[1] == {"at": [epoch, step]}
    assert newest_checkpoint(tmp_path / "absent") is None


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    good = save_checkpoint(tmp_path, 1, {"a": torch.ones(5)}, {}, keep=1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bacon_gcd.training.checkpoint.save_file", full)
    with pytest.raises(OSError, match=r"No space.*step-00000002"):
        save_checkpoint(tmp_path, 2, {"a": torch.ones(5)}, {}, keep=1)
    assert os.listdir(tmp_path) == ["step-00000001"]
    assert newest_checkpoint(tmp_path) == good


WRITER = """
import sys, torch
from pathlib import Path
from bacon_gcd.training.checkpoint import save_checkpoint
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    number += 1
    tensors = {"a": torch.full((200_000,), float(number))}
    save_checkpoint(Path(sys.argv[1]), number, tensors, {"number": number}, keep=2)
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    last = 0
    for attempt in range(6):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(last)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.05 + 0.1 * attempt)  # early, and late enough on a busy machine
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        newest = newest_checkpoint(tmp_path)
        if newest is None:
            continue
        tensors, facts = load_checkpoint(newest)
        assert (tensors["a"] == facts["number"]).all()
        assert facts["number"] >= last
        last = facts["number"]
        assert not list(tmp_path.glob(".*"))
    assert last > 0


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_optimizer_memory_survives(kind):
    def parts():
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind]
        extra = {"momentum": 0.9} if kind == "sgd" else {}
        return layer, {"all": make(layer.parameters(), lr=0.1, **extra)}

    def steps(layer, optimizers, count):
        for number in range(count):
            optimizers["all"].zero_grad()
            layer(torch.full((1, 3), float(number + 1))).sum().backward()
            optimizers["all"].step()

    layer, optimizers = parts()
    steps(layer, optimizers, 3)
    saved, weights = optimizer_tensors(optimizers), layer.state_dict()
    saved = {k: v.clone() for k, v in saved.items()}
    weights = {k: v.clone() for k, v in weights.items()}
    steps(layer, optimizers, 2)

    again, fresh = parts()
    again.load_state_dict(weights)
    restore_optimizers(fresh, saved)
    steps(again, fresh, 2)
    pairs = zip(layer.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
