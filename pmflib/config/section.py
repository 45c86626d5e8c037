"""What all sections of a configuration share."""

from __future__ import annotations

import textwrap
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict


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
