"""The schema of a table in memory, inferred: what is behind `pmflib.Schema.infer`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pmflib.base.errors import SchemaError, SchemaWarning
from pmflib.base.texts import list_some
from pmflib.schema import MISSING, Schema, Variable
from pmflib.schema.tables import as_arrow, name_columns
from pmflib.surveys.drafting.inference import Proposal
from pmflib.surveys.drafting.table_draft import propose_variables


def infer_schema(
    table: object,
    *,
    missing: Sequence[str],
    max_levels: int,
    bins: int,
    split: Mapping[str, str] | None,
    absent: str | None,
) -> Schema:
    """Infer the schema of a table or an array of answers, as `pmflib.Schema.infer`, which calls it, documents it.

    Raises
    ------
    SchemaError
        If no column can be a variable, a column cannot be split, or a column of an array cannot be a variable.

    Warns
    -----
    SchemaWarning
        If columns are left out, words stand among numbers, or there is one row.
    """
    is_array = isinstance(table, np.ndarray)
    columns = name_columns(table) if isinstance(table, np.ndarray) else as_arrow(table)
    if not columns.num_columns:
        raise SchemaError("the table has no columns; pass one with a column for each variable")
    proposals = propose_variables(
        columns,
        missing=missing,
        max_levels=max_levels,
        bins=bins,
        # columns of an array are clean, and have no names to interpret
        finds_codes=[str(MISSING)] if is_array else True,
        finds_identifiers=not is_array,
        split=split,
        absent=absent,
    )
    kept = tuple(each.variable for each in proposals.values() if each.variable is not None)
    left = [f"{name!r} is {each.note}" for name, each in proposals.items() if not each.variable]
    if is_array and left:
        name = next(name for name, each in proposals.items() if not each.variable)
        raise SchemaError(f"column {name[1:]} of the array is {proposals[name].note}")
    if not kept:
        raise SchemaError(
            f"no column can be a variable: column {list_some(left, 4, '; column ')}; or raise "
            f"max_levels={max_levels}"
        )
    if isinstance(table, np.ndarray) and np.issubdtype(table.dtype, np.integer):
        _ask_about_gaps(table, kept)
    for text in _list_doubts(columns.num_rows, left, proposals):
        warnings.warn(text, SchemaWarning, stacklevel=3)
    return Schema(kept, missing=tuple(missing))


def _ask_about_gaps(table: np.ndarray[Any, Any], variables: Sequence[Variable]) -> None:
    """Refuse an array of integers in which -1 may be an answer, or mean that there is none."""
    counts = np.count_nonzero(table == MISSING, axis=0).tolist()
    for position, (variable, count) in enumerate(zip(variables, counts, strict=True)):
        if count and variable.encode_value(MISSING) != MISSING:
            raise SchemaError(
                f"column {position} of the array holds {MISSING} in {count:,} rows, which may be an answer or a gap; "
                "of answers pass pandas.DataFrame(array), of gaps numpy.where(array == -1, numpy.nan, array), of codes "
                "pmflib.Codes(array)"
            )


def _list_doubts(
    n_rows: int, left: Sequence[str], proposals: Mapping[str, Proposal]
) -> Iterator[str]:
    """Yield warnings about a schema inferred in memory."""
    if left:
        yield f"column {list_some(left, 8, '; column ')}"
    if n_rows == 1:
        yield (
            "the table has one row: each variable has the one level of that row; draft the schema from more rows, or "
            "make it of pmflib.Variable(name, levels)"
        )
    strays = {name: each.strays for name, each in proposals.items() if each.strays}
    for name, words in list(strays.items())[:8]:
        yield (
            f"column {name!r}: {sum(words.values()):,} values among numbers are words, "
            f"{list_some([repr(word) for word in words])}, and count as missing; correct them in the table, or put a "
            "pmflib.Variable with them among its levels into the Schema"
        )
