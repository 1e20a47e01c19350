"""Options that several commands share, listed once: the fields of a dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def with_options_of(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with an option for each field of its parameter `name`, which is a dataclass.

    The options stand where the parameter stands. A field is declared like an option of a command:
    an annotated type and a default.
    """

    def spread(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        group = signature.parameters[name].annotation
        own = [field.name for field in dataclasses.fields(group)]

        @wraps(command)
        def flat(**given: Any) -> None:
            fields = {each: given.pop(each) for each in own}
            command(**given, **{name: group(**fields)})

        options = [
            option
            for each in signature.parameters.values()
            for option in (_options(group) if each.name == name else [each])
        ]
        named = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
        vars(flat)["__signature__"] = signature.replace(parameters=named)
        flat.__annotations__ = {option.name: option.annotation for option in named}
        return flat

    return spread


def _options(group: Any) -> Iterator[Parameter]:
    """The fields of a dataclass as parameters of a command."""
    types = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=types[field.name],
        )
