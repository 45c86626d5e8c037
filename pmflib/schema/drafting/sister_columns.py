"""Sister columns: named alike but for a number, with the same values, so that they are drafted alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pmflib.schema.drafting.missing_codes import CodeProposal
from pmflib.schema.drafting.value_counts import ValueCounts

LEAST_COVERED = 0.95
"""Share of the values of each of two sisters that the other one has as well."""
LEAST_SHARED = 3
"""Distinct values that two sisters share."""
MOST_DISTINCT = 1000
"""Distinct values up to which a column may have sisters."""
MOST_GROUPS = 32
"""Groups of one name that a column is compared with."""

_GIVEN_NAMES = frozenset(
    ("", "c", "v", "x", "col", "column", "var", "unnamed", "f", "feature", "field")
)
"""Beginnings of the names that programs give to columns without any: they say nothing."""


def find_sisters(
    column_counts: Mapping[str, ValueCounts],
    codes: Mapping[str, Sequence[CodeProposal]],
    missing: Sequence[str],
) -> list[list[str]]:
    """Group columns whose names begin alike, up to the first number, and whose values are the same.

    Parameters
    ----------
    column_counts
        Values of every column.
    codes
        Missing codes of columns, which need not be the same.
    missing
        Texts that mean "not given" anyway.

    Returns
    -------
    Names of two columns or more each, in the order of the columns.
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
    """Beginning of a name before its first number; None where it has no number, or a program gave it."""
    match = re.match(r"([^\d]*)\d", name)
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
        # a step of the scale that nobody has taken
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
    """Values of all sisters together, under the name of each of them."""
    pooled: dict[str, ValueCounts] = {}
    for group in sisters:
        first, *others = (column_counts[name] for name in group)
        whole = replace(first, counts=first.counts.copy())
        for other in others:
            # update adds also where nothing was counted: levels of zero stay
            whole.counts.update(other.counts)
        pooled |= dict.fromkeys(group, whole)
    return pooled
