"""Infer the role of a column, and propose a variable."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import Literal

import numpy as np

from pmflib.base.errors import SchemaError
from pmflib.base.texts import natural_key
from pmflib.schema.value_counts import ValueCounts, find_strays, make_bins
from pmflib.schema.variable import (
    DEFAULT_MISSING,
    UNKNOWN,
    Role,
    Variable,
    as_text,
    read_number,
)
from pmflib.surveys.drafting.column_meaning import (
    Numbers,
    Times,
    find_free_text,
    find_identifier,
    find_nominal_numbers,
    find_several,
    find_times,
    find_weight,
    is_replicate,
    may_be_weight,
)
from pmflib.surveys.drafting.level_order import (
    UNORDERED,
    LevelOrder,
    find_level_order,
    join_levels,
    suggest_order,
)
from pmflib.surveys.drafting.missing_codes import HIGH_CODES, CodeProposal
from pmflib.surveys.drafting.remedies import COMMANDS, Remedies

_CAPITALS = re.compile("[A-Z]{2,3}")
ONE_LEVEL = (
    "only one value was seen: add the levels that others may give, take the variable out, or, where empty means no, "
    "name that level (pmf infer --absent no)"
)
"""Note on variables with a single observed value."""
COVERAGE = 0.9
"""Share of values that the kept levels of a column with very many must cover."""
MAX_KEPT = 100
"""Largest number of levels that are kept of a column with very many."""
LEAST_COUNT = 5
"""Least count of a level that is kept of a column with very many."""
LEAST_ESTIMATED = 30
"""Count from which a level of a column with very many is always kept: the standard error of its share is then a fifth
of it."""
LEAST_COVERAGE = 0.3
"""Least share of values that the kept levels cover for the column to be a variable."""
ROWS_PER_LEVEL = 10
"""Number of values per distinct number below which numbers are binned."""
MOST_ORDERED = 1000
"""Largest number of levels that a user may declare as ordered."""
FEW_NUMBERS = 12
"""Number of distinct numbers up to which numbers are always levels."""
OTHER = "other"
"""Name of the level of all other texts, unless the column has a level of this name."""
WEIGHT_NOTE = "left out: a weight of samples"
"""Beginning of notes on columns that look like weights."""
DECLARED_WEIGHT = "by which the file weights its cases"
"""Reason for the weight that a file declares."""
REPLICATE_NOTE = "left out: a replicate weight"
"""Beginning of notes on columns that look like replicate weights."""

WISHED = "names, as was wished"
"""Reason for nominal numbers that a user has declared."""

RoleWish = Role | Literal["identifier"]


@dataclass(frozen=True)
class Wishes:
    """Requests of a user for a variable; None leaves the choice to the draft.

    Parameters
    ----------
    role
        Role of the variable.
    other
        Number of most frequent levels to keep, while the others are merged into one; 0 keeps all.
    is_kept
        Whether the column must become a variable, unless it identifies rows.
    """

    role: RoleWish | None = None
    other: int | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class Proposal:
    """Proposal for a column.

    Parameters
    ----------
    variable
        The variable; None if the column is left out.
    role
        Role of the variable; "identifier" or "left out" without one.
    note
        What to check, with the reason; "" if there is nothing.
    why
        Short reason for the role.
    share_missing
        Share of missing values, in [0, 1].
    codes
        Proposed missing codes, in addition to the common ones.
    strays
        Counts of stray words among numbers, which are neither levels nor missing codes.
    """

    variable: Variable | None
    role: str
    note: str
    why: str
    share_missing: float
    codes: tuple[CodeProposal, ...] = ()
    strays: Mapping[str, int] = field(default_factory=dict)


def give_absent(proposal: Proposal, absent: str | None) -> Proposal:
    """Make the empty cells of a column of one value a level, which comes first; other proposals are kept.

    Raises
    ------
    SchemaError
        If the level is the value itself.
    """
    variable = proposal.variable
    if absent is None or variable is None or variable.cardinality != 1:
        return proposal
    if variable.encode_value(absent) != UNKNOWN:
        raise SchemaError(
            f"absent is {absent!r}, which means something else in {variable.name!r}, of the value "
            f"{variable.levels[0]!r}; give another text, such as 'no'"
        )
    levels = (absent, *variable.levels)
    made = replace(variable, levels=levels, values=None, edges=None, absent=absent)
    why = f"{variable.levels[0]!r}, or nothing, which is {absent!r}"
    return replace(proposal, variable=made, role=made.role, note="", why=why)


def propose_variable(
    name: str,
    value_counts: ValueCounts,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    codes: Sequence[CodeProposal] = (),
    max_levels: int = 32,
    bins: int = 8,
    is_scale: bool = False,
    is_answer: bool = False,
    wishes: Wishes | None = None,
    remedies: Remedies = COMMANDS,
    finds_strays: bool = True,
) -> Proposal:
    """Draft a variable, with its role, the reason for it, and a note on what a user should check.

    Parameters
    ----------
    name
        Name of the variable.
    value_counts
        Counts of the values.
    missing
        Common missing codes.
    codes
        Missing codes of this column.
    max_levels
        Limit of levels: numeric columns with more distinct values are binned; of other columns with more, the most
        frequent levels are kept and the others are merged.
    bins
        Number of bins of a continuous column, whose edges are quantiles.
    is_scale
        Whether few numbers are levels of a scale, however rare each is.
    is_answer
        Whether the values are answers of a long log, which cannot identify samples.
    wishes
        Requests of the user.
    remedies
        Texts on how to change the draft.
    finds_strays
        Whether to set aside stray words among numbers.

    Returns
    -------
    The proposal, without a variable if the column identifies rows, has many times or free text, or has no values.
    """
    wishes = wishes or Wishes()
    absent = {text.strip() for text in missing}
    code_numbers = {number for each in codes if (number := read_number(each.text)) is not None}
    said = {each.text for each in codes}
    all_missing = tuple(dict.fromkeys([*missing, *(each.text for each in codes)]))
    seen = {
        text: count
        for text, count in value_counts.counts.items()
        if text not in absent
        and text not in said
        and not (code_numbers and read_number(text) in code_numbers)
    }
    n_rows = value_counts.n_rows
    n_missing = n_rows - sum(seen.values()) - value_counts.uncounted
    share = n_missing / n_rows if n_rows else 1.0

    may_stray = finds_strays and wishes.role != "nominal" and not value_counts.categories
    strays = find_strays(seen) if may_stray else {}
    given = {text: count for text, count in seen.items() if text not in strays}

    def propose(variable: Variable | None, role: str, note: str, why: str) -> Proposal:
        if strays:
            why = f"{why}; {sum(strays.values()):,} values are words, which are no levels"
        return Proposal(variable, role, note, why, share, tuple(codes), strays)

    if not seen:
        return propose(None, "left out", "left out: no value was seen", "no value was seen")
    numbers = {text: number for text in given if (number := read_number(text)) is not None}
    if strays and not is_scale and find_nominal_numbers(name, numbers, given):
        # "V57" among codes such as 250 is a code as well
        strays, given = {}, seen
    all_numbers: Numbers = numbers if len(numbers) == len(given) else {}
    draft = _Draft(
        name,
        value_counts,
        given,
        all_numbers,
        all_missing,
        max_levels,
        bins,
        is_scale,
        wishes,
        remedies,
    )
    if wishes.role is None and (times := find_times(name, given)) is not None:
        return propose(*draft.propose_times(times))
    is_asked = wishes.role is None and not (is_answer or wishes.is_kept)
    if is_asked and not all_numbers and (why := find_free_text(name, value_counts, given)):
        return propose(None, "left out", f"left out: {why}; {remedies.keep_text}", why)
    if wishes.role in (None, "identifier"):
        why = "" if is_answer else find_identifier(name, value_counts, all_numbers, len(given))
        if wishes.role == "identifier":
            why = "as was wished"
        if why:
            note = f"left out: an identifier, {why}; {remedies.keep_identifier}"
            return propose(None, "identifier", note, why)
    if is_asked and not is_scale:
        if is_replicate(name, value_counts, all_numbers):
            note = f"{REPLICATE_NOTE}, by its name; {remedies.keep_replicate}"
            return propose(None, "left out", note, "its name")
        if why := find_weight(name, value_counts, all_numbers):
            note = f"{WEIGHT_NOTE}, {why}; {remedies.keep_weight}"
            return propose(None, "left out", note, why)
    if all_numbers and wishes.role != "nominal" and not draft.has_own_order:
        return propose(*draft.propose_numeric())
    wished = WISHED if all_numbers and not draft.has_own_order else ""
    return propose(*draft.propose_texts(wished))


def _may_be_ordered(order: LevelOrder | None) -> bool:
    """Whether levels are in an order that a user may declare to have a meaning."""
    return order is None or not (order.reason == UNORDERED or order.aside)


_Made = tuple[Variable | None, str, str, str]
"""Variable, role, note and reason."""


@dataclass(frozen=True)
class _Draft:
    """A column whose role is being determined."""

    name: str
    value_counts: ValueCounts
    seen: Mapping[str, int]
    numbers: Numbers
    missing: tuple[str, ...]
    max_levels: int
    bins: int
    is_scale: bool
    wishes: Wishes
    remedies: Remedies

    @property
    def has_own_order(self) -> bool:
        """Whether the data declare an order of the levels other than that of numbers."""
        declared = [self.numbers[text] for text in self.declared if text in self.numbers]
        return bool(self.declared) and (
            len(declared) < len(self.seen) or declared != sorted(declared)
        )

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """Levels in the order declared by the data; empty if there is none, or there are too many levels."""
        order = tuple(text for text in self.value_counts.categories if text in self.seen)
        most = MOST_ORDERED if self.value_counts.is_ordered else self.max_levels
        is_whole = len(order) == len(self.seen) and not self.value_counts.overflowed
        return order if is_whole and len(order) <= most else ()

    def propose_times(self, times: Times) -> _Made:
        """Propose few dates or times as ordered levels, and leave out columns with many."""
        texts = times.ordered
        if len(texts) > self.max_levels and not self.wishes.is_kept:
            return None, "left out", f"left out: {times.reason}; {times.offer}", times.reason
        if len(texts) > self.max_levels or self.value_counts.overflowed or len(texts) == 1:
            return self.propose_texts(times.reason)
        values = tuple(float(rank) for rank in range(1, len(texts) + 1))
        variable = Variable(self.name, texts, values, missing=self.missing)
        return (
            variable,
            "ordinal",
            f"ordinal: {times.reason}, in order; {times.offer}",
            times.reason,
        )

    def _ask_for_code(self, values: Sequence[float]) -> str:
        """Ask whether the last of few numbers is a missing code if it looks like one and is far from the others."""
        if len(values) < 4 or values[-1] not in HIGH_CODES:
            return ""
        if values[-1] - values[-2] <= 2 * (values[-2] - values[-3]):
            return ""
        text = f"{values[-1]:g}"
        remedy = self.remedies.name_missing.format(text=text)
        return f"{text} stands apart from the others: a missing code? {remedy}"

    def _ask_for_weight(self) -> str:
        """Ask whether numbers under a name such as "wt" are weights."""
        is_asked = self.wishes.role is None and may_be_weight(self.name, self.numbers)
        return f"a weight of samples? {self.remedies.keep_weight}" if is_asked else ""

    def propose_numeric(self) -> _Made:
        """Propose codes, ordered levels or, if there are too many, bins."""
        wish = self.wishes.role
        why = (
            ""
            if wish or self.is_scale
            else find_nominal_numbers(self.name, self.numbers, self.seen)
        )
        by_number = {
            n: t for n, t in sorted(((n, t) for t, n in self.numbers.items()), reverse=True)
        }
        few = len(by_number) <= self.max_levels and not self.value_counts.overflowed
        if why:
            return self.propose_texts(why)
        if wish == "continuous" and len(by_number) > 1:
            few = False
        elif wish == "ordinal":
            few = len(by_number) <= MOST_ORDERED
        elif few and len(by_number) > max(FEW_NUMBERS, self.bins) and not self.is_scale:
            few = sum(self.seen.values()) >= ROWS_PER_LEVEL * len(by_number)
        if few or len(by_number) == 1:
            values = tuple(sorted(by_number))
            levels = tuple(min(by_number[value], as_text(value), key=len) for value in values)
            note = self._ask_for_weight() or self._ask_for_code(values)
            note = ONE_LEVEL if len(values) == 1 else note
            variable = Variable(self.name, levels, values, missing=self.missing)
            return variable, "ordinal", note, f"{len(values)} distinct numbers"
        return self._propose_bins()

    def _propose_bins(self) -> _Made:
        order = sorted(self.numbers, key=self.numbers.__getitem__)
        points, where = np.unique([self.numbers[text] for text in order], return_inverse=True)
        counts = np.array([self.seen[text] for text in order], np.float64)
        weights = np.bincount(where, counts).astype(np.float64)
        binned = make_bins(points, weights, self.bins)
        variable = Variable(self.name, binned.labels, binned.means, binned.edges, self.missing)
        note = f"continuous: cut into {len(binned.labels)} bins at the quantiles; values are the bins' means"
        if asked := self._ask_for_weight():
            note = f"{asked}; {note}"
        if binned.alone:
            shown = ", ".join(f"{value:g}" for value in binned.alone[:4])
            note += f"; a bin of its own for {shown}, which a large share of the values is"
        distinct = f"{'at least ' if self.value_counts.overflowed else ''}{points.size}"
        return variable, "continuous", note, f"{distinct} distinct numbers"

    def propose_texts(self, why: str) -> _Made:
        """Propose the levels in order; of very many, only the most frequent are kept."""
        kept, reason = self._choose_levels()
        if kept is None:
            return None, "left out", reason, reason.removeprefix("left out: ")
        other = None
        if len(kept) < len(self.seen) or self.value_counts.overflowed:
            other = self._name_rest()
        # nominal codes are in numeric order, without values
        ordered = self._find_order(kept) if not why else None
        levels = ordered.levels if ordered else tuple(sorted(kept, key=natural_key))
        values = ordered.values if ordered and other is None else None
        if self.wishes.role == "nominal":
            values = None
        elif self.wishes.role == "ordinal" and other is None and _may_be_ordered(ordered):
            values = values or tuple(float(rank) for rank in range(1, len(levels) + 1))
        if other is not None:
            levels = (*levels, other)
        variable = Variable(self.name, levels, values, None, self.missing, other)
        role = variable.role
        why = why or (ordered.reason if ordered else "")
        if len(levels) == 1:
            return variable, role, ONE_LEVEL, why
        return variable, role, reason or self._remark(variable, why), why

    def _remark(self, variable: Variable, why: str) -> str:
        if variable.role == "ordinal":
            return f"ordinal: {why}"
        if self.numbers:
            return f"nominal: {why}; {self.remedies.make_ordinal}"
        if several := self._note_several():
            return f"nominal: {several}"
        note = "nominal: " + why
        if odd := sorted(text for text in self.seen if read_number(text) is not None):
            note += f"; some levels read as numbers ({odd[0]!r}): a missing code among them?"
        elif near := suggest_order(variable.levels):
            note = f"nominal: {near.reason}; "
            if near.aside:
                how = self.remedies.name_missing.format(text=shlex.quote(near.aside[0]))
                note += f"if {near.aside[0]!r} is no answer: {how}; "
            how = self.remedies.put_in_order.format(
                levels=near.levels, line=join_levels(near.levels)
            )
            note += f"if all are steps: {how}"
        elif len(variable.levels) > 2:
            note += "; put the levels in order and give values if they have one"
        if self._may_be_code():
            note += (
                f"; 'NA' is taken for missing, and may be one of them; {self.remedies.keep_codes}"
            )
        return note

    def _may_be_code(self) -> bool:
        """Whether "NA" may be a level, as of continents: beside other codes of a few capitals."""
        is_there = "NA" in self.missing and self.value_counts.counts.get("NA", 0) > 0
        return is_there and all(map(_CAPITALS.fullmatch, self.seen))

    def _note_several(self) -> str:
        """Describe cells with several answers, and say how to split them; "" if cells have one."""
        sign, found = find_several(self.seen)
        return found and f"{found}; {self.remedies.split.format(column=self.name, sign=sign)}"

    def _name_rest(self) -> str:
        """Name for the level of all other texts that the column does not contain."""
        taken = {text.casefold() for text in (*self.seen, *self.missing)}
        words = chain([OTHER, "all others"], (f"all others {number}" for number in count(2)))
        return next(word for word in words if word not in taken)

    def _find_order(self, kept: Sequence[str]) -> LevelOrder:
        """Order declared by the data, or found from the words."""
        found = find_level_order(kept)
        order = tuple(text for text in self.declared if text in set(kept))
        if not order:
            return found
        if self.value_counts.is_ordered:
            values = tuple(float(rank) for rank in range(1, len(order) + 1))
            return LevelOrder(order, values, "the order of the categories in the table")
        if order == found.levels or list(order) == sorted(order):
            # an alphabetic order of categories is most likely generated
            return found
        return LevelOrder(order, None, "names in the order of the categories in the table")

    def _choose_levels(self) -> tuple[list[str] | None, str]:
        """Choose the levels to keep, None for none, and a note unless all are kept."""
        wish = self.wishes.other
        distinct = len(self.seen)
        most_levels = MOST_ORDERED if self.wishes.role == "ordinal" else self.max_levels
        if self.declared:
            most_levels = len(self.declared)
        if wish == 0 or (
            wish is None and distinct <= most_levels and not self.value_counts.overflowed
        ):
            return list(self.seen), ""
        at_least = "at least " if self.value_counts.overflowed else ""
        total = sum(self.seen.values()) + self.value_counts.uncounted
        ranked = sorted(self.seen, key=lambda text: (-self.seen[text], natural_key(text)))
        covered = np.cumsum([self.seen[text] for text in ranked]) / total
        if wish is not None:
            k = min(wish, distinct)
        else:
            counts = [self.seen[text] for text in ranked]
            enough = sum(count >= LEAST_COUNT for count in counts)
            common = min(int(np.searchsorted(covered, COVERAGE)) + 1, enough)
            estimated = sum(count >= LEAST_ESTIMATED for count in counts)
            k = min(max(common, estimated), max(MAX_KEPT, self.max_levels))
        if k >= distinct and not self.value_counts.overflowed:
            return ranked, ""
        kept_on_purpose = self.wishes.is_kept or wish is not None or self.wishes.role is not None
        if not kept_on_purpose and (several := self._note_several()):
            return None, f"left out: {several}"
        if k < 1 or (covered[k - 1] < LEAST_COVERAGE and not kept_on_purpose):
            share = f"the {k} most frequent hold {covered[k - 1]:.0%}" if k else "none is frequent"
            return None, (
                f"left out: {at_least}{distinct} distinct texts, of which {share}: free text, or an identifier; "
                f"{self.remedies.keep_text}"
            )
        other = self._name_rest()
        named = "" if other == OTHER else f", for {OTHER!r} is a value of its own"
        return ranked[:k], (
            f"{at_least}{distinct} levels: the {k} most frequent are kept, {covered[k - 1]:.1%} of the values, and the "
            f"others, {1 - covered[k - 1]:.1%}, are one level, {other!r}{named}; {self.remedies.choose_levels}"
        )
