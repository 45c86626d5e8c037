"""Marginals: the normalised view of counts that the solvers work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    normalise_blocks,
    spread_evenly,
    spread_pairs,
    sum_pairs,
)
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import SchemaError
from pmflib.counting.folds import FoldedCounts
from pmflib.counting.pair_counts import PairCounts

COUNTED_ROWS = 4096
"""Samples whose levels are counted at a time: what is held of them stays small next to the samples."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """Empirical single and pairwise marginals.

    Parameters
    ----------
    pairs
        float64 of shape (n_levels, n_levels), symmetric: block (j, k) is the joint PMF of variables j and k where the
        pair is observed, else zero; a diagonal block holds the variable's own PMF on its diagonal, or zero where
        the variable was never observed.
    support
        int64 of shape (n_variables, n_variables): samples that hold both variables; float64 of weighted ones, which
        are effective samples.
    observed
        bool of shape (n_variables, n_variables): pairs with enough support; False on the diagonal.
    offsets
        int64 of shape (n_variables + 1,).
    """

    pairs: FloatArray
    support: IntArray
    observed: BoolArray
    offsets: IntArray

    def __repr__(self) -> str:
        """Sizes, and how many pairs were observed."""
        n = self.offsets.size - 1
        return (
            f"Marginals({n} variables, {int(self.offsets[-1])} levels, {int(self.observed.sum()) // 2} of "
            f"{n * (n - 1) // 2} pairs observed)"
        )

    @classmethod
    def from_counts(cls, counts: PairCounts, *, min_support: int = 1) -> Marginals:
        """Normalise counts.

        Parameters
        ----------
        counts
            Co-occurrence counts; their folds are added up.
        min_support
            Samples that must hold both variables for a pair to count as observed, at least 1.

        Raises
        ------
        SchemaError
            If min_support is below 1.
        """
        if min_support < 1:
            raise SchemaError(f"min_support is {min_support}; give at least 1")
        offsets = counts.schema.offsets
        table = counts.to_samples().to_dense()
        support = sum_pairs(table, offsets)
        observed = support >= min_support
        np.fill_diagonal(observed, False)
        keep = observed | np.eye(len(observed), dtype=bool)
        # samples with weights may be worth less than one
        scale = np.divide(1.0, support, where=keep & (support > 0), out=np.zeros(support.shape))
        return cls(table * spread_pairs(scale, offsets), support, observed, offsets)


def estimate_singles(counts: FoldedCounts) -> FloatArray:
    """`normalise_singles` of counts of pairs or triples; their folds are added up."""
    return normalise_singles(counts.to_samples().count_levels(), counts.schema.offsets)


def estimate_block_singles(block: DenseBlock, offsets: IntArray) -> FloatArray:
    """`estimate_singles` of samples in memory, the same bits, without a table of their pairs.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    """
    return normalise_singles(count_block_levels(block, offsets), offsets)


def count_block_levels(block: DenseBlock, offsets: IntArray) -> IntArray | FloatArray:
    """Count the samples that hold each level: int64 of shape (n_levels,), or float64 where they have weights."""
    seen = np.zeros(offsets[-1], np.int64 if block.weights is None else np.float64)
    for first in range(0, len(block), COUNTED_ROWS):
        part = block[first : first + COUNTED_ROWS]
        is_held = part.codes >= 0
        held = (part.codes + offsets[:-1])[is_held]
        weights = None if part.weights is None else np.repeat(part.weights, is_held.sum(axis=1))
        seen += np.bincount(held, weights, minlength=seen.size)
    return seen


def normalise_singles(seen: IntArray | FloatArray, offsets: IntArray) -> FloatArray:
    """PMF of each variable alone, with half a pseudo-count per level: nothing is ruled out for not having been seen.

    Parameters
    ----------
    seen
        Samples that hold each level, of shape (n_levels,).
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    float64 of shape (n_levels,), positive, sums to 1 over each variable; uniform where it was never observed.
    """
    return normalise_blocks(seen + np.float64(0.5), offsets, spread_evenly(offsets))
