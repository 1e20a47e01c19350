"""Several processes compute what one computes; when one ends, all end."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from bacon_gcd.config import UserError
from bacon_gcd.data.images import read_images
from bacon_gcd.methods import METHODS
from bacon_gcd.system import processes
from bacon_gcd.training import distributed
from tests.planted_photos import plant, vectors_of
from tests.process_work import (
    bacon,
    bacon_beside_a_writer,
    bacon_of_another_version,
    bacon_that_is_killed,
    bacon_with_fewer_images,
    bacon_without_images,
    fill_bank,
    share_work,
)
from tests.processes import ROOT, TIMEOUT, finish, start
from tests.small_backbone import use_small_backbone


@pytest.fixture(scope="module")
def results():
    """What one process has computed, and what each of two has."""
    one = finish(start(share_work, n_processes=1))
    two = finish(start(share_work))
    for code, _, err in (*one, *two):
        assert code == 0, err
    return [json.loads(out) for _, out, _ in (*one, *two)]


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_have_the_losses_and_answers_of_one(results, name):
    one, *two = (each[name] for each in results)
    assert len(one["losses"]) == (0 if "kmeans" in name else 8)
    for each in two:
        np.testing.assert_allclose(each["losses"], one["losses"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(each["centroids"], one["centroids"], atol=1e-4)
        assert each["counts"] == one["counts"]
        assert each["answers"] == one["answers"]


def test_shared_kmeans_is_kmeans(results):
    one, *two = (each["kmeans on shared rows"] for each in results)
    for each in two:
        for ours, theirs in zip(each, one, strict=True):
            assert ours[0] == theirs[0]
            assert ours[1] == pytest.approx(theirs[1])


def test_rows_are_shared_out_without_a_gap_and_differ_by_one(monkeypatch):
    monkeypatch.setattr(processes, "n_processes", lambda: 3)
    shares = [processes.share(8, of) for of in range(3)]
    assert np.concatenate([np.arange(8)[each] for each in shares]).tolist() == list(range(8))
    assert {each.stop - each.start for each in shares} == {2, 3}


def test_more_processes_than_images_in_a_batch_are_refused(monkeypatch):
    monkeypatch.setattr(distributed, "n_processes", lambda: 9)
    with pytest.raises(UserError, match="9 processes for batches of 8 images"):
        distributed.check_batch(8)


def test_alone_a_process_shares_nothing(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert processes.n_processes() == 2
    with processes.alone():
        assert processes.n_processes() == 1
    assert processes.n_processes() == 2


# Through the command line


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Photos, their vectors, and a cache with the weights of a tiny backbone."""
    folder = tmp_path_factory.mktemp("shared")
    plant(folder / "photos", n=12, labeled=8)
    plant(folder / "many", known=("red", "green", "blue", "gray"), novel=(), n=8, labeled=8)
    np.save(folder / "vectors.npy", vectors_of(read_images(folder / "photos").ids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", str(folder / "cache"))
        use_small_backbone(patch)
    return folder


def sort_words(work, name):
    words = ["discover", work / "photos", "-o", work / name, "--features", work / "vectors.npy"]
    return [*words, "--effort", "normal", "--classes", "4"]


def class_names(run):
    lines = (run / "predictions.csv").read_text().splitlines()[1:]
    return [line.split(",")[:2] for line in lines]


def test_discover_by_two_processes_sorts_as_by_one_and_writes_once(work):
    for name, size in (("one", 1), ("two", 2)):
        for code, out, err in finish(start(bacon, sort_words(work, name), size)):
            assert code == 0, (out, err)
    assert class_names(work / "two") == class_names(work / "one")
    assert not list(work.glob(".*two*"))


def one_line(done):
    """The only line that the processes said, besides which device they have."""
    lines = [line for _, _, err in done for line in err.splitlines()]
    lines = [line for line in lines if not line.startswith("device ")]
    assert len(lines) == 1, lines
    return lines[0]


def test_processes_with_other_options_are_refused_in_one_line(work):
    done = finish(start(bacon, sort_words(work, "refused"), own={1: ["--seed", "1"]}))
    assert [code for code, _, _ in done] == [2, 2]
    assert "process 1 has options unlike process 0" in one_line(done)
    assert not (work / "refused").exists()


def test_a_process_with_another_version_is_refused_in_one_line(work):
    done = finish(start(bacon_of_another_version, sort_words(work, "older")))
    assert [code for code, _, _ in done] == [2, 2]
    assert "process 1 has versions unlike process 0: bacon_gcd is 0.0.1" in one_line(done)


def test_a_batch_smaller_than_the_processes_is_refused_in_one_line(work):
    words = [*train_words(work, "small"), "--batch-size", "1"]
    done = finish(start(bacon, words, BACON_CACHE=str(work / "cache")))
    assert [code for code, _, _ in done] == [2, 2]
    said = [line for _, _, err in done for line in err.splitlines() if line.startswith("bacon:")]
    assert len(said) == 1
    assert "2 processes for batches of 1 images; start at most 1 processes" in said[0]


def test_a_bank_that_another_process_fills_ends_all_in_one_line(work):
    """A process alone waits for it; several would lose each other while one waits."""
    words = ["embed", work / "many", "--views", "1", "--image-size", "64"]
    cache = work / "other-cache"
    shutil.copytree(work / "cache", cache)
    shutil.rmtree(cache / "banks", ignore_errors=True)
    done = finish(start(bacon_beside_a_writer, words, BACON_CACHE=str(cache)))
    assert [code for code, _, _ in done] == [2, 2]
    assert "another process is filling this bank; start again" in one_line(done)


@pytest.mark.parametrize(
    "words",
    [["update", "run", "new"], ["discover", "--refit", "run"], ["discover", "--recut", "run"]],
)
def test_what_one_process_does_is_refused_to_several_in_one_line(work, words):
    done = finish(start(bacon, [*words, "-o", work / "nothing"]))
    assert [code for code, _, _ in done] == [2, 2]
    assert "is done by one process; start it without torchrun" in one_line(done)


def test_two_processes_run_a_cell_together_with_the_scores_of_one(work):
    scores = []
    for size in (1, 2):
        words = [
            "benchmark",
            "run",
            "table2",
            "--quick",
            "--methods",
            "orca",
            "--epochs",
            "2",
        ]
        for code, out, err in finish(start(bacon, [*words, "--grid", work / f"grid-{size}"], size)):
            assert code == 0, (out, err)
        results = sorted((work / f"grid-{size}/results").glob("*.json"))
        scores.append([json.loads(path.read_text())["blocks"]["test_kmeans"] for path in results])
    assert len(scores[0]) == 1
    for ours, theirs in zip(*scores, strict=True):
        assert ours["all"] == pytest.approx(theirs["all"], abs=0.5)


def test_a_process_that_cannot_see_the_images_ends_all_in_one_line(work):
    done = finish(start(bacon_without_images, sort_words(work, "hidden")))
    assert [code for code, _, _ in done] == [2, 2]
    assert "process 1 of 2: " in one_line(done)
    assert "photos-elsewhere" in one_line(done)


def commands_on_images(work):
    """What reads images in several processes, beside `discover`."""
    run = work / "sorted-before"
    if not run.exists():
        [(code, *said)] = finish(start(bacon, sort_words(work, run.name), 1))
        assert code == 0, said
    embed = ["embed", work / "photos", "--views", "0", "--image-size", "64"]
    predict = ["predict", run, work / "photos", "--features", work / "vectors.npy"]
    return [embed, predict]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (bacon_without_images, "photos-elsewhere"),
        (bacon_with_fewer_images, "process 1 has images unlike process 0"),
    ],
)
@pytest.mark.parametrize("which", [0, 1], ids=["embed", "predict"])
def test_embed_and_predict_end_all_processes_in_one_line_where_one_sees_other_images(
    work, which, broken, said
):
    words = commands_on_images(work)[which]
    done = finish(start(broken, words, BACON_CACHE=str(work / "cache")))
    assert [code for code, _, _ in done] == [2, 2], done
    assert said in one_line(done)


