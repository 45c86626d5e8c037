"""Blocks of encoded samples: dense codes, or the level indices of observed cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.hashing import assign_folds

SPARSE_BELOW = 0.25
"""Share of observed cells below which level indices (4 bytes each) need less memory than codes (1 byte per cell)."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """Samples stored as codes.

    Parameters
    ----------
    codes
        int8 or int16 of shape (n_rows, n_variables); -1 is missing.
    weights
        float64 of shape (n_rows,), above 0: number of samples that each row counts for; None for 1 each. Used by EM,
        ignored in counting.
    dealt
        int64 of shape (n_rows,), whose remainder modulo the number of folds is the fold of a row, so that rows drawn
        together are held out together; None assigns rows by a hash of their position.
    """

    codes: IntArray
    weights: FloatArray | None = None
    dealt: IntArray | None = None

    def __post_init__(self) -> None:
        # what is computed from samples need not know that they came as `Codes`
        object.__setattr__(self, "codes", np.asarray(self.codes))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)

    def __getitem__(self, rows: slice | IntArray | BoolArray) -> DenseBlock:
        """Return the samples at some rows, as for an array; a slice is not copied."""
        weights = None if self.weights is None else self.weights[rows]
        return DenseBlock(
            self.codes[rows], weights, None if self.dealt is None else self.dealt[rows]
        )

    def assign_folds(self, n_folds: int) -> IntArray:
        """Return the fold of each row, int64 of shape (n_rows,), in [0, n_folds)."""
        if self.dealt is not None:
            return self.dealt % n_folds
        return assign_folds(np.arange(len(self)), n_folds)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.codes)

    @property
    def n_samples(self) -> float:
        """Return the number of samples that the rows count for."""
        return self.n_rows if self.weights is None else float(self.weights.sum())

    @cached_property
    def n_observed(self) -> int:
        """Return the number of observed cells."""
        return int(np.count_nonzero(self.codes >= 0))

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self.codes.nbytes + (0 if self.weights is None else self.weights.nbytes)

    def to_codes(self, offsets: IntArray) -> IntArray:
        """Return codes of shape (n_rows, n_variables); -1 is missing."""
        return self.codes

    def to_sparse(self, offsets: IntArray) -> SparseBlock:
        """Return the same samples as level indices."""
        rows, variables = np.nonzero(self.codes >= 0)
        indptr = np.zeros(self.n_rows + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.n_rows), out=indptr[1:])
        return SparseBlock(
            indptr,
            (offsets[variables] + self.codes[rows, variables]).astype(np.int32),
            self.weights,
        )

    def hide(self, variable: int, offsets: IntArray) -> DenseBlock:
        """Return the same samples with one variable set to missing."""
        codes = self.codes.copy()
        codes[:, variable] = -1
        return DenseBlock(codes, self.weights)

    def cut(self, start: int, stop: int) -> DenseBlock:
        """Return the samples of rows [start, stop) without copying."""
        weights = None if self.weights is None else self.weights[start:stop]
        return DenseBlock(self.codes[start:stop], weights)

    def take(self, rows: IntArray) -> DenseBlock:
        """Return the samples at some rows, int64 of shape (n_taken,)."""
        return self[rows]


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """Samples stored as the level indices of their observed cells.

    Parameters
    ----------
    indptr
        int64 of shape (n_rows + 1,): row s owns ``indices[indptr[s]:indptr[s + 1]]``.
    indices
        int32 of shape (n_observed,), level indices ``offsets[variable] + code``, increasing within a row.
    weights
        As in `DenseBlock`.
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @property
    def n_samples(self) -> float:
        """Return the number of samples that the rows count for."""
        return self.n_rows if self.weights is None else float(self.weights.sum())

    @property
    def n_observed(self) -> int:
        """Return the number of observed cells."""
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        weights = 0 if self.weights is None else self.weights.nbytes
        return self.indptr.nbytes + self.indices.nbytes + weights

    def to_codes(self, offsets: IntArray) -> IntArray:
        """Return codes of shape (n_rows, n_variables), int8, or int16 if a variable has more than 127 levels."""
        widest = int(np.diff(offsets).max())
        codes = np.full((self.n_rows, offsets.size - 1), -1, np.int8 if widest <= 127 else np.int16)
        rows = np.repeat(np.arange(self.n_rows), np.diff(self.indptr))
        variables = np.searchsorted(offsets, self.indices, side="right") - 1
        codes[rows, variables] = self.indices - offsets[variables]
        return codes

    def to_sparse(self, offsets: IntArray) -> SparseBlock:
        """Return the same samples as level indices."""
        return self

    def hide(self, variable: int, offsets: IntArray) -> SparseBlock:
        """Return the same samples with one variable set to missing."""
        kept = (self.indices < offsets[variable]) | (self.indices >= offsets[variable + 1])
        return self.keep(kept)

    def keep(self, chosen: BoolArray) -> SparseBlock:
        """Return the same samples with only some observed cells, bool of shape (n_observed,)."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen, dtype=np.int64)])
        return SparseBlock(before[self.indptr], self.indices[chosen], self.weights)

    def cut(self, start: int, stop: int) -> SparseBlock:
        """Return the samples of rows [start, stop); level indices are not copied."""
        ends = self.indptr[start : stop + 1]
        weights = None if self.weights is None else self.weights[start:stop]
        return SparseBlock(ends - ends[0], self.indices[ends[0] : ends[-1]], weights)

    def take(self, rows: IntArray) -> SparseBlock:
        """Return the samples at some rows, int64 of shape (n_taken,)."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        positions = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], lengths)
        weights = None if self.weights is None else self.weights[rows]
        return SparseBlock(indptr, self.indices[positions], weights)


Block: TypeAlias = DenseBlock | SparseBlock


def weigh_rows(block: Block) -> FloatArray:
    """Return the number of samples that each row of a block counts for: float64 of shape (n_rows,)."""
    return np.ones(block.n_rows) if block.weights is None else block.weights


def split_block(block: Block, n_parts: int) -> list[Block]:
    """Split a block into ``n_parts`` parts of equal numbers of rows, up to one row."""
    n_each, n_over = divmod(block.n_rows, n_parts)
    ends = [number * n_each + min(number, n_over) for number in range(n_parts + 1)]
    return [block.cut(start, stop) for start, stop in pairwise(ends)]


def concatenate_blocks(blocks: Sequence[Block], offsets: IntArray) -> Block:
    """Concatenate blocks, at least one, in order; the result is sparse if the first block is."""
    if isinstance(blocks[0], DenseBlock):
        codes = np.concatenate([block.to_codes(offsets) for block in blocks])
        return DenseBlock(codes, join_weights(blocks))
    parts = [block.to_sparse(offsets) for block in blocks]
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return SparseBlock(
        indptr, np.concatenate([part.indices for part in parts]), join_weights(blocks)
    )


def join_weights(blocks: Sequence[Block]) -> FloatArray | None:
    """Return the weights of the rows of all blocks, in order; None if all are 1."""
    if all(block.weights is None for block in blocks):
        return None
    return np.concatenate([weigh_rows(block) for block in blocks])
