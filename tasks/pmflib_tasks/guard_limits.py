"""Limits of guards, and the declaration of a guard as an option of section ``quality``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from pmflib.ingest.options import Section

Limit: TypeAlias = Annotated[float, Field(ge=0)] | Literal["off"]
"""Limit of a guard; "off" disables it."""


class GuardLimits(Section):
    """Limits of one data quality guard."""

    warn: Limit = "off"
    """Limit beyond which the run continues with a warning."""
    stop: Limit = "off"
    """Limit beyond which the run stops with exit code 6, before a model is fitted."""


@dataclass(frozen=True)
class Guard:
    """Further columns of a guard in the table of guards, besides its name, measure and limits.

    Parameters
    ----------
    remedy
        Advice for data beyond a limit.
    at_least
        Whether the limits are lower limits.
    """

    remedy: str
    at_least: bool = False


def guard(remedy: str, *, warn: Limit = "off", stop: Limit = "off", at_least: bool = False) -> Any:
    """Declare the option of a guard, with its default limits and its row in the table of guards."""
    row = asdict(Guard(remedy, at_least))
    return Field(default=GuardLimits(warn=warn, stop=stop), json_schema_extra=row)
