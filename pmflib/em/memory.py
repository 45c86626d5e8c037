"""Memory of passes over samples, computed before they run: each family of models contributes its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import TaskPlan, plan_tasks
from pmflib.model.row_tables import MAX_TABLE_BYTES
from pmflib.store.sample_blocks import BLOCK_BYTES, TARGET_GROUPS


@dataclass(frozen=True)
class PassMemory:
    """What passes of a family of models hold besides the samples, bytes by purpose.

    Parameters
    ----------
    stage, remedy
        As for `MemoryPlan`.
    statistics
        What a thread makes of its part of the samples and merges with that of others, and its size.
    worker
        What a worker holds, whatever it works on.
    thread
        What each of its threads holds.
    rows
        What a thread makes of the rows of a block.
    client
        What the client holds.
    """

    stage: str
    remedy: str
    statistics: tuple[str, int]
    worker: Mapping[str, int] = field(default_factory=dict)
    thread: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    client: Mapping[str, int] = field(default_factory=dict)

    def plan(self, n_threads: int, n_waiting: int) -> MemoryPlan:
        """Plan passes, without the samples: these are read again in each pass where they do not fit.

        Parameters
        ----------
        n_threads
            Threads of a worker.
        n_waiting
            Most sufficient statistics that a task holds at once: `TaskPlan.n_waiting` of a pass.
        """
        what, size = self.statistics
        parts = {
            **self.worker,
            f"{what}, up to {n_waiting} to merge by each thread": n_threads * n_waiting * size,
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
    """Plan the memory of EM passes of latent classes.

    Parameters
    ----------
    n_levels, rank
        Sizes.
    n_threads, n_waiting
        As for `PassMemory.plan`.
    n_models
        Number of models that run side by side: they take as much as one of their summed rank.
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
"""Observed cells of a task at least, where there are more than `TARGET_GROUPS` tasks: about a quarter of a second of a
pass of rank 20. Held-out samples are few, and more tasks take longer to be submitted than they save."""


def choose_tasks(costs: Sequence[int], n_threads: int) -> int:
    """Choose how many tasks there are to be for groups of such costs, as for `plan_pass`, at most one for each thread.

    Groups, and with them the bits of the result, stay as they are.
    """
    return max(1, min(n_threads, max(TARGET_GROUPS, sum(costs) // LEAST_RUN)))


def plan_pass(
    costs: Sequence[int], n_threads: int, n_levels: int, rank: int, n_models: int = 1
) -> TaskPlan:
    """Plan the tasks of a pass under models of one rank, as many as `choose_tasks` says where there are enough groups.

    Parameters
    ----------
    costs
        Cost of each group of blocks, as `pmflib.store.sample_blocks.weigh_blocks` has it; where there are no blocks
        yet, equal ones of as many groups as `pmflib.store.sample_blocks.count_groups` says.
    n_threads, n_levels, rank
        Threads that work, levels of all variables, and latent states of each model.
    n_models
        Models that a pass is made for, at least 1.

    Returns
    -------
    Tasks of each share of the models, as `share_models` has them.
    """
    step = share_models(len(costs), n_threads, n_models)
    return plan_tasks(
        costs or [0], choose_tasks(costs, n_threads), 8 * step * rank * (n_levels + 1)
    )


def share_models(n_groups: int, n_threads: int, n_models: int) -> int:
    """Models that a task works on for each block, so that there are no more tasks than keep all threads busy.

    Parameters
    ----------
    n_groups, n_threads, n_models
        Groups of blocks, threads, and models of a pass, at least 1.
    """
    return -(-n_models // min(-(-n_threads // max(1, n_groups)), n_models))
