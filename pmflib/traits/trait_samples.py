"""Samples that trait models are fitted to: in memory, or in a store, where nothing is held of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.stored_samples import StoredSamples, iterate_distinct
from pmflib.running.grouping import group_blocks, weigh_blocks
from pmflib.running.maps import run_blocks
from pmflib.running.processors import count_processors
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_blocks
from pmflib.traits.drawn_people import Draw, DrawnPeople
from pmflib.traits.trait_passes import PassModel, TraitSums, add_blocks, count_sum_bytes, cut_blocks

BLOCK_CELLS = 100_000
"""Observed cells of a block in memory, about: some hundredths of a second of work, which is worth a thread."""
MAX_BLOCKS = 16
"""Limit of the number of blocks in memory: more would only add up more sums."""

NOBODY = SparseBlock(np.zeros(1, np.int64), np.empty(0, np.int32))


class LevelCounts(NamedTuple):
    """How often each level was observed, and of how many people; additive over samples.

    Parameters
    ----------
    levels
        float64 of shape (n_levels,).
    n_people
        Number of samples with anything observed.
    """

    levels: FloatArray
    n_people: float


class TraitSamples(Protocol):
    """What a fit of traits asks of its samples."""

    @property
    def schema(self) -> Schema:
        """Variables."""

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""

    def digest(self) -> str:
        """SHA-256 that other samples do not have, in hexadecimal."""

    def count(self) -> LevelCounts:
        """Count the levels."""

    def run_pass(self, model: PassModel) -> TraitSums:
        """Statistics of all samples."""

    def draw(self, n_people: int, counts: LevelCounts, seed: int) -> SparseBlock:
        """So many people who have anything observed, or all, in the order of the hashes of their places."""


class TraitSamplesInMemory:
    """Samples in memory, in blocks that depend on them alone.

    Parameters
    ----------
    block
        Valid samples.
    schema
        Their variables.
    """

    def __init__(self, block: SparseBlock, schema: Schema) -> None:
        n_blocks = max(1, min(MAX_BLOCKS, block.n_observed // BLOCK_CELLS, block.n_rows))
        ends = [number * block.n_rows // n_blocks for number in range(n_blocks + 1)]
        parts = [block.cut(start, stop) for start, stop in pairwise(ends)]
        self._whole, self._blocks = block, [merge_duplicates(part) for part in parts]
        self.schema = schema

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return self._whole.n_observed

    def digest(self) -> str:
        """SHA-256 of the samples and their weights, in hexadecimal."""
        whole = self._whole
        total = hashlib.sha256(whole.indptr.astype(np.int64).tobytes())
        total.update(whole.indices.astype(np.int32).tobytes())
        if whole.weights is not None:
            total.update(whole.weights.tobytes())
        return total.hexdigest()

    def count(self) -> LevelCounts:
        """Count the levels; a row of a weight counts for so many samples."""
        return count_group([self._whole], self.schema.n_levels, self.schema.offsets)

    def run_pass(self, model: PassModel) -> TraitSums:
        """Statistics of all samples, by several threads."""
        if len(self._blocks) == 1:
            return add_blocks(self._blocks, model)
        with ThreadPoolExecutor(count_processors()) as pool:
            return TraitSums.merge(
                list(pool.map(lambda block: add_blocks([block], model), self._blocks))
            )

    def draw(self, n_people: int, counts: LevelCounts, seed: int) -> SparseBlock:
        """So many people who have anything observed; a row of a weight is one of them here."""
        n_known = int(np.count_nonzero(np.diff(self._whole.indptr)))
        draw = Draw.plan(n_people, n_known, seed)
        return draw.take(self._whole, 0, self.schema.offsets).block


class StoredTraitSamples:
    """Samples in a store, mapped over by workers: the same bits with any number of them, and without any.

    Parameters
    ----------
    samples
        Where they are, and who works on them.
    """

    def __init__(self, samples: StoredSamples) -> None:
        self._samples = samples
        self.schema = samples.schema

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return self._samples.n_observed

    def digest(self) -> str:
        """SHA-256 of the places of the blocks, in hexadecimal; no block is read."""
        return self._samples.digest()

    def count(self) -> LevelCounts:
        """Count the levels, and load the blocks that are kept."""
        shared = self.schema.n_levels, self.schema.offsets
        return self._samples.map_groups(count_group, merge_counts, *shared, name="count")

    def run_pass(self, model: PassModel) -> TraitSums:
        """Statistics of all samples."""
        size = count_sum_bytes(model.scores, model.n_traits)
        return self._samples.map_groups(
            add_group, TraitSums.merge, model, result_bytes=size, name="pass"
        )

    def draw(self, n_people: int, counts: LevelCounts, seed: int) -> SparseBlock:
        """So many people who have anything observed; the blocks are read, and few rows of each are kept."""
        offsets = self.schema.offsets
        draw = Draw.plan(n_people, round(counts.n_people), seed)
        groups = group_blocks(self._samples.blocks)
        if not groups:
            return NOBODY
        ends = np.cumsum([0, *(sum(block.n_rows for block in group) for group in groups)])
        drawn: DrawnPeople = run_blocks(
            self._samples.client,
            draw_from_group,
            list(zip(groups, ends.tolist(), strict=False)),
            partial(draw.merge, offsets=offsets),
            draw,
            offsets,
            costs=[weigh_blocks(group) for group in groups],
            name="draw",
        )
        return drawn.block


def count_group(group: BlockGroup, n_levels: int, offsets: IntArray) -> LevelCounts:
    """Count the levels of a group of blocks."""
    counts = [LevelCounts(np.zeros(n_levels), 0.0)]
    for part in cut_blocks(iterate_distinct(group), offsets):
        lengths = np.diff(part.indptr)
        weights = np.ones(part.n_rows) if part.weights is None else part.weights
        levels = np.bincount(part.indices, np.repeat(weights, lengths), n_levels)
        people = float(weights[lengths > 0].sum())
        counts = [merge_counts([*counts, LevelCounts(levels.astype(np.float64), people)])]
    return counts[0]


def merge_counts(parts: Sequence[LevelCounts]) -> LevelCounts:
    """Sum of counts, at least one."""
    levels, people = zip(*parts, strict=True)
    return LevelCounts(np.sum(levels, axis=0), sum(people))


def add_group(group: BlockGroup, model: PassModel) -> TraitSums:
    """Statistics of a group of blocks."""
    return add_blocks(iterate_distinct(group), model)


def draw_from_group(
    item: tuple[Sequence[BlockReference], int], draw: Draw, offsets: IntArray
) -> DrawnPeople:
    """Draw people from a group of blocks, the first of whom has a place."""
    group, first = item
    parts = [draw.take(NOBODY, 0, offsets)]
    for block in read_blocks(group):
        parts.append(draw.take(block, first, offsets))
        first += block.n_rows
    return draw.merge(parts, offsets)
