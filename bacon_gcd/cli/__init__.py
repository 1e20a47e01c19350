"""The `bacon` command: options in, one call, errors out as one line."""

from __future__ import annotations

import sys
import warnings

from bacon_gcd import let_threads_sleep
from bacon_gcd.cli import about, benchmark, cache, correct, data, sort, train, weights
from bacon_gcd.cli.app import STOPPED, app, errors_in_one_line, left_at_the_end
from bacon_gcd.cli.usage import usage_errors
from bacon_gcd.system.text import visible

# Importing them added their commands to the app; here in the order in which a person meets them.
COMMANDS = (sort, correct, train, benchmark, data, about, weights, cache)
app.registered_commands.sort(
    key=lambda command: [each.__name__ for each in COMMANDS].index(
        getattr(command.callback, "__module__", "")
    )
)


let_threads_sleep()  # no command has loaded torch yet


def warn_in_one_line(
    message: Warning | str, category: type[Warning], *where: object, **more: object
) -> None:
    """A warning of ours as a person reads it: without the line of code that gave it."""
    sys.stderr.write(f"bacon: {visible(str(message))}\n")


def main() -> None:
    """Run the command; a person's mistake is one line and exit code 2, Ctrl-C is 130."""
    warnings.showwarning = warn_in_one_line
    with errors_in_one_line(), left_at_the_end(), usage_errors():
        code = app(standalone_mode=False)
        if code == STOPPED:  # typer makes this of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.exit(code)


__all__ = ["COMMANDS", "app", "main"]
