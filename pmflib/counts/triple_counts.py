"""Co-occurrence counts of triples, and their marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    normalise_blocks,
    repeat_blocks,
    spread_evenly,
    sum_blocks,
)
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import check_size
from pmflib.counts.folds import FoldedCounts, read_schema
from pmflib.schema import Schema

MAX_TRIPLE_BYTES = 1 << 30
"""Maximum size in bytes of a table of triples: 512 levels in total."""


@dataclass(frozen=True, eq=False, repr=False)
class TripleCounts(FoldedCounts):
    """Co-occurrence counts of triples of levels, by fold.

    Parameters
    ----------
    schema
        Variables of the counts.
    tables
        int64 of shape (n_folds, n_levels, n_levels, n_levels): entry (a, b, c), a < b < c, is the number of samples
        with the three levels, and entry (a, a, a) the number with the level; all other entries are 0.
    n_rows
        int64 of shape (n_folds,), number of samples.

    Raises
    ------
    SchemaError
        If the shapes do not match.
    """

    ORDER = 3

    @classmethod
    def zero(cls, schema: Schema, n_folds: int = 1) -> Self:
        """Return counts of no samples: the identity of the group.

        Raises
        ------
        MemoryPlanError
            If the tables would exceed ``MAX_TRIPLE_BYTES``.
        """
        n_bytes = 8 * n_folds * schema.n_levels**3
        what = f"bytes of triples of {schema.n_levels} levels"
        check_size(n_bytes, MAX_TRIPLE_BYTES, what, "count pairs, or triples of fewer variables")
        return super().zero(schema, n_folds)


@dataclass(frozen=True, eq=False)
class TripleMarginals:
    """Empirical marginals of three variables at a time.

    Parameters
    ----------
    triples
        float64 of shape (n_levels, n_levels, n_levels): block (j, k, l), j < k < l, is the joint PMF of the three
        variables if they were observed together; all other entries are 0.
    support
        int64 of shape (n_variables, n_variables, n_variables), j < k < l: number of samples with all three observed.
    singles
        float64 of shape (n_levels,): PMF of each variable, uniform where it was never observed.
    offsets
        int64 of shape (n_variables + 1,).
    """

    triples: FloatArray
    support: IntArray
    singles: FloatArray
    offsets: IntArray

    @property
    def observed(self) -> BoolArray:
        """Return the triples of variables j < k < l that were observed together."""
        return self.support > 0

    @classmethod
    def from_counts(cls, counts: TripleCounts) -> TripleMarginals:
        """Normalise counts."""
        offsets = counts.schema.offsets
        singles = normalise_blocks(counts.count_levels(), offsets, spread_evenly(offsets))
        table = counts.tables.sum(axis=0)
        support = table
        for axis in range(3):
            support = sum_blocks(support, offsets, axis)
        variables = np.arange(len(support))
        rising = (variables[:, None, None] < variables[:, None]) & (variables[:, None] < variables)
        support = np.where(rising, support, 0)
        scale: FloatArray = np.where(support > 0, 1 / np.maximum(support, 1), 0.0)
        for axis in range(3):
            scale = repeat_blocks(scale, offsets, axis)
        return cls(scale * table, support, singles, offsets)


def count_triples(codes: object, cardinalities: IntArray | Sequence[int] | Schema) -> TripleCounts:
    """Count the co-occurrences of all triples of levels of three variables.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.
    cardinalities
        Number of levels of each variable, shape (n_variables,); or a schema.

    Raises
    ------
    SchemaError
        If a code is below -1 or not below its variable's cardinality.
    MemoryPlanError
        If the table would exceed ``MAX_TRIPLE_BYTES``.

    Notes
    -----
    Memory 8 n_levels^3 bytes; time n_rows times the cube of the number of observed variables. Suitable for small
    questionnaires.

    Examples
    --------
    >>> counts = count_triples(np.array([[0, 1, 1], [0, -1, 0], [0, 1, 1]]), [2, 2, 2])
    >>> int(counts.tables[0, 0, 3, 5]), int(counts.tables[0, 0, 0, 0])
    (2, 3)
    """
    from pmflib.counts.kernels.scatter import add_triples  # importing numba is slow

    schema = read_schema(cardinalities)
    encoded = schema.encode(codes)
    counts = TripleCounts.zero(schema)
    block = DenseBlock(encoded).to_sparse(schema.offsets)
    add_triples(block.indptr, block.indices, counts.tables[0])
    counts.n_rows[0] = len(encoded)
    return counts
