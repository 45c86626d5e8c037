"""Options of methods: a method is given by its name, or by a mapping of its name and its options.

The options of a method are a frozen dataclass whose fields have a default, a help text and limits. The same mapping
serves every function with an argument ``method`` and, as ``method_options``, the configuration of a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import PmfError
from pmflib.base.methods import Method, find_method, load_name
from pmflib.base.options import option

MethodChoice: TypeAlias = str | Mapping[str, Any]
"""Name of a method, or a mapping with its ``name`` and options."""


def method_option(
    default: Any, text: str, *, least: float | None = None, most: float | None = None
) -> Any:
    """Define an option of a method: default, help text, and the limits of a number."""
    return option(default, text, least=least, most=most)


def configure_method(table: Mapping[str, Method], choice: MethodChoice) -> tuple[Method, Any]:
    """Look up a method, and make its options.

    Parameters
    ----------
    table
        Methods by name.
    choice
        A name, or a mapping with ``name`` and options of this method.

    Returns
    -------
    The method and its options, an instance of its class of options; None if it has none.

    Raises
    ------
    PmfError
        If the method or an option is unknown, or a value has the wrong type or is out of range.
    """
    given: dict[str, Any] = {}
    if isinstance(choice, Mapping):
        given = dict(choice)
        if "name" not in given:
            raise PmfError(
                f"method is {dict(choice)!r} without a name; pass {{'name': ..., and options}}"
            )
        choice = given.pop("name")
    if not isinstance(choice, str):
        raise PmfError(f"method is {choice!r}; pass a name, or a mapping of the name and options")
    method = find_method(table, choice)
    if not method.options:
        if given:
            raise PmfError(f"method {method.name!r} has no options; leave out {', '.join(given)}")
        return method, None
    kind = load_name(method.options)
    known = {each.name: each for each in fields(kind)}
    hints = get_type_hints(kind)
    for name, value in given.items():
        check(OneOf(known), **{f"option of method {method.name!r}": name})
        given[name] = _check(f"{method.name}.{name}", value, hints[name], known[name].metadata)
    return method, kind(**given)


def _check(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> Any:
    """Return the value of an option as its type.

    Raises
    ------
    PmfError
        If it is none of the allowed values, or no number within the limits.
    """
    allowed = get_args(hint) if get_origin(hint) is Literal else ()
    if allowed:
        check(OneOf(allowed), **{name: value})
    if value is None and type(None) in get_args(hint):
        return None
    hint = next((each for each in get_args(hint) if each in (int, float)), hint)
    if hint in (int, float):
        number = not isinstance(value, bool) and isinstance(value, (int, float))
        if not number or not math.isfinite(value) or (hint is int and value != int(value)):
            kind = "a whole number" if hint is int else "a number"
            raise PmfError(f"{name} is {value!r}; pass {kind}")
        least, most = limits["least"], limits["most"]
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least}" + ("" if most is None else f" and at most {most}")
            raise PmfError(f"{name} is {value!r}; pass {bounds}")
        return hint(value)
    if not allowed and not isinstance(value, (list, tuple)):
        raise PmfError(f"{name} is {value!r}; pass a list")
    return tuple(value) if isinstance(value, list) else value


def describe_options(method: Method) -> dict[str, tuple[Any, str]]:
    """Return default and help text of each option of a method, by name."""
    if not method.options:
        return {}
    return {
        each.name: (each.default, each.metadata["help"])
        for each in fields(load_name(method.options))
    }
