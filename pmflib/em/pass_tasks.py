"""Tasks of an EM pass over stored samples, for so many threads: for the pass itself, and for whoever plans one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.running.grouping import WANTED_GROUPS
from pmflib.running.task_plans import TaskPlan, plan_tasks

SIDE_BY_SIDE = 2
"""Runs of EM side by side on many threads: between the passes of one, those of the other fill the threads."""
SIDE_THREADS = 32
"""Threads from which on it is worth while: so many tasks are handed out in the time of the merges and of the update;
fewer threads are busy with the tasks of one run, and a second one would only take memory."""


@dataclass(frozen=True)
class PassPlan:
    """Tasks of a pass under several models of one rank.

    Parameters
    ----------
    tasks
        Tasks of each share of the models.
    models_per_share
        Models that a task works on, one after the other, for each block that it reads; the last share may have fewer.
    n_shares
        Number of shares; above 1 where there are fewer groups than threads.
    model_bytes
        Size of the parameters of a model, and of its sufficient statistics, which are as large.
    """

    tasks: TaskPlan
    models_per_share: int
    n_shares: int
    model_bytes: int

    @property
    def n_tasks(self) -> int:
        """Number of tasks of a pass: runs of groups, merges, and those that hold the parameters."""
        return self.n_shares * self.tasks.n_tasks

    @property
    def bytes_sent(self) -> int:
        """Bytes that travel between workers, at most: parameters to tasks, and statistics to those that merge them."""
        each = self.tasks.n_runs + self.tasks.n_copies + self.tasks.n_values_sent
        return self.n_shares * each * self.models_per_share * self.model_bytes


LEAST_RUN = 1 << 27
"""Observed cells of a task at least, where there are more than `WANTED_GROUPS` tasks: about a quarter of a second of a
pass of rank 20. Held-out samples are few, and more tasks take longer to be handed out than they save."""


def choose_tasks(costs: Sequence[int], n_threads: int) -> int:
    """Choose how many tasks there are to be for groups of such costs, as for `plan_pass`, at most one for each thread.

    Groups, and with them the bits of the result, stay as they are.
    """
    return max(1, min(n_threads, max(WANTED_GROUPS, sum(costs) // LEAST_RUN)))


def choose_side_by_side(n_threads: int) -> int:
    """Choose how many independent runs of EM are under way at a time on so many threads; their bits do not change."""
    return SIDE_BY_SIDE if n_threads >= SIDE_THREADS else 1


def plan_pass(
    costs: Sequence[int], n_threads: int, n_levels: int, rank: int, n_models: int = 1
) -> PassPlan:
    """Plan the tasks of a pass: as many as `choose_tasks` says, where there are as many groups.

    Parameters
    ----------
    costs
        Cost of each group of blocks, as `pmflib.running.grouping.weigh_blocks` has it; equal ones of as many groups as
        `pmflib.running.grouping.count_groups` says, where there are no blocks yet.
    n_threads, n_levels, rank
        Threads that work, levels of all variables, and latent states of each model.
    n_models
        Models that a pass is made for, at least 1.
    """
    n_groups = max(1, len(costs))
    step = -(-n_models // min(-(-n_threads // n_groups), n_models))
    model_bytes = 8 * rank * (n_levels + 1)
    n_shares = -(-n_models // step)
    tasks = plan_tasks(costs or [0], choose_tasks(costs, n_threads), step * model_bytes)
    return PassPlan(tasks, step, n_shares, model_bytes)
