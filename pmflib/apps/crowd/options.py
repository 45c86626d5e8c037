"""Options of estimating true labels, shared by `aggregate` and ``pmf crowd``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from pmflib.apps.crowd.methods import CROWD_METHODS
from pmflib.base.methods import select_methods
from pmflib.base.options import option


class RepeatedAnswers(StrEnum):
    """Which of several answers of one worker to a task is used."""

    FIRST = "first"
    LAST = "last"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class CrowdOptions:
    """Options for estimating true labels: keywords of `pmflib.apps.crowd.aggregate`, and options of ``pmf crowd``.

    A field that is None is not given and takes the default of `aggregate`, which documents each of them. Pass the
    object as ``aggregate(labels, **options.list_given())``.

    Examples
    --------
    >>> CrowdOptions(method="robust", em=False).list_given()
    {'method': 'robust', 'em': False}
    """

    classes: Sequence[Any] | None = option(
        None,
        "Possible labels: a,b,c.",
        separator=",",
        show_default="all",
        rich_help_panel="Method",
    )
    ordinal: bool | None = option(
        None,
        "Treat labels as ordered, so that errors to neighbouring labels are more likely.",
        flags=("--ordinal/--nominal",),
        show_default="nominal",
        rich_help_panel="Method",
    )
    known: Any = option(
        None,
        "File of tasks with known true labels, with the columns of task and label.",
        parsed_as=str,
        show_default="none",
        rich_help_panel="Method",
    )
    classifier: Any = option(
        None,
        "File of a model's class probabilities, Parquet or CSV: a column with the task and one per class.",
        parsed_as=str,
        show_default="none",
        rich_help_panel="Method",
    )
    method: str | None = option(
        None,
        f"{', '.join(select_methods(CROWD_METHODS, 'passes'))} iterate over the tasks; "
        f"{', '.join(select_methods(CROWD_METHODS, 'pairs'))} start from pairs of workers.",
        show_default="auto",
        rich_help_panel="Method",
    )
    on_repeated: str | None = option(
        None,
        "Which of several answers of one worker to a task to use (the others go to quarantine), or stop.",
        parsed_as=RepeatedAnswers,
        show_default="last",
        rich_help_panel="Method",
    )
    em: bool | None = option(
        None,
        "Refine methods based on pairs of workers by EM passes.",
        flags=("--em/--no-em",),
        show_default="em",
        rich_help_panel="Method",
    )
    rng: Any = option(
        None,
        "Random seed.",
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
        """Return the given fields by name."""
        each = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in each.items() if value is not None}
