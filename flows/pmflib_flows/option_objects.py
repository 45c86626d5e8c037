"""Command options from the fields of a frozen dataclass, which the Python interface shares."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer


def takes_options(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per field of a dataclass; it is called with the object as ``options``.

    Parameters
    ----------
    kind
        Frozen dataclass. Fields are annotated for typer, or their metadata contain arguments of `typer.Option`: "help"
        and, if applicable, "min", "show_default" and "flags", the names on the command line.
    """
    hints = get_type_hints(kind, include_extras=True)

    def make(each: Field[Any]) -> inspect.Parameter:
        given, hint = dict(each.metadata), hints[each.name]
        if given:
            # a repeatable option is a list
            hint = list[str] | None if hint == tuple[str, ...] else hint
            hint = Annotated[hint, typer.Option(*given.pop("flags", ()), **given)]
        default = None if each.default == () else each.default
        return inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
        )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        names = {each.name for each in fields(kind)}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            own = {name: given.pop(name) for name in names}
            own = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in own.items()
                if value is not None
            }
            command(options=kind(**own), **given)

        signature = inspect.signature(command, eval_str=True)
        others = [each for each in signature.parameters.values() if each.name != "options"]
        first = [each for each in others if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        last = [each for each in others if each.kind is inspect.Parameter.KEYWORD_ONLY]
        made = [*first, *map(make, fields(kind)), *last]
        run.__signature__ = signature.replace(parameters=made)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in made} | {"return": None}
        return run

    return decorate
