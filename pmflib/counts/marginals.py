"""Marginals: normalised counts, as used by the solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    normalise_blocks,
    spread_evenly,
    spread_pairs,
    sum_pairs,
)
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import at_least, check
from pmflib.base.errors import SchemaError
from pmflib.counts.folds import FoldedCounts
from pmflib.counts.pair_counts import PairCounts

COUNTED_ROWS = 4096
"""Number of samples whose levels are counted at a time, which limits memory."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """Empirical single and pairwise marginals.

    Parameters
    ----------
    pairs
        float64 of shape (n_levels, n_levels), symmetric: block (j, k) is the joint PMF of variables j and k if the pair
        is observed, otherwise zero. A diagonal block has the variable's own PMF on its diagonal, or zeros if the
        variable was never observed.
    support
        int64 of shape (n_variables, n_variables): number of samples with both variables observed; effective samples,
        float64, if weighted.
    observed
        bool of shape (n_variables, n_variables): pairs with sufficient support; False on the diagonal.
    offsets
        int64 of shape (n_variables + 1,).
    """

    pairs: FloatArray
    support: IntArray
    observed: BoolArray
    offsets: IntArray

    def __repr__(self) -> str:
        """Return the sizes, and the number of observed pairs."""
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
            Co-occurrence counts; their folds are summed.
        min_support
            Minimum number of samples with both variables observed for a pair to count as observed, at least 1.

        Raises
        ------
        SchemaError
            If min_support is below 1.
        """
        check(at_least(1), SchemaError, min_support=min_support)
        offsets = counts.schema.offsets
        table = counts.to_samples().to_dense()
        support = sum_pairs(table, offsets)
        observed = support >= min_support
        np.fill_diagonal(observed, False)
        keep = observed | np.eye(len(observed), dtype=bool)
        # weighted samples may have less than one effective sample
        scale = np.divide(1.0, support, where=keep & (support > 0), out=np.zeros(support.shape))
        return cls(table * spread_pairs(scale, offsets), support, observed, offsets)


def estimate_singles(counts: FoldedCounts) -> FloatArray:
    """Apply `normalise_singles` to counts of pairs or triples, summed over folds."""
    return normalise_singles(counts.to_samples().count_levels(), counts.schema.offsets)


def estimate_block_singles(block: DenseBlock, offsets: IntArray) -> FloatArray:
    """Estimate the PMF of each variable as `estimate_singles` does, with equal bits, without a table of pairs.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    """
    return normalise_singles(count_block_levels(block, offsets), offsets)


def count_block_levels(block: DenseBlock, offsets: IntArray) -> IntArray | FloatArray:
    """Count the samples with each level: int64 of shape (n_levels,), or float64 if they are weighted."""
    seen = np.zeros(offsets[-1], np.int64 if block.weights is None else np.float64)
    for first in range(0, len(block), COUNTED_ROWS):
        part = block[first : first + COUNTED_ROWS]
        is_held = part.codes >= 0
        held = (part.codes + offsets[:-1])[is_held]
        weights = None if part.weights is None else np.repeat(part.weights, is_held.sum(axis=1))
        seen += np.bincount(held, weights, minlength=seen.size)
    return seen


def normalise_singles(seen: IntArray | FloatArray, offsets: IntArray) -> FloatArray:
    """Estimate the PMF of each variable with a pseudo-count of 1/2 per level, so that no level has probability 0.

    Parameters
    ----------
    seen
        Number of samples with each level, of shape (n_levels,).
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    float64 of shape (n_levels,), positive, sums to 1 over each variable; uniform where it was never observed.
    """
    return normalise_blocks(seen + np.float64(0.5), offsets, spread_evenly(offsets))
