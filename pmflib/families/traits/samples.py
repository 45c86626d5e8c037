"""Samples for fitting trait models, and held-out cells for choosing their settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, list_owners
from pmflib.base.blocks import Block, SparseBlock, concatenate_blocks
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.blocks import merge_duplicates
from pmflib.families.traits.passes import split_level_indices
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup, iterate_blocks

HELD_OUT_SHARE = 0.1
CHOICE_CELLS = 1_000_000
"""Approximate number of observed cells used to choose settings; with more, differences no longer change."""
BATCH_NUMBERS = 1 << 23
"""Memory for probabilities while predicting held-out cells, bytes."""

Predict = Callable[[SparseBlock, IntArray, IntArray], FloatArray]
"""Predicts PMFs of held-out cells given the observed cells of their rows: takes a block, rows and variables, as
`pmflib.families.traits.trait_model.TraitModel.predict_cells` does.
"""


@dataclass(frozen=True, eq=False)
class HeldOutCells:
    """Samples with some cells held out, to be predicted from the remaining ones.

    Parameters
    ----------
    block
        Samples without the held-out cells.
    rows, variables, codes
        int64 of shape (n_cells,): row, variable and level of each held-out cell, sorted by row.
    """

    block: SparseBlock
    rows: IntArray
    variables: IntArray
    codes: IntArray

    @classmethod
    def draw(cls, block: SparseBlock, offsets: IntArray, seed: int) -> HeldOutCells | None:
        """Hold out a tenth of the cells of rows with at least two observed cells; None if there are none.

        Cells with the smallest hashes of row and variable are held out. A weighted row counts as one row.
        """
        lengths = np.diff(block.indptr)
        people = np.repeat(np.arange(block.n_rows), lengths)
        variables = list_owners(offsets)[block.indices]
        free = np.flatnonzero(lengths[people] > 1)
        n_hidden = round(HELD_OUT_SHARE * free.size)
        if not n_hidden:
            return None
        hashes = mix_hashes(people[free] * (offsets.size - 1) + variables[free], seed)
        hidden = np.sort(free[np.argpartition(hashes, n_hidden - 1)[:n_hidden]])
        kept = np.ones(block.n_observed, bool)
        kept[hidden] = False
        ends = np.concatenate([[0], np.cumsum(kept)])[block.indptr]
        return cls(
            SparseBlock(ends.astype(np.int64), block.indices[kept], block.weights),
            people[hidden],
            variables[hidden],
            block.indices[hidden] - offsets[variables[hidden]],
        )

    def score(self, predict: Predict, n_each: int) -> FloatArray:
        """Compute the log-probability of each held-out cell, nats.

        With weights, log-probabilities are multiplied by weights whose mean over cells is 1.

        Parameters
        ----------
        predict
            Function that predicts the PMFs.
        n_each
            Number of values it needs per row of the block or per cell, whichever is larger.
        """
        cells = -(-self.codes.size // self.block.n_rows)
        n_rows = max(1, BATCH_NUMBERS // (n_each * cells))
        logs = np.empty(self.codes.size)
        for start in range(0, self.block.n_rows, n_rows):
            stop = min(start + n_rows, self.block.n_rows)
            first, last = np.searchsorted(self.rows, [start, stop])
            own = slice(first, last)
            part = self.block.cut(start, stop)
            chances = predict(part, self.rows[own] - start, self.variables[own])
            found = chances[np.arange(last - first), self.codes[own]]
            logs[own] = np.log(np.maximum(found, FLOOR))
        if self.block.weights is None:
            return logs
        weights = self.block.weights[self.rows]
        weighed: FloatArray = logs * (weights / weights.mean())
        return weighed


MARGIN = 6.0
"""Number of standard deviations by which the hash limit is raised, so that too few people are almost never drawn."""
ALL = 2**64 - 1


class SampledPeople(NamedTuple):
    """A random sample of people with at least one observed cell.

    Parameters
    ----------
    hashes
        uint64 of shape (n_people,), increasing.
    block
        Their samples.
    """

    hashes: HashArray
    block: SparseBlock


class Draw(NamedTuple):
    """Rule for drawing people: those with the smallest hashes.

    Parameters
    ----------
    requested
        Maximum number of people to draw.
    limit
        Largest hash that is considered.
    seed
        Seed of the hash function.
    """

    requested: int
    limit: int
    seed: int

    @classmethod
    def plan(cls, requested: int, n_people: int, seed: int) -> Draw:
        """Plan a draw of ``requested`` out of ``n_people`` people."""
        enough = requested + MARGIN * (requested**0.5 + MARGIN)
        limit = ALL if enough >= n_people else int(enough / n_people * ALL)
        return cls(requested, limit, seed)

    def take(self, block: Block, first: int, offsets: IntArray) -> SampledPeople:
        """Draw people from a block whose first row has position ``first``."""
        hashes = mix_hashes(np.arange(first, first + block.n_rows), self.seed)
        near = np.flatnonzero(hashes <= np.uint64(self.limit))
        part = block.take(near).to_sparse(offsets)
        known = np.flatnonzero(np.diff(part.indptr) > 0)
        return self._keep(hashes[near[known]], part.take(known))

    def merge(self, parts: Sequence[SampledPeople], offsets: IntArray) -> SampledPeople:
        """Merge draws from parts of the data, at least one."""
        if len(parts) == 1:
            return parts[0]
        block = concatenate_blocks([part.block for part in parts], offsets)
        hashes = np.concatenate([part.hashes for part in parts])
        return self._keep(hashes, block.to_sparse(offsets))

    def _keep(self, hashes: HashArray, block: SparseBlock) -> SampledPeople:
        order = np.argsort(hashes)[: self.requested]
        return SampledPeople(hashes[order], block.take(order))


BLOCK_CELLS = 100_000
"""Approximate observed cells per block in memory: a few hundredths of a second of work, enough for a thread."""
NOBODY = SparseBlock(np.zeros(1, np.int64), np.empty(0, np.int32))


class LevelCounts(NamedTuple):
    """Counts of levels and of people; additive over samples.

    Parameters
    ----------
    levels
        float64 of shape (n_levels,).
    n_people
        Number of samples with at least one observed cell.
    """

    levels: FloatArray
    n_people: float


def cut_people(block: SparseBlock, schema: Schema) -> BlocksInMemory:
    """Split samples in memory into blocks of distinct rows, depending on the samples only."""
    n_blocks = max(1, min(MAX_BLOCKS, block.n_observed // BLOCK_CELLS, block.n_rows))
    ends = [number * block.n_rows // n_blocks for number in range(n_blocks + 1)]
    blocks = [merge_duplicates(block.cut(start, stop)) for start, stop in pairwise(ends)]
    return BlocksInMemory(blocks, schema.offsets, rows=block, n_observed=block.n_observed)


def count_levels(source: BlockSource) -> LevelCounts:
    """Count levels, loading stored blocks that are kept; a weighted row counts as that many samples."""
    shared = int(source.offsets[-1]), source.offsets
    return source.map_in_turn(count_group_levels, merge_counts, *shared, name="count")


def draw_people(source: BlockSource, n_people: int, counts: LevelCounts, seed: int) -> SparseBlock:
    """Draw people with at least one observed cell.

    Stored blocks are read and a few rows of each are kept. A weighted row counts as one person.

    Parameters
    ----------
    source
        Samples.
    n_people
        Maximum number of people.
    counts
        Counts from `count_levels`.
    seed
        Seed of the hashes.

    Returns
    -------
    The people, ordered by the hash of their position, so the result is the same in memory and in a store.
    """
    # in memory all rows are considered: weights may sum to more people than there are rows
    n_known = 0 if isinstance(source, BlocksInMemory) else round(counts.n_people)
    draw = Draw.plan(n_people, n_known, seed)
    merge = partial(draw.merge, offsets=source.offsets)
    drawn: SampledPeople = source.map_rows(draw_from_group, merge, draw, source.offsets)
    return drawn.block


def count_group_levels(group: BlockGroup, n_levels: int, offsets: IntArray) -> LevelCounts:
    """Count the levels in a group of blocks."""
    counts = [LevelCounts(np.zeros(n_levels), 0.0)]
    for part in split_level_indices(iterate_distinct(group), offsets):
        lengths = np.diff(part.indptr)
        weights = np.ones(part.n_rows) if part.weights is None else part.weights
        levels = np.bincount(part.indices, np.repeat(weights, lengths), n_levels)
        people = float(weights[lengths > 0].sum())
        counts = [merge_counts([*counts, LevelCounts(levels.astype(np.float64), people)])]
    return counts[0]


def merge_counts(parts: Sequence[LevelCounts]) -> LevelCounts:
    """Sum counts, at least one."""
    levels, people = zip(*parts, strict=True)
    return LevelCounts(np.sum(levels, axis=0), sum(people))


def draw_from_group(group: BlockGroup, first: int, draw: Draw, offsets: IntArray) -> SampledPeople:
    """Draw people from a group of blocks; ``first`` is the position of its first row."""
    parts = []
    for block in iterate_blocks(group):
        parts.append(draw.take(block, first, offsets))
        first += block.n_rows
    return draw.merge(parts or [draw.take(NOBODY, 0, offsets)], offsets)
