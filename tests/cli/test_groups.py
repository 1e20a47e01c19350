"""A dataclass in a command's signature is an option for each of its fields."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from bacon_gcd.cli.groups import with_options_of

Size = Annotated[int, typer.Option(min=1, help="How large.")]


@dataclass(frozen=True)
class Shape:
    size: Size = 3
    color: Annotated[str, typer.Option("--paint", help="Which color.")] = "red"


@dataclass(frozen=True)
class Blue(Shape):
    color: Annotated[str, typer.Option("--paint", help="Which color.")] = "blue"


made = []
app = typer.Typer()


@app.command()
@with_options_of("shape")
def draw(name: str, *, first: bool = False, shape: Shape, last: int = 0) -> None:
    """Draw it."""
    made.append((name, first, shape, last))


@app.command()
@with_options_of("shape")
def wash(*, shape: Blue) -> None:
    """Wash it."""
    made.append(shape)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["draw", "a"], ("a", False, Shape(3, "red"), 0)),
        (["draw", "a", "--size", "5", "--last", "2"], ("a", False, Shape(5, "red"), 2)),
        (["draw", "a", "--paint", "green", "--first"], ("a", True, Shape(3, "green"), 0)),
        (["wash"], Blue(3, "blue")),
    ],
)
def test_a_command_gets_the_options_as_one_value(words, expected):
    made.clear()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert made == [expected]


def test_options_stand_where_the_group_stands():
    assert list(inspect.signature(draw).parameters) == ["name", "first", "size", "color", "last"]
    assert draw.__doc__ == "Draw it."


def test_a_wrong_value_of_the_group_names_its_option():
    refused = CliRunner().invoke(app, ["draw", "a", "--size", "0"])
    assert refused.exit_code == 2
    assert "Invalid value for '--size'" in refused.output
