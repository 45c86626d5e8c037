"""Base class of the sections of a configuration, and messages about invalid options."""

from __future__ import annotations

import reprlib
import textwrap
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from pmflib.core.errors import ConfigError
from pmflib.core.texts import list_near, mask_secrets


class Section(BaseModel):
    """Immutable, validated options, which are listed in the docstring of each subclass."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Add every option with its default and description to the docstring."""
        options = []
        for name, field in cls.model_fields.items():
            default = "required" if field.is_required() else f"default {field.default!r}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                default = f"a section: see {field.annotation.__name__}"
            if get_origin(field.annotation) is Literal:
                default = f"one of {', '.join(map(repr, get_args(field.annotation)))}; {default}"
            options.append(f"{field.alias or name} ({default})")
            for line in (field.description or "").splitlines():
                options += textwrap.wrap(
                    line, 110, initial_indent=4 * " ", subsequent_indent=6 * " "
                )
        cls.__doc__ = "\n".join([cls.__doc__ or "", "", "Options", "-------", *options])


S = TypeVar("S", bound=BaseModel)


def validate_section(section: type[S], data: dict[str, Any], *, depth: int = 1) -> S:
    """Validate options given as a dictionary.

    Raises
    ------
    ConfigError
        If options are unknown, missing or out of range, one line each.
    """
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(list_problems(error, section, depth=depth))) from None


MAX_SHOWN = 300
"""Largest number of characters of an invalid value in a message."""
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = MAX_SHOWN


def list_problems(error: ValidationError, section: type[BaseModel], *, depth: int = 1) -> list[str]:
    """Describe invalid options, one line each.

    Parameters
    ----------
    error
        Error of the validation.
    section
        Validated model.
    depth
        1 for a section, 2 for a configuration of sections.
    """
    messages: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for problem in error.errors():
        # deeper locations are alternative types of the same option
        where = ".".join(map(str, problem["loc"][:depth])) or "configuration"
        messages.setdefault(where, []).append(
            _word(problem["type"], problem["msg"], where, section)
        )
        if problem["type"] not in {"missing", "value_error"}:
            given.setdefault(where, f" (given: {abridge(problem['input'])})")
    return [
        f"{where}: {' or: '.join(dict.fromkeys(said))}{given.get(where, '')}"
        for where, said in messages.items()
    ]


def abridge(value: object) -> str:
    """Format a value for a message, masking secrets and shortening long values."""
    text = mask_secrets(_SHOWN.repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _word(problem: str, message: str, where: str, section: type[BaseModel]) -> str:
    """Describe an invalid option, with similar names."""
    if problem == "missing":
        return "is required"
    if problem != "extra_forbidden":
        said = message.removeprefix("Value error, ")
        # the line already begins with the option and its section
        return said.removeprefix(f"{where} ") if "." in where else said
    *outer, name = where.split(".")
    fields = section.model_fields
    for step in outer:
        inner = next(f.annotation for n, f in fields.items() if step in (n, f.alias))
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        fields = inner.model_fields
    known = [f.alias or n for n, f in fields.items() if n != "base"]
    close = list_near(name, known)
    return "unknown option; " + (f"did you mean {close}?" if close else f"there are {known}")
