"""Memory that the stages of a pipeline plan for: in a worker, and in the client."""

from __future__ import annotations

from pmflib.config import PipelineConfig
from pmflib.counting.memory import plan_counting
from pmflib.em.memory import plan_em
from pmflib.running.memory_plan import MemoryPlan
from pmflib.schema import Schema

USED_SHARE = 0.7
"""Share of a worker's memory that plans may use: the rest is for Python, connections and what is under way."""


def plan_process(
    config: PipelineConfig, schema: Schema, n_threads: int, rank: int | None = None
) -> tuple[MemoryPlan, ...]:
    """Plans of counting and of EM for a process.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Threads that work there; 0 for the client of a cluster, which merges what workers have made.
    rank
        Number of latent states where the pipeline leaves it to be chosen; None where that is not known, and EM is left
        out.
    """
    plans = [plan_counting(schema.n_levels, n_threads)]
    known = rank if config.model.rank == "auto" else config.model.rank
    if known is not None:
        plans.append(plan_em(schema.n_levels, known, n_threads, config.em.members))
    return tuple(plans)


def limit_worker(memory_limit: int, container_limit: int, memory_total: int) -> int:
    """Bytes that plans may use in a worker.

    Parameters
    ----------
    memory_limit, container_limit, memory_total
        Bytes: the limit that Dask sets on the process, that of its container, and what the machine has; 0 for no limit.
    """
    limits = [limit for limit in (memory_limit, container_limit, memory_total) if limit > 0]
    return int(USED_SHARE * min(limits, default=0))
