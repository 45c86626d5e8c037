"""Memory of EM with forests, computed before it runs."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import IntArray
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.sample_blocks import BLOCK_BYTES
from pmflib.trees.tree_samples import PAIR_BYTES as SEARCH_BYTES

PAIR_BYTES = 1 << 25
"""Size of the counts of pairs that a pass over stored samples makes at a time, bytes; those of one state may be larger:
each thread holds several."""


def choose_states(n_levels: int) -> int:
    """Number of states whose pairs are counted in one pass over stored samples; bits do not depend on it."""
    return max(1, PAIR_BYTES // (8 * n_levels**2))


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
    offsets: IntArray, rank: int, n_threads: int, n_models: int = 1, *, n_held: int = 10
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
        Models whose average judges.
    n_held
        Most results that a task holds at once: `TaskPlan.n_held` of a pass.
    """
    n_levels, table = int(offsets[-1]), measure_tables(offsets, rank)
    pairs = 8 * min(rank, choose_states(n_levels)) * n_levels**2
    parameters = f"tables of forests of {n_levels} levels x rank {rank}"
    return MemoryPlan(
        "EM with forests",
        {
            f"{parameters}, and their logarithms, for every thread": n_threads
            * 3
            * n_models
            * table,
            f"sufficient statistics, or counts of pairs of {n_levels} levels, up to {n_held} to merge by each "
            "thread": n_threads * n_held * max(table, pairs),
            "sample blocks": n_threads * 4 * BLOCK_BYTES,
        },
        "Merge levels, lower the rank, use fewer threads, raise cluster.memory_limit, or leave out the dependence.",
        {
            f"{parameters}, before and after a pass": 10 * n_models * table,
            # counts, what is expected, and what the comparison of the two takes
            f"counts of all pairs of {n_levels} levels": 10 * 8 * n_levels**2
            + max(2 * pairs, SEARCH_BYTES),
        },
    )
