"""Sums of stored counts over groups of folds, and counts restricted to some variables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.weights import WeightSums
from pmflib.counts.folds import check_folds
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.zarr_tables import StoredTables
from pmflib.schema import Schema


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
        int64, indices of the variables to keep, in order; None keeps all.

    Returns
    -------
    Counts with one fold per group; memory for these and one more table.

    Raises
    ------
    StoreError
        If the counts are missing, damaged, or of another kind.
    """
    stored = StoredTables(Path(path))
    schema = stored.schema
    kept = np.arange(schema.n_variables) if variables is None else variables
    loaded = PairCounts.zero(Schema(tuple(schema[int(index)] for index in kept)), len(groups))
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


def list_levels(schema: Schema, variables: IntArray) -> IntArray:
    """Return the row indices of the levels of some variables, int64, in order."""
    owners = np.repeat(np.arange(schema.n_variables), np.diff(schema.offsets))
    return np.flatnonzero(np.isin(owners, variables))


def pick_variables(schema: Schema, level_counts: IntArray, max_levels: int) -> IntArray:
    """Select the most frequently observed variables within a limit of levels, at least two.

    Parameters
    ----------
    schema
        All variables.
    level_counts
        int64 of shape (n_levels,): number of samples with each level.
    max_levels
        Maximum number of levels of the selected variables; the first two are always selected.

    Returns
    -------
    int64, indices of the variables, in order.
    """
    sizes = np.diff(schema.offsets)
    order = np.argsort(-np.add.reduceat(level_counts, schema.offsets[:-1]), kind="stable")
    n_kept = int((np.cumsum(sizes[order]) <= max_levels).sum())
    return np.sort(order[: max(2, n_kept)])


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
        Schema(tuple(schema.variables[index] for index in variables)),
        counts.tables[:, rows[:, None], rows],
        counts.n_rows,
        counts.weights,
    )
