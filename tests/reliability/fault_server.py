"""Runs commands with faults, each in a fork of a process that has loaded everything already.

Started by `FaultServer` as a module; jobs and answers are lines of JSON.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120  # seconds of computing for one command; a busy machine may take longer
WAITING = 10 * TIMEOUT  # for one that waits for something that never comes


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
        return self.together(words, kind=kind, at=at)[0]

    def together(self, *commands, kind="none", at=0):
        """Run some commands at a time."""
        job = {"commands": commands, "kind": kind, "at": at}
        self.process.stdin.write(json.dumps(job, default=str) + "\n")
        self.process.stdin.flush()
        return [Done(**each) for each in json.loads(self.process.stdout.readline())]

    def close(self):
        self.process.stdin.close()
        self.process.wait(120)
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
    """Fork once per command, and wait for all."""
    numbers = range(len(job["commands"]))
    children = [start(job, number) for number in numbers]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return [
        {
            "code": codes[number],
            "changes": int(changes_file(number).read_text() or 0),
            "lines": errors_file(number).read_text(errors="replace").splitlines(),
        }
        for number in numbers
    ]


def errors_file(number):
    return Path(f".stderr-{number}")


def changes_file(number):
    return Path(f".changes-{number}")


def start(job, number):
    """The process id of the child, which never returns."""
    changes_file(number).write_text("")
    child = os.fork()
    if child == 0:
        perform(job, number)
    return child


def perform(job, number):
    from tests.reliability.fault_jobs import JOBS
    from tests.reliability.faults import Faults

    for target, handle in ((os.devnull, 1), (errors_file(number), 2)):
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), handle)
    counted = os.open(changes_file(number), os.O_WRONLY)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
    signal.alarm(WAITING)
    faults = Faults(job["kind"], job["at"])
    write, leave, code = os.write, os._exit, 1
    faults.install()
    try:
        name, *words = job["commands"][number]
        JOBS[name](*words)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        write(2, traceback.format_exc().encode())
    finally:
        sys.stderr.flush()
        write(counted, str(faults.count).encode())
        leave(code)


if __name__ == "__main__":
    serve()
