"""Every command that writes, in a folder with images and finished runs, run with faults."""

import json
import os
import shutil

from tests.planted_photos import plant
from tests.reliability.fault_server import FaultServer

QUICK = ["--epochs", "2", "--save-seconds", "0", "--batch-size", "16"]
TRAIN = ["bacon", "train", "-o", "NEW", "--dataset", "folder:photos", "--method"]

# What is typed; NEW is what it makes. Beside it: what is typed after a kill, if not the same.
COMMANDS = {
    "discover": ["bacon", "discover", "photos", "-o", "NEW"],
    "recut": ["bacon", "discover", "--recut", "plain", "--classes", "5", "-o", "NEW"],
    "refit": ["bacon", "discover", "--refit", "run", "-o", "NEW"],
    "update": ["bacon", "update", "run", "more", "-o", "NEW"],
    "predict": ["bacon", "predict", "run", "more", "-o", "NEW"],
    "export": ["bacon", "export", "run", "--to", "NEW"],
    "export move": ["bacon", "export", "run", "--to", "NEW", "--how", "move"],
    "undo": ["bacon", "export", "--undo", "sorted"],
    "data show": ["bacon", "data", "show", "demo", "--save", "NEW.json"],
    "embed": ["bacon", "embed", "photos", "--cache", "NEW", "--views", "1"],
    "train gcd": [*TRAIN, "gcd", *QUICK, "--set", "projector_width=64"],
}
WIDE = ("bacon-o", "bacon-s")  # methods with a wide projector
OTHERS = ("abc", "darp", "kmeans", "opencon", "orca", "simgcd", "trssl")
METHODS = {f"train {name}": [*TRAIN, name, *QUICK] for name in OTHERS} | {
    f"train {name}": [*TRAIN, name, *QUICK, "--set", "projector_width=64"] for name in WIDE
}
RESUME = ["bacon", "train", "--resume", "NEW", "--save-seconds", "0"]
CLOCK = {"seconds", "images_per_second", "modified"}  # all that differs between two equal runs


class Place:
    """A folder in which commands run; `reset` makes it what it was."""

    def __init__(self, folder):
        self.folder, self.stored = folder / "work", folder / "stored"
        self.folder.mkdir(parents=True)
        plant(self.folder / "photos")
        plant(self.folder / "more", n=3, labeled=2)
        self.server = FaultServer(self.folder)
        self.good("bacon", "discover", "photos", "-o", "run", "--classes", "4")
        shutil.copytree(self.folder / "run", self.folder / "plain")
        self.good("edit", "run", "3")
        shutil.rmtree(self.folder / "cache/banks")
        shutil.copytree(self.folder, self.stored / "home")
        self.good("bacon", "export", "run", "--to", "sorted", "--how", "move")
        shutil.copytree(self.folder, self.stored / "moved")

    def good(self, *words):
        done = self.server.run(*words)
        assert done.code == 0, done
        return done

    def reset(self, command):
        """As before the first command; only an undo finds the images moved away."""
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        stored = self.stored / ("moved" if command == "undo" else "home")
        shutil.copytree(stored, self.folder, dirs_exist_ok=True)

    def words(self, command):
        """What is typed."""
        return (COMMANDS | METHODS)[command]

    def again(self, command):
        """Type the command again, or what continues it."""
        words = self.words(command)
        begun = (self.folder / "NEW/config.toml").exists()
        if command.startswith("train") and begun:
            words = RESUME
        if command == "undo" and not (self.folder / "sorted").exists():
            return None  # it was done
        if command in ("discover", "recut", "refit", "update") and begun:
            return None  # a run folder is there as a whole or not at all
        if command == "predict" and (self.folder / "NEW").exists():
            return None  # so is a table
        return self.server.run(*words)

    def contents(self):
        """Every file with its bytes, without the time of day; the cache may hold anything."""
        return {
            name: _without_clock(name, path)
            for path in self.folder.rglob("*")
            if not (name := str(path.relative_to(self.folder))).startswith((".", "cache"))
        }

    def close(self):
        self.server.close()


def _without_clock(name, path):
    if path.is_dir():
        return None
    if name.endswith(("NEW/result.json", "/meta.json", "log.jsonl")):
        lines = [path.read_text()] if name.endswith(".json") else path.read_text().splitlines()
        kept = [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in lines]
        return json.dumps(kept)  # with the order of the keys
    if "NEW/checkpoints" in name and name.endswith("manifest.json"):
        return None  # holds seconds and the bytes of the log
    return path.read_bytes() if not path.is_symlink() else os.readlink(path)
