"""Real processes that work together, as torchrun starts them.

They are forked from a server that has imported the package once: most of the time of a short
process would be the import of torch.
"""

import multiprocessing
import os
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 250

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["tests.process_work"])


@dataclass
class Started:
    process: object
    folder: Path

    def finish(self):
        """Exit code, stdout and stderr."""
        self.process.join(TIMEOUT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        texts = ((self.folder / name).read_text() for name in ("out", "err"))
        return (self.process.exitcode, *texts)


def start(work, words=(), n_processes=2, *, own=None, **environment):
    """`work` by each process, with sys.argv and environment as torchrun would set them.

    own: number of a process -> words that only this one has.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | environment
    started = []
    for number in range(n_processes):
        named = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": n_processes}
        given = [*map(str, words), *(own or {}).get(number, ())]
        folder = Path(tempfile.mkdtemp())
        more = shared | {name: str(value) for name, value in named.items()}
        process = forks.Process(target=_run, args=(work, given, more, folder))
        process.start()
        started.append(Started(process, folder))
    return started


def finish(started):
    """Exit code, stdout and stderr of each."""
    return [each.finish() for each in started]


def _run(work, words, environment, folder):
    import torch

    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        stream.flush()
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream.fileno())
    torch.set_num_threads(1)
    os.environ.update(environment)
    sys.argv = ["bacon", *words]
    work()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
