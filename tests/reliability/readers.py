"""Everything that reads a file of others or of ours, with a sound file to begin from.

The contract of a reader: an answer, or a UserError of one line that names the file.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from bacon_gcd.backbone.journal import Journal, read_journal
from bacon_gcd.backbone.state import read_state
from bacon_gcd.benchmark.settings import RunSettings
from bacon_gcd.classes.tree import read_tree
from bacon_gcd.config import UserError, read_toml
from bacon_gcd.data.array_files import read_npy, read_npz
from bacon_gcd.data.datasets import _read_list
from bacon_gcd.data.entries import table_entries
from bacon_gcd.data.safe_pickle import read_pickle, read_torch_array
from bacon_gcd.data.split import Split
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.edits import append_edit, edits_path
from bacon_gcd.discovery.export import export, plan_export
from bacon_gcd.discovery.export_list import read_plan
from bacon_gcd.discovery.folder import DiscoverRun, read_classes, read_predictions
from bacon_gcd.discovery.settings import settings_of
from bacon_gcd.model import load_model
from bacon_gcd.system.files import read_tensors
from bacon_gcd.training.checkpoint import load_checkpoint, save_checkpoint

STORED = Path(__file__).parents[1] / "fixtures"


@dataclass(frozen=True)
class Reader:
    """A file inside its own folder, and what reads it."""

    file: Path
    call: object

    def holds(self, data):
        """Whether the contract holds for these bytes in place of the file's own."""
        self.file.write_bytes(data)
        said = ""
        try:
            self.call(self.file)
        except UserError as error:
            said = str(error)
        assert "\n" not in said


def readers(folder):
    """Name -> reader; each has a folder of its own."""
    made = {name: make(_new(folder / name)) for name, make in MAKERS.items()}
    return {name: Reader(file, call) for name, (file, call) in made.items()}


def _new(folder):
    folder.mkdir(parents=True)
    return folder


ROWS = [{"file_name": f"{n}.png", "label": "cat", "split": "train", "group": "a"} for n in range(3)]


def _csv(folder):
    (folder / "a.csv").write_text('file_name,label\na.png,cat\n"b,c.png",\nd.png,dog\n')
    return folder / "a.csv", lambda path: table_entries(path, root=folder)


def _jsonl(folder):
    (folder / "a.jsonl").write_text('{"file_name": "a.png", "label": "cat", "group": 3}\n' * 2)
    return folder / "a.jsonl", lambda path: table_entries(path, root=folder)


def _parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet")
    return folder / "a.parquet", lambda path: table_entries(path, root=folder)


def _published_list(folder):
    (folder / "list.txt").write_text("train/cat/1.jpg 0\ntrain/dog/2.jpg 12\n")
    return folder / "list.txt", _read_list


def _npy(folder):
    np.save(folder / "a.npy", np.eye(4, dtype=np.float32))
    return folder / "a.npy", read_npy


def _npz(folder):
    np.savez_compressed(folder / "a.npz", images=np.zeros((2, 4, 4, 3), np.uint8), labels=[0, 1])
    return folder / "a.npz", lambda path: read_npz(path, ["images", "labels"])


def _index_file(folder):
    torch.save(np.arange(9), folder / "l_k_0.pt")
    return folder / "l_k_0.pt", read_torch_array


def _pickle(folder):
    import pickle

    (folder / "batch").write_bytes(pickle.dumps({"data": np.zeros((2, 8), np.uint8), "x": [1]}))
    return folder / "batch", read_pickle


def _safetensors(folder):
    save_file({"a": torch.arange(6.0), "b": torch.eye(2)}, folder / "a.safetensors")
    return folder / "a.safetensors", read_tensors


def _weights(folder):
    torch.save({"a": torch.arange(6.0)}, folder / "a.pth")
    return folder / "a.pth", read_state


def _checkpoint(folder):
    save_checkpoint(folder, 1, {"a": torch.ones(3)}, {"position": {"epoch": 1}}, keep=1)
    return folder / "step-00000001/manifest.json", lambda path: load_checkpoint(path.parent)


def _bank(folder):
    Journal(folder, "k", 4, (2, 3), 2, "x", {"test": [1, None]}, {"test": 5}).save()
    return folder / "meta.json", lambda path: read_journal(path.parent)


def _split(suffix):
    def make(folder):
        rows = {name: np.arange(2) for name in ("labeled", "unlabeled_known", "unlabeled_novel")}
        split = Split(
            **rows, test=np.arange(2, 4), class_order=(0, 1), n_known=1, settings={}, fingerprint=""
        )
        split.save(folder / f"a{suffix}")
        return folder / f"a{suffix}", Split.load

    return make


def _of_run(name, call):
    """A file of a finished run."""

    def make(folder):
        run = shutil.copytree(STORED / "runs-0.1/grown", folder / "run")
        return run / name, call

    return make


def _edits(folder):
    run = shutil.copytree(STORED / "runs-0.1/grown", folder / "run")
    append_edit(edits_path(run), {"kind": "rename", "class": "novel_000", "to": "x"})
    return edits_path(run), lambda path: corrected(DiscoverRun.load(path.parent))


def _manifest(folder):
    root = shutil.copytree(STORED / "runs-0.1", folder / "runs")
    config = root / "found/config.toml"
    config.write_text(config.read_text().replace("@ROOT@", str(root)))
    run = DiscoverRun.load(root / "found")
    export(plan_export(run, how="symlink"), folder / "sorted", roots=run.roots)
    return folder / "sorted/bacon-export.json", lambda path: read_plan(path.parent)


def _run_config(path):
    settings_of(read_toml(path), str(path.parent))


def _train_config(folder):
    settings = RunSettings.from_options({"dataset": "demo", "method": "gcd", "seed": 0}, {})
    (folder / "config.toml").write_text(settings.to_toml())
    return folder / "config.toml", RunSettings.from_toml


MAKERS = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "published list": _published_list,
    "npy": _npy,
    "npz": _npz,
    "index file": _index_file,
    "pickle": _pickle,
    "safetensors": _safetensors,
    "weights": _weights,
    "checkpoint": _checkpoint,
    "bank": _bank,
    "split json": _split(".json"),
    "split npz": _split(".npz"),
    "edits": _edits,
    "export": _manifest,
    "train config": _train_config,
    "run config": _of_run("config.toml", _run_config),
    "run classes": _of_run("classes.json", read_classes),
    "run predictions": _of_run("predictions.parquet", read_predictions),
    "run tree": _of_run("tree.json", lambda path: read_tree(path, n_rows=22, n_classes=5)),
    "run features": _of_run(
        "features.npy", lambda path: DiscoverRun.load(path.parent).features.shape
    ),
    "run constraints": _of_run(
        "constraints.json", lambda path: corrected(DiscoverRun.load(path.parent))
    ),
    "model": _of_run("model/model.json", lambda path: load_model(path.parent)),
    "model tensors": _of_run("model/model.safetensors", lambda path: load_model(path.parent)),
}
