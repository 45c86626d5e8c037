"""Drafts of the variables of a table in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pmflib.schema.inference import Proposal, propose_variable
from pmflib.schema.level_census import LevelCensus
from pmflib.schema.missing_codes import propose_codes
from pmflib.schema.variable import DEFAULT_MISSING


def propose_variables(
    columns: pa.Table,
    *,
    missing: Sequence[str] = DEFAULT_MISSING,
    max_levels: int = 32,
    bins: int = 8,
    finds_codes: bool = True,
    finds_identifiers: bool = True,
) -> dict[str, Proposal]:
    """Draft a variable for each column.

    Parameters
    ----------
    columns
        The table.
    missing, max_levels, bins
        As in `propose_variable`.
    finds_codes
        Whether texts such as "unknown" and numbers such as 999 may be taken for missing codes.
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
    censuses = {}
    for name in columns.column_names:
        censuses[name] = LevelCensus()
        censuses[name].add(columns[name])
    codes = propose_codes(censuses, missing) if finds_codes else {}
    return {
        name: propose_variable(
            name,
            census,
            missing=missing,
            codes=codes.get(name, ()),
            max_levels=max_levels,
            bins=bins,
            is_answer=not finds_identifiers,
        )
        for name, census in censuses.items()
    }
