"""Runs commands with faults, each in a fork of a process that has loaded everything already.

Started by `FaultServer` as a module; jobs and answers are lines of JSON.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120  # seconds for one command


@dataclass(frozen=True)
class Done:
    code: int
    """Exit code; negative: the signal that ended it."""
    changes: int
    """Changes it made to the file system; 0 if it was killed."""
    lines: list[str]
    """Of stderr."""


class FaultServer:
    """A process that waits for commands."""

    def __init__(self, cwd):
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "BACON_CACHE": "cache"}
        self.cwd = cwd
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.fault_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=env,
        )

    def run(self, *words, kind="none", at=0):
        """Run one command, with a fault of this kind at its change number `at`."""
        job = {"words": [str(word) for word in words], "kind": kind, "at": at}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return Done(**json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def serve():
    import bacon_gcd.cli  # noqa: F401
    from tests.reliability.fault_jobs import load_everything

    load_everything()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


def run(job):
    errors, facts = Path(".stderr"), Path(".changes")
    facts.write_text("0")
    child = os.fork()
    if child == 0:
        perform(job, errors, facts)
    _, status = os.waitpid(child, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "changes": int(facts.read_text() or 0),
        "lines": errors.read_text(errors="replace").splitlines(),
    }


def perform(job, errors, facts):
    """The child: never returns."""
    from tests.reliability.fault_jobs import JOBS
    from tests.reliability.faults import Faults

    for number, target in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    counted = os.open(facts, os.O_WRONLY | os.O_TRUNC)
    signal.alarm(TIMEOUT)
    faults = Faults(job["kind"], job["at"])
    write, leave = os.write, os._exit
    faults.install()
    code = 1
    try:
        name, *words = job["words"]
        JOBS[name](*words)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        import traceback

        write(2, traceback.format_exc().encode())
    finally:
        sys.stderr.flush()
        write(counted, str(faults.count).encode())
        leave(code)


if __name__ == "__main__":
    serve()