def test_two_processes_fill_one_bank_with_the_bytes_of_one(work):
    """Five chunks for two processes: one of them has one more."""
    banks = []
    for size in (1, 2):
        folder = work / f"bank-{size}"
        words = [work / "many", folder]
        done = finish(start(fill_bank, words, size, BACON_CACHE=str(work / "cache")))
        assert [code for code, _, _ in done] == [0] * size, done
        said = [[int(word) for word in out.split()] for _, out, _ in done]
        assert [n_computed for n_computed, _ in said] == [96] * size  # 32 images in 3 views
        assert sum(n_opened for _, n_opened in said) == 32
        banks.append({path.name: path.read_bytes() for path in folder.rglob("*.bin")})
    assert banks[0] == banks[1]


def train_words(work, name):
    words = ["train", "--dataset", f"folder:{work / 'many'}", "--method", "gcd", "--epochs", "3"]
    words += ["--views", "2", "--batch-size", "8", "--image-size", "64", "--save-seconds", "0"]
    return [*words, "--set", "projector_width=32", "-o", str(work / name)]


def train(work, name, kill_at):
    more = {"KILL_AT": str(kill_at), "BACON_CACHE": str(work / "cache")}
    return finish(start(bacon_that_is_killed, train_words(work, name), **more))


def test_a_killed_process_ends_the_others_at_once_with_a_clear_line(work):
    done = train(work, "killed", kill_at=101)
    assert [code for code, _, _ in done] == [2, -signal.SIGKILL]
    assert "another process of this run ended or does not answer" in done[0][2].splitlines()[-1]


def test_torchrun_starts_again_from_the_last_checkpoint_bit_equal(work):
    assert [code for code, _, _ in train(work, "whole", kill_at=-1)] == [0, 0]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    words += ["--standalone", "-m", "tests.process_work", *train_words(work, "again")]
    env = os.environ | {"KILL_AT": "102", "BACON_CACHE": str(work / "cache")}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    log, model = "log.jsonl", "model/model.safetensors"
    assert terms(work / "again" / log) == terms(work / "whole" / log)
    assert (work / "again" / model).read_bytes() == (work / "whole" / model).read_bytes()


def terms(log):
    return [json.loads(line).get("terms") for line in log.read_text().splitlines()]


def test_without_torchrun_nothing_is_joined(monkeypatch):
    monkeypatch.setitem(os.environ, "RANK", "3")  # as some clusters set it for every job
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    processes.join(torch.device("cpu"))
    assert processes.n_processes() == 1
    assert processes.is_first()
