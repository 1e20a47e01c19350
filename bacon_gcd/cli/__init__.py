"""The `bacon` command: options in, one call, errors out as one line."""

from __future__ import annotations

from bacon_gcd.cli import about, cache, correct, data, sort, train, weights
from bacon_gcd.cli.app import app, errors_in_one_line

# Importing them added their commands to the app; here in the order in which a person meets them.
COMMANDS = (sort, correct, train, data, about, weights, cache)
app.registered_commands.sort(
    key=lambda command: [each.__name__ for each in COMMANDS].index(
        getattr(command.callback, "__module__", "")
    )
)


def main() -> None:
    """Run the command; a person's mistake is one line and exit code 2, Ctrl-C is 130."""
    with errors_in_one_line():
        app(standalone_mode=True)


__all__ = ["COMMANDS", "app", "main"]
