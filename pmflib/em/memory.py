"""Memory requirements of passes over samples, computed in advance from the numbers each family provides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import TaskPlan, plan_tasks
from pmflib.model.row_tables import MAX_TABLE_BYTES
from pmflib.store.sample_blocks import BLOCK_BYTES, TARGET_GROUPS


@dataclass(frozen=True)
class PassMemory:
    """Memory that passes of a model family need besides the samples, in bytes by purpose.

    Parameters
    ----------
    stage, remedy
        As for `MemoryPlan`.
    statistics
        Description and size of the statistics that each thread computes and merges.
    worker
        Memory per worker, independent of its task.
    thread
        Memory per thread.
    rows
        Memory per thread for the rows of a block.
    client
        Memory of the client.
    """

    stage: str
    remedy: str
    statistics: tuple[str, int]
    worker: Mapping[str, int] = field(default_factory=dict)
    thread: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    client: Mapping[str, int] = field(default_factory=dict)

    def plan(self, n_threads: int, n_waiting: int) -> MemoryPlan:
        """Plan the memory of passes without the samples, which are read again in each pass if they do not fit.

        Parameters
        ----------
        n_threads
            Number of threads per worker.
        n_waiting
            Largest number of statistics that a task holds at once: `TaskPlan.n_waiting` of a pass.
        """
        what, size = self.statistics
        parts = {
            **self.worker,
            f"{what}, up to {n_waiting} merged per thread": n_threads * n_waiting * size,
            **{purpose: n_threads * n_bytes for purpose, n_bytes in self.thread.items()},
            "sample blocks": n_threads * (4 * BLOCK_BYTES + self.rows),
        }
        return MemoryPlan(self.stage, parts, self.remedy, dict(self.client))


def plan_em(
    n_levels: int,
    rank: int,
    n_threads: int,
    n_models: int = 1,
    *,
    n_waiting: int = 10,
) -> MemoryPlan:
    """Plan the memory of EM passes for latent classes.

    Parameters
    ----------
    n_levels, rank
        Number of levels, and rank of the model.
    n_threads, n_waiting
        As for `PassMemory.plan`.
    n_models
        Number of models fitted side by side; they need as much memory as one model of their summed rank.
    """
    table = 8 * n_levels * rank * n_models
    several = f"{n_models} models of " if n_models > 1 else ""
    parameters = f"parameters of {several}{n_levels} levels x rank {rank}"
    copies = n_threads + 2
    return PassMemory(
        "EM",
        "Lower the rank, merge levels, use fewer threads, or raise cluster.memory_limit.",
        ("sufficient statistics", table),
        worker={f"{parameters}, and their logarithms for every thread": copies * table},
        thread={"scaled tables of every thread": 4 * table + 2 * MAX_TABLE_BYTES},
        client={f"{parameters}, before and after a pass": 10 * table},
    ).plan(n_threads, n_waiting)


LEAST_RUN = 1 << 27
"""Minimum number of observed cells per task if there are more than `TARGET_GROUPS` tasks: about a quarter of a second
of a pass at rank 20. Held-out sets are small, and submitting more tasks would cost more time than it saves.
"""


def choose_tasks(costs: Sequence[int], n_threads: int) -> int:
    """Choose the number of tasks for groups with these costs (as for `plan_pass`), at most one per thread.

    The groups, and therefore the bits of the result, do not change.
    """
    return max(1, min(n_threads, max(TARGET_GROUPS, sum(costs) // LEAST_RUN)))


def plan_pass(
    costs: Sequence[int], n_threads: int, n_levels: int, rank: int, n_models: int = 1
) -> TaskPlan:
    """Plan the tasks of a pass under models of equal rank; `choose_tasks` gives their number.

    Parameters
    ----------
    costs
        Cost of each group of blocks, from `pmflib.store.sample_blocks.weigh_blocks`; if there are no blocks yet, equal
        costs for the number of groups given by `pmflib.store.sample_blocks.count_groups`.
    n_threads, n_levels, rank
        Number of threads, levels of all variables, and latent states of each model.
    n_models
        Number of models per pass, at least 1.

    Returns
    -------
    Tasks for each share of the models, as given by `share_models`.
    """
    step = share_models(len(costs), n_threads, n_models)
    return plan_tasks(
        costs or [0], choose_tasks(costs, n_threads), 8 * step * rank * (n_levels + 1)
    )


def share_models(n_groups: int, n_threads: int, n_models: int) -> int:
    """Return the number of models that a task evaluates per block, chosen to keep all threads busy with few tasks.

    Parameters
    ----------
    n_groups, n_threads, n_models
        Numbers of groups of blocks, threads, and models per pass, at least 1.
    """
    return -(-n_models // min(-(-n_threads // max(1, n_groups)), n_models))
