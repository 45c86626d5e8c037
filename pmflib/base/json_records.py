"""Dataclasses from plain JSON types: the inverse of `dataclasses.asdict`, validated against the annotations."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")


def from_json(kind: type[T], value: Any) -> T:
    """Build an instance of a dataclass, or of a container of them, from plain JSON types.

    Parameters
    ----------
    kind
        A dataclass, or any annotation of its fields: ``str``, ``int``, ``float``, ``bool``, ``Any``, ``object``,
        ``list``, ``tuple``, ``dict`` or ``Mapping`` of these, a union, a ``Literal`` (only its type is checked), or a
        text annotated with a compiled regular expression that must match the whole text.
    value
        Output of `dataclasses.asdict`, possibly read from a file. Fields with defaults may be absent.

    Raises
    ------
    ValueError
        If a field is missing, unknown, or of another type.
    """
    return cast(T, _read(kind, value, "value"))


def _read(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if dataclasses.is_dataclass(kind):
        return _read_fields(cast(type, kind), value, name)
    if origin is Annotated:
        text, pattern = _read(arguments[0], value, name), arguments[1]
        if isinstance(pattern, re.Pattern) and not pattern.fullmatch(text):
            raise ValueError(f"{name} {text!r} does not match {pattern.pattern}")
        return text
    if origin is Literal:
        return _read(type(arguments[0]), value, name)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (rest,) = (each for each in arguments if each is not type(None))
        return _read(rest, value, name)
    if origin in (list, tuple):
        return origin(_read(arguments[0], each, name) for each in _check_type(list, value, name))
    if origin in (dict, Mapping):
        items = _check_type(dict, value, name).items()
        return {key: _read(arguments[1], each, f"{name}[{key!r}]") for key, each in items}
    if kind is float and type(value) is int:
        return float(value)
    return _check_type(kind, value, name)


def _check_type(kind: type, value: Any, name: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{name} is a {type(value).__name__}, expected {kind.__name__}")
    return value


def _read_fields(kind: type, value: Any, name: str) -> Any:
    known, required = _list_fields(kind)
    data = _check_type(dict, value, name)
    if unknown := sorted(data.keys() - known):
        raise ValueError(f"{name} has unknown keys {unknown}")
    if absent := sorted(required - data.keys()):
        raise ValueError(f"{name} lacks {absent}")
    return kind(**{key: _read(known[key], each, key) for key, each in data.items()})


@functools.cache
def _list_fields(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the annotation of each field by name, and the names of fields without a default."""
    hints = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    required = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return {field.name: hints[field.name] for field in fields}, required
