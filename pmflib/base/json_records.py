"""Dataclasses as plain JSON types and back: written field by field, and checked against their annotations when read.

A field is written under its own name, as it is, unless its annotation says otherwise:

>>> @dataclasses.dataclass(frozen=True)
... class Gain(JsonRecord):
...     value: float
...     error: Annotated[float, Form.UNKNOWN]
...     cells: Annotated[int, "n_cells"]
>>> Gain(0.5, math.inf, 9).to_json()
{'value': 0.5, 'error': None, 'n_cells': 9}
>>> Gain.from_json({"value": 0.5, "error": None, "n_cells": 9})
Gain(value=0.5, error=inf, cells=9)
>>> Gain.from_json({"value": 0.5, "error": "low", "n_cells": 9})
Traceback (most recent call last):
ValueError: Gain.error is 'low', expected float
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

T = TypeVar("T")


class Form(Enum):
    """How a field is written, as part of its annotation; a text there is the key that it is written under."""

    FLAT = auto()
    """A record whose keys are written among those of its owner; none if it is None."""
    GIVEN = auto()
    """No key if it is None."""
    HIDDEN = auto()
    """Never written."""
    TEXT = auto()
    """Whole numbers, written as texts because they may exceed the precision of a double."""
    UNKNOWN = auto()
    """A number that is infinite if it is unknown, and then written as null."""


class JsonRecord:
    """Base of dataclasses that have methods to convert them to plain JSON types, and to restore them.

    Attributes
    ----------
    computed
        Properties that are written after the fields, and ignored when read.
    """

    computed: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types."""
        return _write_fields(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Restore a record from `to_json`.

        Raises
        ------
        ValueError
            If a field is missing, unknown, or of another type.
        """
        return cast(Self, _read_fields(cls, content, cls.__name__))


def to_json(value: Any) -> Any:
    """Convert dataclasses, mappings and sequences of them to plain JSON types.

    Parameters
    ----------
    value
        A dataclass, an object with a method ``to_json``, a mapping, a list or tuple of these, or a plain JSON type.

    Returns
    -------
    The same as a dictionary, a list, or as it is; a tuple becomes a list.
    """
    if isinstance(value, str | int | float | None):
        # scalars of NumPy are floats as well
        return float(value) if isinstance(value, float) else value
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return _write_fields(value)
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def from_json(kind: type[T], value: Any, *, is_part: bool = False) -> T:
    """Build an instance of a dataclass, or of a container of them, from plain JSON types.

    Parameters
    ----------
    kind
        A dataclass, which reads itself if it has a method ``from_json`` of its own; or any annotation of its fields:
        ``str``, ``int``, ``float``, ``bool``, ``Any``, ``object``, ``list``, ``tuple``, ``Sequence``, ``dict``,
        ``Mapping`` or ``Counter`` of these, a ``TypedDict`` (only the type is checked, as of a ``Literal``), a union,
        or a text annotated with a compiled regular expression that must match the whole text.
    value
        Output of `to_json` or `dataclasses.asdict`, possibly read from a file. Fields with defaults may be absent.
    is_part
        Whether the record is written among other keys, which are ignored.

    Raises
    ------
    ValueError
        If a field is missing, unknown, or of another type.
    """
    name = getattr(kind, "__name__", "value") if dataclasses.is_dataclass(kind) else "value"
    if is_part:
        value = {key: each for key, each in value.items() if key in _list_keys(cast(Any, kind))}
    return cast(T, _read(kind, value, name))


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a record: the key and the form that it is written in, and the default is None where it has none."""

    name: str
    key: str
    kind: Any
    form: Form | None
    is_required: bool

    @property
    def record(self) -> Any:
        """Class of a flat field."""
        rest = [each for each in get_args(self.kind) if each is not type(None)]
        return rest[0] if rest else self.kind


@functools.cache
def _list_fields(kind: Any) -> tuple[_Field, ...]:
    hints, found = get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):
        hint, key, form = hints[field.name], field.name, None
        if get_origin(hint) is Annotated:
            marks = hint.__metadata__
            key = next((each for each in marks if isinstance(each, str)), key)
            form = next((each for each in marks if isinstance(each, Form)), None)
            # a pattern is checked with the value
            hint = hint if form is None and key == field.name else hint.__origin__
        missing = dataclasses.MISSING
        is_required = field.default is missing and field.default_factory is missing
        found.append(_Field(field.name, key, hint, form, is_required))
    return tuple(found)


