"""Proposing a variable from the values seen in a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.schema.binning import cut_bins
from pmflib.schema.column_roles import Numbers, find_identifier, find_nominal_numbers
from pmflib.schema.level_census import LevelCensus
from pmflib.schema.level_order import natural_key, order_levels
from pmflib.schema.missing_codes import HIGH_CODES, CodeProposal
from pmflib.schema.variable import DEFAULT_MISSING, Role, Variable, as_text, read_number

ONE_LEVEL = "only one value was seen: add the levels that others may give, or take the variable out"
"""Note on a variable of which a single value was seen."""
COVERAGE = 0.9
"""Share of the values that the kept levels of a column with very many hold together, if so few are enough."""
MAX_KEPT = 100
"""Levels that are kept of a column with very many, at most."""
LEAST_COUNT = 5
"""Values that a level must have to be kept of a column with very many."""
LEAST_COVERAGE = 0.3
"""Share of the values that the kept levels must hold for the column to be a variable."""
ROWS_PER_LEVEL = 10
"""Values per distinct number below which a column of some numbers is cut into bins."""
FEW_NUMBERS = 12
"""Distinct numbers that are levels however few values each has."""
CHANGE = "pmf schema set schema.json COLUMN"
"""Command that changes the draft of a column."""

RoleWish = Role | Literal["identifier"]


@dataclass(frozen=True)
class Wishes:
    """What a person wants of a variable; None leaves it to the draft.

    Parameters
    ----------
    role
        What the values are.
    other
        Levels to keep, the most frequent ones, while the rest are one level; 0 keeps all of them.
    is_kept
        Whether the column must become a variable, unless it identifies rows.
    """

    role: RoleWish | None = None
    other: int | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class Proposal:
    """Draft of what becomes of a column.

    Parameters
    ----------
    variable
        None where the column is left out.
    role
        Role of the variable; "identifier" or "left out" where there is none.
    note
        What a person should check, with the reason; empty where nothing is.
    why
        Reason for the role, in short.
    share_missing
        Share of the values that are not given, in [0, 1].
    codes
        Missing codes that were proposed, besides the known texts.
    """

    variable: Variable | None
    role: str
    note: str
    why: str
    share_missing: float
    codes: tuple[CodeProposal, ...] = ()


def propose_variable(
    name: str,
    census: LevelCensus,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    codes: Sequence[CodeProposal] = (),
    max_levels: int = 32,
    bins: int = 8,
    is_scale: bool = False,
    is_answer: bool = False,
    wishes: Wishes | None = None,
) -> Proposal:
    """Draft a variable, with its role, the reason for it, and a note on what a user should check.

    Parameters
    ----------
    name
        Name of the variable.
    census
        Values seen.
    missing
        Texts that mean "not given".
    codes
        Texts and numbers of this column that mean it too.
    max_levels
        A numeric column with more distinct values is cut into bins; of another column with more, the most frequent
        levels are kept, and the others are one level.
    bins
        Number of bins of a continuous column; edges are quantiles of what was seen.
    is_scale
        Whether few numbers are the levels of a scale, however few values each has.
    is_answer
        Whether the values are answers of a long log, none of which identifies the sample.
    wishes
        What a person wants.

    Returns
    -------
    The proposal; it has no variable where the column identifies rows, is free text, or holds no value.
    """
    wishes = wishes or Wishes()
    absent = {text.strip() for text in missing}
    taken = {number for each in codes if (number := read_number(each.text)) is not None}
    said = {each.text for each in codes}
    all_missing = tuple(dict.fromkeys([*missing, *(each.text for each in codes)]))
    seen = {
        text: count
        for text, count in census.counts.items()
        if text not in absent and text not in said and not (taken and read_number(text) in taken)
    }
    n_rows = census.n_rows
    n_missing = n_rows - sum(seen.values()) - census.uncounted
    share = n_missing / n_rows if n_rows else 1.0

    def propose(variable: Variable | None, role: str, note: str, why: str) -> Proposal:
        return Proposal(variable, role, note, why, share, tuple(codes))

    if not seen:
        return propose(None, "left out", "left out: no value was seen", "no value was seen")
    numbers = {text: number for text in seen if (number := read_number(text)) is not None}
    all_numbers: Numbers = numbers if len(numbers) == len(seen) else {}
    if wishes.role in (None, "identifier"):
        why = "" if is_answer else find_identifier(name, census, all_numbers, len(seen))
        if wishes.role == "identifier":
            why = "as was wished"
        if why:
            note = f"left out: an identifier, {why}; name it as source.sample, or keep it: {CHANGE} --role nominal"
            return propose(None, "identifier", note, why)
    draft = _Draft(name, census, seen, all_numbers, all_missing, max_levels, bins, is_scale, wishes)
    if all_numbers and wishes.role != "nominal":
        return propose(*draft.propose_numeric())
    return propose(*draft.propose_texts("names, as was wished" if all_numbers else ""))


def _ask_for_code(values: Sequence[float]) -> str:
    """Question whether the last of few numbers is a missing code, where it looks like one and stands apart."""
    if len(values) < 4 or values[-1] not in HIGH_CODES:
        return ""
    if values[-1] - values[-2] <= 2 * (values[-2] - values[-3]):
        return ""
    return f"{values[-1]:g} stands apart from the others: a missing code? {CHANGE} --missing {values[-1]:g}"


_Made = tuple[Variable | None, str, str, str]
"""Variable, role, note and reason."""


@dataclass(frozen=True)
class _Draft:
    """A column whose role is to be found."""

    name: str
    census: LevelCensus
    seen: Mapping[str, int]
    numbers: Numbers
    missing: tuple[str, ...]
    max_levels: int
    bins: int
    is_scale: bool
    wishes: Wishes

    def propose_numeric(self) -> _Made:
        """Codes, levels in numeric order, or bins where there are too many."""
        wish = self.wishes.role
        why = (
            ""
            if wish or self.is_scale
            else find_nominal_numbers(self.name, self.numbers, self.seen)
        )
        by_number = {
            n: t for n, t in sorted(((n, t) for t, n in self.numbers.items()), reverse=True)
        }
        few = len(by_number) <= self.max_levels and not self.census.overflowed
        if why:
            return self.propose_texts(why)
        if wish == "continuous" and len(by_number) > 1:
            few = False
        elif wish == "ordinal":
            few = len(by_number) <= 1000
        elif few and len(by_number) > max(FEW_NUMBERS, self.bins) and not self.is_scale:
            few = sum(self.seen.values()) >= ROWS_PER_LEVEL * len(by_number)
        if few or len(by_number) == 1:
            values = tuple(sorted(by_number))
            levels = tuple(min(by_number[value], as_text(value), key=len) for value in values)
            note = ONE_LEVEL if len(values) == 1 else _ask_for_code(values)
            variable = Variable(self.name, levels, values, missing=self.missing)
            return variable, "ordinal", note, f"{len(values)} distinct numbers"
        return self._propose_bins()

    def _propose_bins(self) -> _Made:
        order = sorted(self.numbers, key=self.numbers.__getitem__)
        points, where = np.unique([self.numbers[text] for text in order], return_inverse=True)
        counts = np.array([self.seen[text] for text in order], np.float64)
        weights = np.bincount(where, counts).astype(np.float64)
        cut = cut_bins(points, weights, self.bins)
        variable = Variable(self.name, cut.labels, cut.means, cut.edges, self.missing)
        note = f"continuous: cut into {len(cut.labels)} bins at the quantiles; values are the bins' means"
        if cut.alone:
            shown = ", ".join(f"{value:g}" for value in cut.alone[:4])
            note += f"; a bin of its own for {shown}, which a large share of the values is"
        distinct = f"{'at least ' if self.census.overflowed else ''}{points.size}"
        return variable, "continuous", note, f"{distinct} distinct numbers"

    def propose_texts(self, why: str) -> _Made:
        """Levels in the order that they have, of which only the most frequent are kept where there are very many."""
        kept, reason = self._choose_levels()
        if kept is None:
            return None, "left out", reason, reason.removeprefix("left out: ")
        other = None
        if len(kept) < len(self.seen) or self.census.overflowed:
            other = next((text for text in kept if text.casefold() == "other"), "other")
            kept = [text for text in kept if text != other]
        # names of numbers stand in the order of the numbers, and have no values
        ordered = order_levels(kept) if not why else None
        levels = ordered.levels if ordered else tuple(sorted(kept, key=natural_key))
        values = ordered.values if ordered and other is None else None
        if self.wishes.role == "nominal":
            values = None
        elif self.wishes.role == "ordinal" and values is None and other is None:
            values = tuple(float(place) for place in range(1, len(levels) + 1))
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
            return f"nominal: {why}; if they are numbers: --role ordinal"
        note = "nominal: " + why
        if odd := sorted(text for text in self.seen if read_number(text) is not None):
            note += f"; some levels read as numbers ({odd[0]!r}): a missing code among them?"
        elif len(variable.levels) > 2:
            note += "; put the levels in order and give values if they have one"
        return note

    def _choose_levels(self) -> tuple[list[str] | None, str]:
        """Levels that are kept, None for none, and a note where not all are."""
        wish = self.wishes.other
        distinct = len(self.seen)
        most_levels = 1000 if self.wishes.role == "ordinal" else self.max_levels
        if wish == 0 or (wish is None and distinct <= most_levels and not self.census.overflowed):
            return list(self.seen), ""
        at_least = "at least " if self.census.overflowed else ""
        total = sum(self.seen.values()) + self.census.uncounted
        ranked = sorted(self.seen, key=lambda text: (-self.seen[text], natural_key(text)))
        covered = np.cumsum([self.seen[text] for text in ranked]) / total
        if wish is not None:
            k = min(wish, distinct)
        else:
            enough = sum(count >= LEAST_COUNT for count in self.seen.values())
            k = min(
                int(np.searchsorted(covered, COVERAGE)) + 1, enough, max(MAX_KEPT, self.max_levels)
            )
        if k >= distinct and not self.census.overflowed:
            return ranked, ""
        kept_on_purpose = self.wishes.is_kept or wish is not None or self.wishes.role is not None
        if k < 1 or (covered[k - 1] < LEAST_COVERAGE and not kept_on_purpose):
            share = f"the {k} most frequent hold {covered[k - 1]:.0%}" if k else "none is frequent"
            return None, (
                f"left out: {at_least}{distinct} distinct texts, of which {share}: free text, or an identifier; "
                f"keep it: {CHANGE} --other 30"
            )
        return ranked[:k], (
            f"{at_least}{distinct} levels: the {k} most frequent are kept, {covered[k - 1]:.0%} of the values, and the "
            f"others are one level, 'other'; {CHANGE} --other K keeps K, --other none keeps all"
        )
