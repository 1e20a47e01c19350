"""A mistake in an option as one line, where typer prints the usage and three lines more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from bacon_gcd.system.launch import AgreedError

# typer brings its own copy of click or uses the installed one: its public error knows which.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise them as errors of ours; a command that was given nothing shows its help."""
    try:
        yield
    except _UsageError as error:
        raise AgreedError(_one_line(error)) from None
    except typer.Abort:  # a question was answered with no, or there is nobody to answer it
        sys.stderr.write("bacon: stopped\n")
        sys.exit(1)


def _one_line(error: Any) -> str:
    """What typer says, with the value it refused and where the options are explained."""
    message = error.format_message()
    if error.ctx is None:
        return " ".join(message.split())
    if message == error.ctx.get_help():
        error.show()
        sys.exit(error.exit_code)
    named = message.replace("Invalid value for", f"Invalid value{_refused(error)} for", 1)
    return f"{' '.join(named.split()).removesuffix('.')} (see {error.ctx.command_path} --help)"


def _refused(error: Any) -> str:
    """The value, which typer leaves out where pydantic checked it."""
    checked = getattr(error.__cause__, "errors", None)
    return f" {checked()[0]['input']}" if checked else ""