@functools.cache
def _list_keys(kind: Any) -> frozenset[str]:
    """Return all keys that a record may be written with."""
    keys = set(getattr(kind, "computed", ()))
    for field in _list_fields(kind):
        if field.form is Form.FLAT:
            keys |= _list_keys(field.record)
        elif field.form is not Form.HIDDEN:
            keys.add(field.key)
    return frozenset(keys)


def _write_fields(record: Any) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for field in _list_fields(cast(Any, type(record))):
        value, form = getattr(record, field.name), field.form
        if form is Form.HIDDEN or (value is None and form in (Form.FLAT, Form.GIVEN)):
            continue
        if form is Form.FLAT:
            content |= to_json(value)
        elif form is Form.TEXT:
            content[field.key] = [str(each) for each in value]
        elif form is Form.UNKNOWN:
            content[field.key] = value if math.isfinite(value) else None
        else:
            content[field.key] = to_json(value)
    for name in getattr(record, "computed", ()):
        content[name] = to_json(getattr(record, name))
    return content


def _read_fields(kind: Any, value: Any, name: str) -> Any:
    content = _check_type(dict, value, name)
    if unknown := sorted(content.keys() - _list_keys(kind)):
        raise ValueError(f"{name} has unknown keys {unknown}; known: {sorted(_list_keys(kind))}")
    found, absent = {}, []
    for field in _list_fields(kind):
        if field.form is Form.FLAT:
            part = {key: content[key] for key in _list_keys(field.record) if key in content}
            if part or field.is_required:
                found[field.name] = _read(field.record, part, name)
        elif field.key in content:
            each = content[field.key]
            if field.form is Form.UNKNOWN and each is None:
                each = math.inf
            elif field.form is Form.TEXT:
                each = [int(text) for text in _check_type(list, each, f"{name}.{field.key}")]
            found[field.name] = _read(field.kind, each, f"{name}.{field.key}")
        elif field.is_required:
            absent.append(field.key)
    if absent:
        raise ValueError(f"{name} lacks {sorted(absent)}")
    return kind(**found)


def _read(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if dataclasses.is_dataclass(kind):
        own: Any = getattr(kind, "from_json", JsonRecord.from_json)
        is_own = own.__func__ is not cast(Any, JsonRecord.from_json).__func__
        return own(value) if is_own else _read_fields(kind, value, name)
    if origin is Annotated:
        text, pattern = _read(arguments[0], value, name), arguments[1]
        if isinstance(pattern, re.Pattern) and not pattern.fullmatch(text):
            raise ValueError(f"{name} is {text!r}, which does not match {pattern.pattern}")
        return text
    if origin is Literal:
        return _read(type(arguments[0]), value, name)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, name)
    if origin in (list, tuple, Sequence):
        items = _check_type(list, value, name)
        kinds = [arguments[0]] * len(items)
        if origin is tuple and arguments[-1] is not Ellipsis:
            kinds = [*arguments]
        if len(kinds) != len(items):
            raise ValueError(f"{name} has {len(items)} items, expected {len(kinds)}")
        read = [
            _read(*each, f"{name}[{n}]") for n, each in enumerate(zip(kinds, items, strict=True))
        ]
        return tuple(read) if origin is tuple else read
    if origin in (dict, Mapping, Counter):
        items = _check_type(dict, value, name).items()
        content = {key: _read(arguments[-1], each, f"{name}[{key!r}]") for key, each in items}
        return Counter(content) if origin is Counter else content
    if kind is float and type(value) is int:
        # it is written again as it was
        return value
    return _check_type(dict if is_typeddict(kind) else kind, value, name)


def _read_union(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    rest = [each for each in kinds if each is not type(None)]
    # of several, the one whose type it has
    return _read(next((each for each in rest if each is type(value)), rest[0]), value, name)


def _check_type(kind: Any, value: Any, name: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{name} is {repr(value)[:60]}, expected {kind.__name__}")
    return value
