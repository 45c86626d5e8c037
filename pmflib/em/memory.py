"""Memory of EM, computed before it runs."""

from __future__ import annotations

from pmflib.em.row_tables import MAX_TABLE_BYTES
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.sample_blocks import BLOCK_BYTES


def plan_em(
    n_levels: int,
    rank: int,
    n_threads: int,
    n_models: int = 1,
    *,
    n_held: int = 10,
    n_runs: int = 1,
) -> MemoryPlan:
    """Plan the memory of EM passes, without the samples: these are read again in each pass where they do not fit.

    Parameters
    ----------
    n_levels, rank
        Sizes.
    n_threads
        Threads of a worker.
    n_models
        Number of models that run side by side: they take as much as one of their summed rank.
    n_held
        Most sufficient statistics that a task holds at once: `TaskPlan.n_held` of a pass.
    n_runs
        Independent runs side by side: a thread works for one of them, and holds what it has made for the others.
    """
    table = 8 * n_levels * rank * n_models
    several = f"{n_models} models of " if n_models > 1 else ""
    parameters = f"parameters of {several}{n_levels} levels x rank {rank}"
    return MemoryPlan(
        "EM",
        {
            f"{parameters}, and their logarithms for every thread": (n_threads + 2 * n_runs)
            * table,
            f"sufficient statistics, up to {n_held + n_runs - 1} to merge by each thread": n_threads
            * (n_held + n_runs - 1)
            * table,
            "scaled tables of every thread": n_threads * (4 * table + 2 * MAX_TABLE_BYTES),
            "sample blocks": n_threads * 4 * BLOCK_BYTES,
        },
        "Lower the rank, merge levels, use fewer threads, or raise cluster.memory_limit.",
        {f"{parameters}, before and after a pass": 10 * n_runs * table},
    )
