"""Drift of pairs: joint distributions, and dependence beyond the two variables, of new samples against earlier ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pmflib.arrays import IntArray
from pmflib.level_blocks import sum_pairs
from pmflib.quality.drift import DriftTests
from pmflib.quality.homogeneity import (
    LEAST_COUNTED,
    Comparison,
    carry_dependence,
    compare_counts,
    compare_dependence,
)
from pmflib.schema import Schema

TILE_CELLS = 1 << 19
"""Cells of the pairs that are compared at a time: some fifteen arrays of 4 MiB each."""
MOST_LEVELS = 4096
"""Levels of the widest schema whose pairs are compared: four tables of 128 MiB are held. In wider ones hardly a pair
has enough new samples."""


def subtract_tables(now: IntArray, before: IntArray) -> IntArray | None:
    """Pair counts of the samples that were added; None if some were taken away or changed.

    Parameters
    ----------
    now, before
        int64 of shape (n_levels, n_levels), upper triangles.
    """
    added = now - before
    return added if added.min(initial=0) >= 0 else None


def compare_pairs(
    schema: Schema, new: IntArray, reference: IntArray, *, tile_cells: int = TILE_CELLS
) -> list[DriftTests]:
    """Compare every pair of variables that has enough samples on both sides.

    Parameters
    ----------
    schema
        Variables and levels of both.
    new, reference
        int64 of shape (n_levels, n_levels), upper triangles: pair counts of new samples, and of earlier ones.
    tile_cells
        Cells compared at a time, which bounds the memory; results do not depend on it.

    Returns
    -------
    DriftTests of the guards ``pair_drift`` and ``dependence_drift``.

    Notes
    -----
    A sample counts once in a pair, so that there is no design effect. Two columns of one scale that were swapped leave
    both distributions as they are; each then depends on the other variables as its neighbour did.
    """
    offsets, sizes = schema.offsets, schema.cardinalities
    enough = np.minimum(sum_pairs(new, offsets), sum_pairs(reference, offsets)) >= LEAST_COUNTED
    first, second = np.nonzero(np.triu(enough, 1))
    tests: list[DriftTests] = []
    shapes = np.stack([sizes[first], sizes[second]], axis=1)
    for rows, columns in np.unique(shapes, axis=0).tolist():
        mine = np.flatnonzero((shapes == (rows, columns)).all(axis=1))
        step = max(1, tile_cells // (rows * columns))
        for start in range(0, mine.size, step):
            pairs = first[mine[start : start + step]], second[mine[start : start + step]]
            tables = [_cut(table, offsets, pairs, (rows, columns)) for table in (new, reference)]
            name = _name_pairs(schema, pairs)
            tests.append(DriftTests("pair_drift", name, _compare_joint(*tables)))
            expected = carry_dependence(tables[1], tables[0])
            n_reference = tables[1].sum(axis=(1, 2))
            compared = compare_dependence(tables[0], expected, n_reference, (rows, columns))
            tests.append(DriftTests("dependence_drift", name, compared))
    return tests


def _cut(
    table: IntArray, offsets: IntArray, pairs: tuple[IntArray, IntArray], shape: tuple[int, int]
) -> IntArray:
    """Tables of some pairs of variables: int64 of shape (n_pairs, *shape)."""
    rows = offsets[pairs[0]][:, None, None] + np.arange(shape[0])[None, :, None]
    columns = offsets[pairs[1]][:, None, None] + np.arange(shape[1])[None, None, :]
    cut: IntArray = table[rows, columns]
    return cut


def _compare_joint(new: IntArray, reference: IntArray) -> Comparison:
    n_tests, n_cells = len(new), new[0].size
    return compare_counts(new.ravel(), reference.ravel(), np.arange(n_tests + 1) * n_cells)


def _name_pairs(schema: Schema, pairs: tuple[IntArray, IntArray]) -> Callable[[int], str]:
    return lambda place: (
        f"{schema.names[int(pairs[0][place])]} with {schema.names[int(pairs[1][place])]} in new samples"
    )
