"""Samples for latent classes with forests, in memory or stored, and the memory that passes take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmflib.cluster.memory import MemoryPlan
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import DenseBlock, split_block
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.blocks import ScoreRows, merge_duplicates
from pmflib.em.memory import PassMemory
from pmflib.model.forests.statistics import (
    TreeParameters,
    TreePasses,
    TreeStatistics,
    fill_below,
    measure_stars,
)
from pmflib.store.sample_blocks import BlockGroup

PAIR_BYTES = 1 << 25
"""Size of the counts of pairs that a pass over stored samples makes at a time, bytes; those of one state may be larger:
each thread holds several."""
SEARCH_BYTES = 1 << 28
"""Size of those that a pass over samples in memory makes at a time, bytes."""


def load_samples(
    samples: IntArray | DenseBlock, offsets: IntArray, rank: int, target: int | None = None
) -> BlocksInMemory:
    """Cut samples into blocks of distinct rows for forests; arguments are as for `BlocksInMemory.cut`."""
    given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
    whole = merge_duplicates(replace(given, codes=np.ascontiguousarray(given.codes)))
    work = given.codes.shape[1] * whole.n_rows * rank
    n_blocks = max(1, min(MAX_BLOCKS, work // BLOCK_WORK, whole.n_rows))
    blocks = split_block(whole, n_blocks)
    return BlocksInMemory(blocks, offsets, target, n_observed=given.n_observed)


def add_up(source: BlockSource, parameters: TreeParameters) -> TreeStatistics:
    """Sufficient statistics of all samples under a model."""
    n_bytes = 8 * (parameters.forest.n_entries + parameters.prior.size)
    return source.map_blocks(
        add_up_group, TreeStatistics.merge, parameters, result_bytes=n_bytes, name="pass"
    )


def count_pairs(
    source: BlockSource, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Posterior-weighted counts of all pairs, symmetric, for some states: (n_states, n_levels, n_levels)."""
    n_bytes = 8 * n_states * int(source.offsets[-1]) ** 2
    shared = parameters, first, n_states
    mass = source.map_in_turn(
        count_pairs_by_state, add_tables, *shared, result_bytes=n_bytes, name="pairs"
    )
    fill_below(mass)
    return mass


def choose_states(n_levels: int, *, in_memory: bool = False) -> int:
    """Number of states whose pairs are counted in one pass; bits do not depend on it."""
    return max(1, (SEARCH_BYTES if in_memory else PAIR_BYTES) // (8 * n_levels**2))


def are_modest(offsets: IntArray, rank: int) -> bool:
    """Whether forests may be tried without being asked for: the choice must not depend on the memory of a machine."""
    return find_largest(offsets, rank) <= PAIR_BYTES


def find_largest(offsets: IntArray, rank: int) -> int:
    """Size of the larger of a forest's tables and of the counts of a state's pairs, bytes, whatever the forest."""
    return max(measure_tables(offsets, rank), 8 * int(offsets[-1]) ** 2)


def measure_tables(offsets: IntArray, rank: int) -> int:
    """Largest size of the tables of forests: every variable may have the parent of most levels."""
    return 8 * rank * int(offsets[-1]) * int(np.diff(offsets).max())


def plan_trees(
    offsets: IntArray, rank: int, n_threads: int, n_models: int = 1, *, n_waiting: int = 10
) -> MemoryPlan:
    """Plan the memory of passes with forests over stored samples.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Latent states of a model.
    n_threads
        Threads of a worker.
    n_models
        Models whose average is evaluated.
    n_waiting
        Most results that a task holds at once: `TaskPlan.n_waiting` of a pass.
    """
    n_levels, table = int(offsets[-1]), measure_tables(offsets, rank)
    pairs = 8 * min(rank, choose_states(n_levels)) * n_levels**2
    parameters = f"tables of forests of {n_levels} levels x rank {rank}"
    return PassMemory(
        "EM with forests",
        "Merge levels, lower the rank, use fewer threads, raise cluster.memory_limit, or leave out the dependence.",
        (
            f"sufficient statistics, or counts of pairs of {n_levels} levels",
            max(table, pairs),
        ),
        thread={
            f"{parameters}, and by stars, for every thread": n_models
            * (3 * table + measure_stars(offsets, rank))
        },
        client={
            f"{parameters}, before and after a pass": 10 * n_models * table,
            # counts, what is expected, and what the comparison of the two takes
            f"counts of all pairs of {n_levels} levels": 10 * 8 * n_levels**2
            + max(2 * pairs, SEARCH_BYTES),
        },
    ).plan(n_threads, n_waiting)


BLOCK_WORK = 5_000_000
"""Cells times rank in a block in memory, about: some milliseconds of work, which is worth a thread."""


def add_up_group(group: BlockGroup, parameters: TreeParameters) -> TreeStatistics:
    """Sufficient statistics of a group of blocks under a model."""
    passes = TreePasses(parameters)
    return TreeStatistics.merge([passes.add_up(block) for block in iterate_distinct(group)])


def score_under_forests(parameters: TreeParameters, _: IntArray) -> ScoreRows:
    """Scores of rows under a model with forests; its logarithms are taken once."""
    return TreePasses(parameters).score


def count_pairs_by_state(
    group: BlockGroup, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Posterior-weighted counts of the pairs of a group: (n_states, n_levels, n_levels), the upper triangle."""
    passes = TreePasses(parameters)
    n_levels = int(parameters.forest.offsets[-1])
    mass = np.zeros((n_states, n_levels, n_levels))
    for block in iterate_distinct(group):
        passes.add_pairs(block, first, mass)
    return mass


def add_tables(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum of tables, at least one, in the order given; no more than one is made."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
