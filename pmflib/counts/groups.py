"""Sums of stored counts over groups of folds, and counts restricted to some variables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.weights import WeightSums
from pmflib.counts.folds import check_folds
from pmflib.counts.pair_counts import PairCounts, load_singles
from pmflib.counts.selection import list_levels, pick_variables
from pmflib.counts.zarr_tables import StoredTables


def load_groups(
    path: str | Path, groups: Sequence[Collection[int]], variables: IntArray | None = None
) -> PairCounts:
    """Load the sum of each group of folds as one fold.

    Parameters
    ----------
    path
        Path written by `PairCounts.save` or a pipeline.
    groups
        Folds of each group, at least one group.
    variables
        int64, indices of the variables to keep among those whose pairs are counted, in order; None keeps these.

    Returns
    -------
    Counts with one fold per group; memory for these and one more table.

    Raises
    ------
    StoreError
        If the counts are missing, damaged, or of another kind.
    """
    stored = StoredTables(Path(path))
    schema = stored.table_schema
    kept = np.arange(schema.n_variables) if variables is None else variables
    loaded = PairCounts.zero(schema.select(kept), len(groups))
    rows = list_levels(schema, kept)
    for number, group in enumerate(groups):
        chosen = check_folds(group, stored.n_folds)
        for fold in chosen:
            table = stored.read(fold)
            # copying a wide table takes as long as reading it
            loaded.tables[number] += table if variables is None else table[rows[:, None], rows]
        loaded.n_rows[number] = stored.n_rows[chosen].sum()
    if stored.weights is None:
        return loaded
    parts = [stored.weights.select(check_folds(group, stored.n_folds)).merge() for group in groups]
    return replace(loaded, weights=WeightSums.stack(parts))


def load_most_answered(
    path: str | Path, groups: Sequence[Collection[int]], max_levels: int
) -> PairCounts:
    """Apply `load_groups` to as many of the most answered variables in these folds as have at most ``max_levels``."""
    stored = StoredTables(Path(path))
    schema = stored.table_schema
    if schema.n_levels <= max_levels:
        return load_groups(path, groups)
    folds = [fold for group in groups for fold in group]
    singles = load_singles(path, folds=folds)[list_levels(stored.schema, stored.counted)]
    return load_groups(path, groups, pick_variables(schema, singles, max_levels))


def narrow_counts(counts: PairCounts, variables: IntArray) -> PairCounts:
    """Restrict counts to some of the variables.

    Parameters
    ----------
    counts
        Counts of all variables.
    variables
        int64, indices of the variables to keep, in order.
    """
    schema = counts.schema
    rows = list_levels(schema, variables)
    return PairCounts(
        schema.select(variables),
        counts.tables[:, rows[:, None], rows],
        counts.n_rows,
        counts.weights,
    )
