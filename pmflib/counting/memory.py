"""Memory of counting the pairs of stored samples."""

from __future__ import annotations

from pmflib.counting.counting_tasks import count_small_tables, plan_fold_merges
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.sample_blocks import BLOCK_BYTES


def plan_counting(n_levels: int, n_threads: int, n_runs: int = 1, n_tables: int = 0) -> MemoryPlan:
    """Memory of counting pairs: independent of the number of samples.

    Parameters
    ----------
    n_levels
        Levels of all variables.
    n_threads
        Threads of a worker.
    n_runs
        Runs of blocks that each fold is counted in, a table each, as `choose_runs` has them.
    n_tables
        Tables that the client keeps, besides the one that it writes.
    """
    table = 8 * n_levels * n_levels
    n_held = plan_fold_merges(n_runs, n_levels).n_held
    kept = {f"count tables of {n_tables} folds": n_tables * table} if n_tables else {}
    return MemoryPlan(
        "counting pairs",
        {
            # a kernel adds int32 sums, half a table, up beside its table
            f"count tables of {n_levels} x {n_levels} levels, one per thread": n_threads
            * table
            * 3
            // 2,
            f"count tables waiting to be merged, up to {n_held} at a time": (n_threads + n_held)
            * table,
            "count tables waiting to be written": count_small_tables(n_levels) * table,
            "sample blocks, bit planes and tiles": n_threads * (6 * BLOCK_BYTES + 2048 * n_levels),
        },
        "Leave variables out of the schema, merge levels, use fewer threads, or raise cluster.memory_limit.",
        # as it comes, and its cells that are not zero
        {f"count table of {n_levels} x {n_levels} levels as it is written": 3 * table} | kept,
    )
