"""Drafts of the variables of a table in memory, and lists of missing codes that hold for all its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pmflib.core.texts import list_some
from pmflib.schema.drafting.inference import (
    COMMANDS,
    PYTHON,
    Proposal,
    Wishes,
    propose_variable,
)
from pmflib.schema.drafting.missing_codes import CodeProposal, propose_codes
from pmflib.schema.drafting.sister_columns import find_sisters, pool_sisters, share_sister_codes
from pmflib.schema.drafting.value_counts import ValueCounts
from pmflib.schema.variable import DEFAULT_MISSING, read_number


def propose_variables(
    columns: pa.Table,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    max_levels: int = 32,
    bins: int = 8,
    finds_codes: bool = True,
    finds_identifiers: bool = True,
) -> dict[str, Proposal]:
    """Draft a variable for each column of a table in memory.

    A word astray among numbers is a missing code of its variable: there is no quarantine.

    Parameters
    ----------
    columns
        The table; a dictionary whose field has metadata `CATEGORIES` says the levels of its column.
    missing, max_levels, bins
        As in `propose_variable`.
    finds_codes
        Whether texts such as "unknown", numbers such as 999 and words astray among numbers may be taken for missing
        codes, and columns that are named alike are drafted alike.
    finds_identifiers
        Whether columns that identify rows are left out.

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
    codes = propose_codes(column_counts, missing) if finds_codes else {}
    sisters = find_sisters(column_counts, codes, missing) if finds_codes else []
    proposals = propose_columns(
        column_counts,
        share_sister_codes(column_counts, codes, sisters),
        sisters,
        missing=missing,
        max_levels=max_levels,
        bins=bins,
        is_answer=not finds_identifiers,
        remedies=PYTHON,
        finds_strays=finds_codes,
    )
    return {name: _forgive_strays(each) for name, each in proposals.items()}


CATEGORIES = b"pmflib.categories"
"""Metadata of a field whose dictionary holds the levels of a column in their order, those without a value as well."""


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
    """Draft a variable for each column, and sisters alike.

    Parameters
    ----------
    column_counts
        Values of every column.
    codes
        Missing codes of columns.
    sisters
        Groups of columns, as `find_sisters` has them.
    scales
        Columns whose few numbers are the levels of a scale.
    target
        Column that is kept.
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
            # bins that are fine enough for one sister are of use to the others
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
"""Variables named in a note that holds for all of them."""


def share_codes(
    column_counts: Mapping[str, ValueCounts], codes: Mapping[str, Sequence[CodeProposal]]
) -> tuple[str, ...]:
    """Codes for all columns: words that are a level nowhere, and numbers that most columns have as a code."""
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
    """Note each missing code once, with the columns that have it and the evidence of the first."""
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
    """Note the words that are astray among numbers, of all columns together."""
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
    """Names of variables, of many the first ones and how many more there are."""
    return list_some(names, NAMES_SHOWN)
