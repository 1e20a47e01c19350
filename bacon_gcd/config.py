"""What a person may choose: frozen dataclasses, TOML in and out, unknown keys are errors."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

Settings = TypeVar("Settings")


class UserError(ValueError):
    """A mistake the person can mend: shown as one line, exit code 2, never a traceback."""


def choose(what: str, value: str, choices: Iterable[str]) -> str:
    """The value itself if it is one of the choices, otherwise one line that lists them."""
    allowed = list(choices)
    if value not in allowed:
        raise UserError(f"{what} {value!r} is not known; choose from {', '.join(allowed)}")
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], *, where: str) -> Settings:
    """Fill a frozen dataclass from plain values; `where` (file or option) is named in errors."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise UserError(f"{where}: {key!r} is not a setting; choose from {', '.join(fields)}")
    tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return kind(**tuples)


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML file as plain values; a syntax error names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML; nested mappings become tables, None is left out."""
    plain = {k: v for k, v in values.items() if not isinstance(v, Mapping) and v is not None}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += ["", *_table(key, value)]
    return "\n".join(lines) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    lines = [f"[{name}]"]
    lines += [
        f"{key} = {_toml_value(value)}"
        for key, value in values.items()
        if not isinstance(value, Mapping) and value is not None
    ]
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += ["", *_table(f"{name}.{key}", value)]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return _toml_string(str(value))


def _toml_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
