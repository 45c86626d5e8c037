"""Stored counts of a few groups of folds, and counts of some of the variables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.counting.stored_tables import StoredTables
from pmflib.schema import Schema


def load_groups(
    path: str | Path, groups: Sequence[Collection[int]], variables: IntArray | None = None
) -> PairCounts:
    """Read the sum over each group of folds as a fold of its own.

    Parameters
    ----------
    path
        Where `PairCounts.save` or a pipeline wrote.
    groups
        Folds of each group, at least one group.
    variables
        int64, places of the variables to keep, in order; None keeps all.

    Returns
    -------
    Counts of as many folds as there are groups, in the memory of these and of a table more.

    Raises
    ------
    StoreError
        If the counts are absent, damaged, or something else.
    """
    stored = StoredTables(Path(path))
    schema = stored.schema
    kept = np.arange(schema.n_variables) if variables is None else variables
    loaded = PairCounts.zero(Schema(tuple(schema[int(place)] for place in kept)), len(groups))
    for number, group in enumerate(groups):
        part = PairCounts.add_up(stored, group)
        if variables is not None:
            part = narrow_counts(part, variables)
        loaded.tables[number], loaded.n_rows[number] = part.tables[0], part.n_rows[0]
    return loaded


def narrow_counts(counts: PairCounts, variables: IntArray) -> PairCounts:
    """Counts of some of the variables alone.

    Parameters
    ----------
    counts
        Counts of all variables.
    variables
        int64, places of the variables to keep, in order.
    """
    schema = counts.schema
    owners = np.repeat(np.arange(schema.n_variables), np.diff(schema.offsets))
    rows = np.flatnonzero(np.isin(owners, variables))
    return PairCounts(
        Schema(tuple(schema.variables[place] for place in variables)),
        counts.tables[:, rows[:, None], rows],
        counts.n_rows,
    )
