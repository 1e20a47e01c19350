"""What torchrun tells each process that it starts; without torchrun there is one process."""

from __future__ import annotations

import os

from bacon_gcd.config import UserError


class AgreedError(UserError):
    """A mistake that all processes know of, so that one of them can say it."""


def n_launched() -> int:
    """How many processes were started together."""
    return max(_number("WORLD_SIZE", 1), 1) if "MASTER_ADDR" in os.environ else 1


def launched_number() -> int:
    """Which of them this one is: 0 is the one that writes and speaks."""
    return _number("RANK", 0) if n_launched() > 1 else 0


def number_on_machine() -> int:
    """Which of the processes of this machine this one is, for its GPU."""
    return _number("LOCAL_RANK", 0) if n_launched() > 1 else 0


def speaks() -> bool:
    """Whether this process may talk to a person: one of many does."""
    return launched_number() == 0


def restarted() -> bool:
    """Whether torchrun, or Slurm after a requeue, has started the same command again."""
    counts = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return any(_number(name, 0) > 0 for name in counts)


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default
