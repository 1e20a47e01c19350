"""Which device a computation runs on, from the name a person gives."""

from __future__ import annotations

import re

import torch

from bacon_gcd.config import UserError
from bacon_gcd.system.launch import n_launched

AUTO = "auto"
CHOICES = "auto, cpu, cuda, cuda:N or mps"
NAME = re.compile(r"cpu|mps|cuda(:\d+)?")

Device = torch.device | str | None
"""None stands for torch's default device, so that the caller's choice is followed."""


def find_device(device: Device) -> torch.device:
    """The device of this name: auto is the best there is, None torch's default.

    A name that is unknown, or a device that is not there, is refused with the ones that are.
    """
    if device is None:
        return torch.get_default_device()
    if isinstance(device, torch.device):
        return device
    if device == AUTO:
        return torch.device(available()[-1])
    if not NAME.fullmatch(device):
        raise UserError(f"device {device!r} is not one of {CHOICES}")
    if (device != "cuda" and device not in available()) or (device == "cuda" and not _n_gpus()):
        raise UserError(f"device {device!r} is not here; choose from {', '.join(available())}")
    return torch.device(device)


def available() -> list[str]:
    """Names of the devices of this machine, the best one last."""
    gpus = [f"cuda:{number}" for number in reversed(range(_n_gpus()))]
    return ["cpu", *(["mps"] if torch.backends.mps.is_available() else []), *gpus]


def describe(device: torch.device) -> str:
    """The device in a few words, for a person."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = f"{torch.get_num_threads()} threads" if torch.get_num_threads() > 1 else "1 thread"
    return f"cpu ({threads})" if device.type == "cpu" else str(device)


def device_line(device: torch.device) -> str:
    """What a command says of its device, once the input is known to be good."""
    several = f", {n_launched()} processes" if n_launched() > 1 else ""
    return f"device {describe(device)}{several}"


def _n_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
