"""Memory that the stages of a pipeline plan for, in a worker and in the client."""

from __future__ import annotations

from pmflib.config import PipelineConfig
from pmflib.counting.counting_tasks import choose_runs
from pmflib.counting.memory import plan_counting
from pmflib.em.memory import plan_em
from pmflib.running.worker_memory import PlanWorker
from pmflib.schema import Schema


def list_plans(
    config: PipelineConfig, schema: Schema, n_threads: int, rank: int | None = None
) -> list[PlanWorker]:
    """Plans of counting and of EM, by the number of threads of a worker.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Threads of all workers together, at least 1.
    rank
        Number of latent states where the pipeline leaves it to be chosen; None where that is not known, and EM is left
        out.
    """
    n_levels = schema.n_levels
    n_runs = choose_runs(config.store.folds, n_threads)
    plans: list[PlanWorker] = [lambda n: plan_counting(n_levels, n, n_runs)]
    known = rank if config.model.rank == "auto" else config.model.rank
    if known is not None:
        n_states, n_models = known, config.em.members
        plans.append(lambda n: plan_em(n_levels, n_states, n, n_models))
    return plans
