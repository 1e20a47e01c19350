"""Every method under its name. A newcomer adds one file and one line here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from torch import Tensor

from bacon_gcd.config import UserError, choose, settings_from
from bacon_gcd.methods.bacon import PAPER, RELEASED, BaCon, orca_style
from bacon_gcd.methods.base import Method, TailSource, Task


@dataclass(frozen=True)
class Entry:
    """A method, its named and frozen presets, and where it comes from."""

    method: type[Method]
    presets: Mapping[str, Any]
    summary: str
    paper: str


METHODS: dict[str, Entry] = {
    "bacon-s": Entry(
        BaCon,
        {"released": RELEASED, "paper": PAPER},
        "two branches that advise each other; the classifier branch is SimGCD-style",
        "Bai et al., NeurIPS 2023, arXiv 2310.01376",
    ),
    "bacon-o": Entry(
        BaCon,
        {"released": orca_style(RELEASED), "paper": orca_style(PAPER)},
        "two branches that advise each other; the classifier branch is ORCA-style (reconstructed)",
        "Bai et al., NeurIPS 2023, arXiv 2310.01376",
    ),
}


def settings_for(name: str, *, preset: str = "released", changes: Mapping[str, Any]) -> Any:
    """A method's settings: a preset with some values changed; unknown names list the choices."""
    choose("method", name, METHODS)
    presets = METHODS[name].presets
    choose(f"preset of {name}", preset, presets)
    base = presets[preset]
    kinds = get_type_hints(type(base))
    plain = {
        key: _parse(value, kinds[key], key) if key in kinds else value
        for key, value in changes.items()
    }
    return settings_from(type(base), dataclasses.asdict(base) | plain, where=f"--set for {name}")


def _parse(value: Any, kind: Any, name: str) -> Any:
    """A value from the command line, as the setting's own kind."""
    if not isinstance(value, str) or kind is str:
        return value
    if kind is bool:
        return choose(name, value.lower(), ("true", "false")) == "true"
    try:
        return kind(value)
    except ValueError:
        raise UserError(f"{name}: {value!r} is not a {kind.__name__}") from None


def describe_settings(settings: Any) -> dict[str, tuple[Any, str]]:
    """Setting -> (value, what it means), for help texts and model cards."""
    hints = get_type_hints(type(settings), include_extras=True)
    return {
        field.name: (
            getattr(settings, field.name),
            getattr(hints[field.name], "__metadata__", ("",))[0],
        )
        for field in dataclasses.fields(settings)
    }


def build_method(
    name: str,
    task: Task,
    backbone: TailSource,
    settings: Any,
    *,
    oracle_counts: Tensor | None = None,
) -> Method:
    """The method called `name`; an oracle's counts reach only a method that asks for them."""
    oracle = {"oracle_counts": oracle_counts} if oracle_counts is not None else {}
    method: Method = METHODS[name].method(task, backbone, settings, **oracle)  # type: ignore[call-arg]
    return method
