"""Memory of counting the pairs of stored samples."""

from __future__ import annotations

from pmflib.running.maps import FAN_IN
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.sample_blocks import BLOCK_BYTES


def plan_counting(n_levels: int, n_threads: int) -> MemoryPlan:
    """Memory of counting pairs: independent of the number of samples."""
    table = 8 * n_levels * n_levels
    return MemoryPlan(
        "counting pairs",
        {
            # a kernel adds int32 sums, half a table, up beside its table
            f"count tables of {n_levels} x {n_levels} levels, one per thread": n_threads
            * table
            * 3
            // 2,
            f"count tables waiting to be merged, {FAN_IN} at a time": (FAN_IN + 2) * table,
            "sample blocks, bit planes and tiles": n_threads * (6 * BLOCK_BYTES + 2048 * n_levels),
        },
        "Leave variables out of the schema, merge levels, use fewer threads, or raise cluster.memory_limit.",
    )
