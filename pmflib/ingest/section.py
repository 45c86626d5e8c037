"""What all sections of a configuration share, and mistakes in them, in words."""

from __future__ import annotations

import reprlib
import textwrap
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from pmflib.core.errors import ConfigError
from pmflib.core.texts import list_near, mask_secrets


class Section(BaseModel):
    """Options that are checked, and do not change; a subclass describes them in its docstring."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Put every option with its default and its description into the docstring."""
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
    """Check options given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range: one line each.
    """
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(list_problems(error, section, depth=depth))) from None


MAX_SHOWN = 300
"""Characters of a wrong value that a message shows, at most."""
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = MAX_SHOWN


def list_problems(error: ValidationError, section: type[BaseModel], *, depth: int = 1) -> list[str]:
    """Describe what is wrong, one line per option.

    Parameters
    ----------
    error
        What was found.
    section
        What was checked.
    depth
        1 for a section, 2 for a configuration of sections.
    """
    messages: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for problem in error.errors():
        # below the option are the names of alternative types: one mistake, one line
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
    """Text of a value as it was given, without secrets, shortened where it is long or deep."""
    text = mask_secrets(_SHOWN.repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _word(problem: str, message: str, where: str, section: type[BaseModel]) -> str:
    """Say what is wrong with an option, and what it could have been."""
    if problem == "missing":
        return "is required"
    if problem != "extra_forbidden":
        said = message.removeprefix("Value error, ")
        # the option stands before it already, with its section
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
