"""Options of recommendations, shared by `recommend` and ``pmf recommend``."""

from __future__ import annotations

from dataclasses import dataclass

from pmflib.base.constraints import FINITE, OneOf, at_least, check
from pmflib.base.errors import PmfError
from pmflib.base.json_records import JsonRecord
from pmflib.base.options import option


@dataclass(frozen=True)
class Recommendations(JsonRecord):
    """Options of recommendations; the metadata of each field has its help, which `pmf recommend --help` shows.

    Besides, ``groups`` are pairs of an item and its group, and ``most_per_group`` is the maximum number of items of the
    same group for each sample. Items without a group are not limited. ``labels`` are pairs of an item and its label,
    such as a title, which stands beside it.
    """

    top: int = option(
        20, "Number of items for each sample; fewer if it has fewer candidates.", min=1
    )
    value: str = option(
        "auto",
        "Value of an item: auto, answers to it and high answers; or whether it has some levels, as P(item>=4) or "
        "P(item=yes).",
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
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check(
            at_least(1, whole=True, also=(None,)), top=self.top, most_per_group=self.most_per_group
        )
        check(at_least(0, whole=True, also=(None,)), at_least=self.at_least)
        check(OneOf(("seen", "none"), "and other items by --not-items"), exclude=self.exclude)
        check(FINITE, penalty=self.penalty)
        if (self.most_per_group is None) != (not self.groups):
            raise PmfError(
                f"most_per_group is {self.most_per_group} and groups has {len(self.groups)} items; give both or neither"
            )
