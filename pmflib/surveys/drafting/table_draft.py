"""Draft all columns of a table, similar (sister) columns in the same way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pmflib.base.texts import list_some
from pmflib.schema.tables import CATEGORIES
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import DEFAULT_MISSING, read_number
from pmflib.surveys.drafting.inference import (
    Proposal,
    Wishes,
    give_absent,
    propose_variable,
)
from pmflib.surveys.drafting.missing_codes import CodeProposal, propose_codes
from pmflib.surveys.drafting.remedies import COMMANDS, PYTHON
from pmflib.surveys.drafting.several_answers import split_columns


def propose_variables(
    columns: pa.Table,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    max_levels: int = 32,
    bins: int = 8,
    finds_codes: bool | Collection[str] = True,
    finds_identifiers: bool = True,
    split: Mapping[str, str] | None = None,
    absent: str | None = None,
) -> dict[str, Proposal]:
    """Draft a variable for each column of a table in memory.

    Stray words among numbers become missing codes, as there is no quarantine.

    Parameters
    ----------
    columns
        The table; the dictionary of a field with metadata `CATEGORIES` declares the levels of the column.
    missing, max_levels, bins
        As in `propose_variable`.
    finds_codes
        Whether to detect missing codes ("unknown", 999, stray words among numbers), and to draft similar columns in the
        same way; or the only texts that may be codes.
    finds_identifiers
        Whether to leave out columns that identify rows.
    split
        Columns whose cells hold several answers, with the sign between these.
    absent
        Level of empty cells in columns of one value.

    Returns
    -------
    A proposal for each column, in order.

    Raises
    ------
    SchemaError
        If a column is nested.
    """
    column_counts = {}
    for field in columns.schema:
        counted = column_counts[field.name] = ValueCounts()
        column = columns[field.name]
        counted.add(column)
        if CATEGORIES in (field.metadata or {}):
            categories = column.combine_chunks().dictionary.to_pylist()
            counted.declare(categories, is_ordered=bool(field.type.ordered))
    parts = split_columns(column_counts, split or {}, missing)
    names = [*column_counts]
    for name in parts:
        del column_counts[name]
    codes = propose_codes(column_counts, missing) if finds_codes else {}
    if not isinstance(finds_codes, bool):
        codes = {name: [c for c in found if c.text in finds_codes] for name, found in codes.items()}
    sisters = find_sisters(column_counts, codes, missing) if finds_codes is True else []
    proposals = propose_columns(
        column_counts,
        share_sister_codes(column_counts, codes, sisters),
        sisters,
        missing=missing,
        max_levels=max_levels,
        bins=bins,
        is_answer=not finds_identifiers,
        remedies=PYTHON,
        finds_strays=finds_codes is True,
    )
    whole = {
        name: {name: give_absent(_forgive_strays(each), absent)} for name, each in proposals.items()
    }
    return {name: each for column in names for name, each in (whole | parts)[column].items()}


def _forgive_strays(proposal: Proposal) -> Proposal:
    variable = proposal.variable
    if variable is None or not proposal.strays:
        return proposal
    return replace(
        proposal, variable=replace(variable, missing=(*variable.missing, *proposal.strays))
    )


def propose_columns(
    column_counts: Mapping[str, ValueCounts],
    codes: Mapping[str, Sequence[CodeProposal]],
    sisters: Sequence[Sequence[str]] = (),
    *,
    scales: Collection[str] = (),
    target: str | None = None,
    **options: Any,
) -> dict[str, Proposal]:
    """Draft a variable for each column, in the same way for sisters.

    Parameters
    ----------
    column_counts
        Values of every column.
    codes
        Missing codes of columns.
    sisters
        Groups of similar columns, from `find_sisters`.
    scales
        Columns whose few numbers are levels of a scale.
    target
        Column that must be kept.
    options
        Options of `propose_variable`.

    Returns
    -------
    A proposal for each column, in order.
    """

    def propose(name: str, counted: ValueCounts, wishes: Wishes) -> Proposal:
        return propose_variable(
            name,
            counted,
            codes=codes.get(name, ()),
            is_scale=name in scales,
            wishes=wishes,
            **options,
        )

    proposals = {
        name: propose(name, counted, Wishes(is_kept=name == target))
        for name, counted in column_counts.items()
    }
    pooled = pool_sisters(column_counts, sisters)
    for group in sisters:
        whole = propose(group[0], pooled[group[0]], Wishes(is_kept=target in group))
        if whole.role == "continuous":
            # use the finest bins of any sister
            finest = max(group, key=lambda name: _count_bins(proposals[name]))
            whole = max(whole, proposals[finest], key=_count_bins)
        for name in group:
            proposals[name] = replace(
                whole,
                variable=None if whole.variable is None else replace(whole.variable, name=name),
                why=f"{whole.why}; drafted like {len(group) - 1} sister columns",
                share_missing=proposals[name].share_missing,
                strays=proposals[name].strays,
                codes=proposals[name].codes,
            )
    return proposals


def _count_bins(proposal: Proposal) -> int:
    variable = proposal.variable
    return 0 if variable is None or variable.edges is None else variable.cardinality


NAMES_SHOWN = 6
"""Largest number of variables named in a note."""
NAME_LENGTH = 48
"""Largest length of a name in a note on several variables, characters: headers of surveys are whole questions."""


def share_codes(
    column_counts: Mapping[str, ValueCounts], codes: Mapping[str, Sequence[CodeProposal]]
) -> tuple[str, ...]:
    """Codes that apply to all columns: words that are nowhere a level, and numbers that are codes of most columns."""
    times = Counter(each.text for found in codes.values() for each in found)
    words = {text for text in times if read_number(text) is None}
    for name, value_counts in column_counts.items():
        own = {each.text for each in codes.get(name, ())}
        words -= {text for text in words if text in value_counts.counts and text not in own}
    most = {
        text
        for text, n in times.items()
        if read_number(text) is not None and 2 * n > len(column_counts)
    }
    return tuple(text for text in times if text in words or text in most)


def note_codes(codes: Mapping[str, Sequence[CodeProposal]]) -> list[str]:
    """Note each missing code once, with its columns and the evidence from the first of them."""
    holders: dict[str, list[str]] = {}
    evidence: dict[str, str] = {}
    for name, found in codes.items():
        for each in found:
            holders.setdefault(each.text, []).append(name)
            evidence.setdefault(each.text, each.evidence)
    return [
        f"{list_names(names)}: {text!r} is taken for missing: {evidence[text]}; {COMMANDS.keep_codes}"
        for text, names in holders.items()
    ]


def note_strays(proposals: Mapping[str, Proposal]) -> list[str]:
    """Note the stray words among numbers of all columns."""
    strays: Counter[str] = Counter()
    for proposal in proposals.values():
        strays.update(proposal.strays)
    if not strays:
        return []
    names = [name for name, proposal in proposals.items() if proposal.strays]
    words = list_some([repr(text) for text, _ in strays.most_common()])
    remedy = COMMANDS.name_missing.format(text="WORD")
    return [
        f"{list_names(names)}: {strays.total():,} values among numbers are words, {words}: they are no levels, and "
        f"their rows go to quarantine; if they mean that nothing is known: {remedy}, or pmf infer --missing WORD"
    ]


def list_names(names: Sequence[str]) -> str:
    """List the first names of variables and the number of others; of several, long ones without their middle."""
    names = [name if name.strip() else repr(name) for name in names]
    if len(names) > 1:
        names = [n if len(n) <= NAME_LENGTH else f"{n[:23]}...{n[-22:]}" for n in names]
    return list_some(names, NAMES_SHOWN)


LEAST_COVERED = 0.95
"""Least share of the values of each of two sisters that also occur in the other."""
LEAST_SHARED = 3
"""Least number of distinct values that sisters share."""
MOST_DISTINCT = 1000
"""Largest number of distinct values of a column with sisters."""
MOST_GROUPS = 32
"""Largest number of groups of the same name that a column is compared with."""

_GIVEN_NAMES = frozenset(
    ("", "c", "v", "x", "col", "column", "var", "unnamed", "f", "feature", "field")
)
"""Prefixes of generated column names, which carry no meaning."""


def find_sisters(
    column_counts: Mapping[str, ValueCounts],
    codes: Mapping[str, Sequence[CodeProposal]],
    missing: Sequence[str],
) -> list[list[str]]:
    """Group columns whose names agree up to the first number or item, "Rate them: tea", and whose values are similar.

    Parameters
    ----------
    column_counts
        Values of every column.
    codes
        Missing codes of columns, which may differ.
    missing
        Common missing codes.

    Returns
    -------
    Groups of at least two names, in the order of the columns.
    """
    absent = {text.strip() for text in missing}
    groups: dict[str, list[list[str]]] = {}
    values: dict[str, dict[str, int]] = {}
    for name, counted in column_counts.items():
        start = _begin(name)
        if (
            start is None
            or counted.overflowed
            or counted.categories
            or len(counted.counts) > MOST_DISTINCT
        ):
            continue
        own = absent | {each.text for each in codes.get(name, ())}
        values[name] = {text: n for text, n in counted.counts.items() if text not in own}
        known = groups.setdefault(start, [])
        for group in known[:MOST_GROUPS]:
            if _are_alike(values[group[0]], values[name]):
                group.append(name)
                break
        else:
            known.append([name])
    return [group for known in groups.values() for group in known if len(group) > 1]


def _begin(name: str) -> str | None:
    """Prefix of a name before its first number, or question before its item; None without, or for a generated name."""
    match = re.match(r"([^\d]*)\d", name) or re.match(r"(.+?)(?: - |: |\[|\? )", name)
    if match is None:
        return None
    start = match[1].strip(" _-.([#").casefold()
    return None if start in _GIVEN_NAMES else start


def _are_alike(first: Mapping[str, int], second: Mapping[str, int]) -> bool:
    shared = first.keys() & second.keys()
    if len(shared) < LEAST_SHARED or max(len(first), len(second)) > 2 * min(
        len(first), len(second)
    ):
        return False
    if len(shared) > LEAST_SHARED and len(first.keys() ^ second.keys()) == 1:
        # a level of the scale that does not occur in one of them
        return True
    return all(
        sum(each[text] for text in shared) >= LEAST_COVERED * sum(each.values())
        for each in (first, second)
    )


def share_sister_codes(
    column_counts: Mapping[str, ValueCounts],
    codes: Mapping[str, Sequence[CodeProposal]],
    sisters: Sequence[Sequence[str]],
) -> dict[str, list[CodeProposal]]:
    """Give every sister the missing codes of the others.

    Returns
    -------
    Proposals by column, in the order of the columns.
    """
    shared = {name: list(found) for name, found in codes.items()}
    for group in sisters:
        holders = {each.text: name for name in reversed(group) for each in codes.get(name, ())}
        for name in group:
            own = {each.text for each in codes.get(name, ())}
            more = [
                CodeProposal(
                    text,
                    column_counts[name].counts.get(text, 0),
                    f"it is one of its sister {holder}",
                )
                for text, holder in sorted(holders.items())
                if text not in own
            ]
            if more:
                shared[name] = [*shared.get(name, ()), *more]
    return {name: shared[name] for name in column_counts if name in shared}


def pool_sisters(
    column_counts: Mapping[str, ValueCounts], sisters: Sequence[Sequence[str]]
) -> dict[str, ValueCounts]:
    """Pooled values of all sisters, by the name of each."""
    pooled: dict[str, ValueCounts] = {}
    for group in sisters:
        first, *others = (column_counts[name] for name in group)
        whole = replace(first, counts=first.counts.copy())
        for other in others:
            # unlike +, update keeps levels with zero counts
            whole.counts.update(other.counts)
        pooled |= dict.fromkeys(group, whole)
    return pooled
