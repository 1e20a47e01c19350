"""What a person may choose: frozen dataclasses, TOML in and out, unknown keys are errors."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

Settings = TypeVar("Settings")
MAX_SEED = 2**32 - 1  # what numpy, torch and scikit-learn all take
MAX_VIEWS = 1000  # stored of an image


class UserError(ValueError):
    """A mistake the person can mend: shown as one line, exit code 2, never a traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names and values may hold line ends


def check_seed(name: str, value: Any) -> None:
    """Refuse a seed that is not a whole number from 0 to MAX_SEED."""
    if type(value) is not int or not 0 <= value <= MAX_SEED:
        raise UserError(f"{name} {value!r}: give a whole number from 0 to {MAX_SEED}")


def choose(what: str, value: str, choices: Iterable[str]) -> str:
    """The value itself if it is one of the choices, otherwise one line that lists them."""
    allowed = list(choices)
    if value not in allowed:
        raise UserError(f"{what} {value!r} is not known; choose from {', '.join(allowed)}")
    return value


def settings_from(kind: type[Settings], values: Mapping[str, Any], *, where: str) -> Settings:
    """Fill a frozen dataclass from plain values; `where` (file or option) is named in errors."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: a {type(values).__name__} where a table of settings is expected")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise UserError(f"{where}: {key!r} is not a setting; choose from {', '.join(fields)}")
    return checked_as(kind, dict(values), where=where)


def checked_as(kind: type[Settings], value: Any, *, where: str) -> Settings:
    """The plain value as a `kind` (a dataclass, a TypedDict, ...); wrong types are one line."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """What an exception says, without line breaks; its type if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML file as plain values; whatever is wrong with it, the line names the file."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or one_line(error)}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {one_line(error)}") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML; nested mappings become tables, None is left out."""
    return tomli_w.dumps(_plain_table(values, ""))


def _plain_table(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        str(key): _plain_value(value, f"{prefix}{key}")
        for key, value in values.items()
        if value is not None
    }


def _plain_value(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return _plain_table(value, f"{name}.")
    if isinstance(value, list | tuple):
        return [_plain_value(item, name) for item in value]
    if isinstance(value, str):
        return writable_text(value, name)
    if isinstance(value, bool | int | float):
        return value
    raise TypeError(f"{name}: a {type(value).__name__} has no place in a TOML file")


def writable_text(text: str, name: str) -> str:
    """The text itself if UTF-8 can hold it; file names made of other bytes are refused."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{name} {text!r}: not UTF-8, so no file can record it; rename it, or give a link to it"
        ) from None
    return text
