"""Options that a function and a command have in common, as frozen dataclasses.

The help of each field is in its metadata, which the command line shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from pmflib.core.methods import CROWD_METHODS, select_methods


def option(default: Any, text: str, **more: Any) -> Any:
    """Field of an options object with its default and its help.

    Parameters
    ----------
    default
        Default value.
    text
        Help.
    more
        What else the command line needs, as `pmflib_flows.option_objects.takes_options` reads it.
    """
    return field(default=default, metadata={"help": text, **more})


class RepeatedAnswers(StrEnum):
    """Which of several answers of one worker to one task counts."""

    FIRST = "first"
    LAST = "last"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class CrowdOptions:
    """How true labels are found: the keywords of `pmflib.crowd.aggregate`, and the options of ``pmf crowd``.

    A field that is None is not given, and takes the default of `aggregate`, which describes each of them. Pass the
    object as ``aggregate(labels, **options.list_given())``.

    Examples
    --------
    >>> CrowdOptions(method="robust", em=False).list_given()
    {'method': 'robust', 'em': False}
    """

    classes: Sequence[Any] | None = option(
        None,
        "Labels that there are: a,b,c.",
        separator=",",
        show_default="all",
        rich_help_panel="Method",
    )
    ordinal: bool | None = option(
        None,
        "Whether labels are in order, and mistakes likelier the nearer they are.",
        flags=("--ordinal/--nominal",),
        show_default="nominal",
        rich_help_panel="Method",
    )
    known: Any = option(
        None,
        "File of tasks whose true label is known, with the columns for tasks and labels.",
        parsed_as=str,
        show_default="none",
        rich_help_panel="Method",
    )
    classifier: Any = option(
        None,
        "File of class probabilities of a model, Parquet or CSV: the column for tasks, and one a class.",
        parsed_as=str,
        show_default="none",
        rich_help_panel="Method",
    )
    method: str | None = option(
        None,
        f"{', '.join(select_methods(CROWD_METHODS, 'passes'))} pass over the tasks; "
        f"{', '.join(select_methods(CROWD_METHODS, 'pairs'))} begin with pairs of workers.",
        show_default="auto",
        rich_help_panel="Method",
    )
    on_repeated: str | None = option(
        None,
        "Several answers of one worker to one task: which counts; the others go to quarantine. Or stop.",
        parsed_as=RepeatedAnswers,
        show_default="last",
        rich_help_panel="Method",
    )
    em: bool | None = option(
        None,
        "Whether passes follow pairs of workers.",
        flags=("--em/--no-em",),
        show_default="em",
        rich_help_panel="Method",
    )
    rng: Any = option(
        None,
        "Seed of what is drawn.",
        flags=("--seed",),
        parsed_as=int,
        min=0,
        show_default="0",
        rich_help_panel="Method",
    )
    on_unknown: str | None = None
    max_passes: int | None = None
    tol: float | None = None

    def list_given(self) -> dict[str, Any]:
        """Fields that are given, by name."""
        each = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in each.items() if value is not None}
