"""Stored counts of a few groups of folds, and counts of some of the variables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.weights import WeightSums
from pmflib.counting.folds import check_folds
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
        int64, indices of the variables to keep, in order; None keeps all.

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
    loaded = PairCounts.zero(Schema(tuple(schema[int(index)] for index in kept)), len(groups))
    rows = list_levels(schema, kept)
    for number, group in enumerate(groups):
        chosen = check_folds(group, stored.n_folds)
        for fold in chosen:
            table = stored.read(fold)
            # a copy of a wide table takes as long as reading it
            loaded.tables[number] += table if variables is None else table[rows[:, None], rows]
        loaded.n_rows[number] = stored.n_rows[chosen].sum()
    if stored.weights is None:
        return loaded
    parts = [stored.weights.select(check_folds(group, stored.n_folds)).merge() for group in groups]
    return replace(loaded, weights=WeightSums.stack(parts))


def list_levels(schema: Schema, variables: IntArray) -> IntArray:
    """Rows of the levels of some variables, int64, in order."""
    owners = np.repeat(np.arange(schema.n_variables), np.diff(schema.offsets))
    return np.flatnonzero(np.isin(owners, variables))


def pick_variables(schema: Schema, level_counts: IntArray, max_levels: int) -> IntArray:
    """Pick the variables that are observed most, as many as there is room for, at least two.

    Parameters
    ----------
    schema
        All variables.
    level_counts
        int64 of shape (n_levels,): samples that hold each level.
    max_levels
        Levels of all that are picked, at most, but for those of the first two.

    Returns
    -------
    int64, their indices, in order.
    """
    sizes = np.diff(schema.offsets)
    order = np.argsort(-np.add.reduceat(level_counts, schema.offsets[:-1]), kind="stable")
    n_kept = int((np.cumsum(sizes[order]) <= max_levels).sum())
    return np.sort(order[: max(2, n_kept)])


def narrow_counts(counts: PairCounts, variables: IntArray) -> PairCounts:
    """Counts of some of the variables alone.

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
