"""Options shared by a function and a command, as frozen dataclasses.

The metadata of each field contains its help text, which the command line shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from numbers import Integral
from typing import Any

from pmflib.base.errors import PmfError
from pmflib.base.methods import CROWD_METHODS, select_methods


def option(default: Any, text: str, **more: Any) -> Any:
    """Define a field of an options object with its default and help text.

    Parameters
    ----------
    default
        Default value.
    text
        Help text.
    more
        Further settings of the command line, as used by `pmflib_flows.option_objects.takes_options`.
    """
    return field(default=default, metadata={"help": text, **more})


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


@dataclass(frozen=True)
class Recommendations:
    """Options of recommendations; the metadata of each field has its help, which `pmf recommend --help` shows.

    Besides, ``groups`` are pairs of an item and its group, and ``most_per_group`` is the maximum number of items of the
    same group for each sample. Items without a group are not limited.
    """

    top: int = option(
        20, "Number of items for each sample; fewer if it has fewer candidates.", min=1
    )
    value: str = option(
        "E(item)",
        "Value of an item: E(item), its expected value if it is answered, or the probability of levels, as P(item>=4) "
        "or P(item=yes).",
    )
    source: str = option(
        "model",
        "Basis of the values: model, or counts: a regression of the probability of the levels on the other answers, by "
        "counts of pairs.",
        flags=("--from",),
    )
    exclude: str = option(
        "seen", "seen leaves out the items that a sample has answered, none leaves out nothing."
    )
    items: tuple[str, ...] | None = option(
        None, "Candidates: a,b,c. Default: all variables.", separator=","
    )
    not_items: tuple[str, ...] = option((), "Items to leave out: a,b,c.", separator=",")
    at_least: int = option(
        0, "Minimum number of answers to an item: few determine its values imprecisely.", min=0
    )
    penalty: float = option(
        0.0,
        "Subtracted from the value, for the order of items, for each factor of ten in their number of answers.",
    )
    groups: tuple[tuple[str, str], ...] = ()
    most_per_group: int | None = None

    def __post_init__(self) -> None:
        numbers: list[tuple[str, Any, int]] = [
            ("top", self.top, 1),
            ("at_least", self.at_least, 0),
            ("most_per_group", self.most_per_group, 1),
        ]
        for name, number, least in numbers:
            whole = isinstance(number, Integral) and not isinstance(number, bool)
            if number is not None and not (whole and number >= least):
                raise PmfError(f"{name} is {number!r}; give a whole number of at least {least}")
        if self.source not in ("model", "counts"):
            raise PmfError(f"source (--from) is {self.source!r}; give 'model' or 'counts'")
        if self.exclude not in ("seen", "none"):
            raise PmfError(
                f"exclude is {self.exclude!r}; give 'seen' or 'none', and other items as a list or by --not-items"
            )
        if not math.isfinite(self.penalty):
            raise PmfError(f"penalty is {self.penalty}; give a finite number")
        if (self.most_per_group is None) != (not self.groups):
            raise PmfError(
                f"most_per_group is {self.most_per_group} and groups has {len(self.groups)} items; give both or neither"
            )

    def to_json(self) -> dict[str, object]:
        """Return the options as plain JSON types."""
        return asdict(self)
