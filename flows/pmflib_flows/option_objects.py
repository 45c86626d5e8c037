"""Command options from the fields of frozen dataclasses, which the Python interface shares."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, get_type_hints

import typer


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of its parameters that are frozen dataclasses.

    The metadata of a field contain arguments of `typer.Option`: "help" and, if applicable, "min", "show_default",
    "rich_help_panel" and others. In addition, "flags" are the names on the command line, "parsed_as" is the type there,
    and "separator" splits a text into a tuple. Fields without metadata are not command options.
    """
    signature = inspect.signature(command, eval_str=True)
    kinds: dict[str, Any] = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if is_dataclass(each.annotation)
    }

    def make(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
        kind = kinds.get(parameter.name)
        if kind is None:
            yield parameter
            return
        hints = get_type_hints(kind)
        for each in _list_options(kind):
            default = None if each.default == () else each.default
            yield inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=_annotate(each, hints[each.name]),
            )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in kinds.items():
            own = {each: given.pop(each.name) for each in _list_options(kind)}
            given[name] = kind(
                **{
                    each.name: _take(each, value)
                    for each, value in own.items()
                    if value is not None
                }
            )
        command(**given)

    made = [option for each in signature.parameters.values() for option in make(each)]
    run.__signature__ = signature.replace(parameters=made)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in made} | {"return": None}
    return run


def _list_options(kind: Any) -> list[Field[Any]]:
    """Return the fields that are options of a command."""
    return [each for each in fields(kind) if each.metadata]


def _annotate(each: Field[Any], hint: Any) -> Any:
    """Return the type of an option for typer."""
    more = dict(each.metadata)
    parsed_as = more.pop("parsed_as", str if more.pop("separator", None) else None)
    if parsed_as is not None:
        hint = parsed_as | None
    # a repeatable option is a list
    hint = list[str] | None if hint == tuple[str, ...] else hint
    return Annotated[hint, typer.Option(*more.pop("flags", ()), **more)]


def _take(each: Field[Any], value: Any) -> Any:
    """Convert the value of an option to that of its field."""
    if "separator" in each.metadata:
        return tuple(value.split(each.metadata["separator"]))
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value
