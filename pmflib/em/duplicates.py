"""Equal rows of a block merged into one row with a weight: EM then works on each once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pmflib.arrays import BoolArray, IntArray
from pmflib.blocks import Block, DenseBlock
from pmflib.hashing import HashArray, mix_hashes

MIN_ROWS = 256
"""Least number of rows of a block that is merged: smaller ones are left as they are."""
SAMPLE_ROWS = 4096
"""Rows, about, of the sample that decides whether all are compared."""
WORTH_BELOW = 0.8
"""Share of distinct rows below which merging pays: it costs about as much as one or two EM passes."""


def merge_duplicates(block: Block) -> Block:
    """Merge equal rows, if enough of them are equal.

    A sample of rows is hashed first, and all of them where that sample has enough equal rows. The result depends on the
    block's samples alone.

    Parameters
    ----------
    block
        Valid samples.

    Returns
    -------
    The block itself, or one with its distinct rows, in the order in which they first occur, and weights.
    """
    n_rows = block.n_rows
    if n_rows < MIN_ROWS:
        return block
    sampled = np.arange(0, n_rows, max(1, n_rows // SAMPLE_ROWS))
    if np.unique(_hash_rows(block.take(sampled))).size >= WORTH_BELOW * sampled.size:
        return block
    _, first, inverse = np.unique(_hash_rows(block), return_index=True, return_inverse=True)
    # two rows of one hash that differ: never seen, and then nothing is merged
    if first.size >= WORTH_BELOW * n_rows or not _are_equal(block, first[inverse]).all():
        return block
    weights = np.bincount(inverse, block.weights, minlength=first.size).astype(np.float64)
    order = np.argsort(first)
    return replace(block.take(first[order]), weights=weights[order])


def _hash_rows(block: Block) -> HashArray:
    """Sum of random multiples of what a row holds, modulo 2**64."""
    if isinstance(block, DenseBlock):
        hashes = np.zeros(block.n_rows, np.uint64)
        multipliers = mix_hashes(np.arange(block.codes.shape[1]))
        for variable, multiplier in enumerate(multipliers):
            hashes += block.codes[:, variable].astype(np.uint64) * multiplier
        return hashes
    ends = np.zeros(block.n_observed + 1, np.uint64)
    np.cumsum(mix_hashes(block.indices), out=ends[1:])
    sums: HashArray = ends[block.indptr[1:]] - ends[block.indptr[:-1]]
    return sums


def _are_equal(block: Block, others: IntArray) -> BoolArray:
    """Whether each row holds the same as another."""
    if isinstance(block, DenseBlock):
        equal: BoolArray = (block.codes == block.codes[others]).all(axis=1)
        return equal
    taken = block.take(others)
    if not np.array_equal(taken.indptr, block.indptr):
        return np.zeros(1, bool)
    same: BoolArray = taken.indices == block.indices
    return same
