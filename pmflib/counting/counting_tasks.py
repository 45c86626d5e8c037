"""Tasks of counting pairs fold by fold, for so many threads: for the stage itself, and for whoever plans one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pmflib.running.task_plans import TaskPlan, plan_tasks

T = TypeVar("T")

BUSY_SHARE = 0.9
"""Share of the time that all threads are to work, at least, were all runs of blocks equal."""
FOLDS_AHEAD = 4
"""Folds under way at a time, at least: a table that waits to be written takes as much memory as one being counted."""


def choose_runs(n_folds: int, n_threads: int) -> int:
    """Choose in how many runs of blocks each fold is counted, each of them by a task, into one table.

    As few as keep the threads busy: every run makes a table, which is sent to be merged.

    Parameters
    ----------
    n_folds
        Number of folds to count, at least 1.
    n_threads
        Threads that count.
    """
    n_runs = max(1, n_threads // n_folds)
    while n_runs * n_folds < BUSY_SHARE * n_threads * -(-n_runs * n_folds // n_threads):
        n_runs += 1
    return n_runs


def count_folds_ahead(n_folds: int, n_threads: int) -> int:
    """Number of folds under way at a time: as many as keep the threads busy, and one more."""
    return max(FOLDS_AHEAD, 1 + -(-n_threads // choose_runs(n_folds, n_threads)))


def plan_fold_runs(costs: Sequence[int], n_folds: int, n_threads: int) -> TaskPlan:
    """Cut the groups of a fold into runs; each is counted into one table.

    Parameters
    ----------
    costs
        Cost of each group of the fold, at least one, as `pmflib.running.grouping.weigh_blocks` has it.
    n_folds, n_threads
        As for `choose_runs`.

    Returns
    -------
    A plan of which only the runs are used: see `plan_fold_merges`.
    """
    return plan_tasks(costs, choose_runs(n_folds, n_threads))


def join_runs(groups: Sequence[Sequence[T]], plan: TaskPlan) -> list[list[T]]:
    """Put the groups of each run together: what a task counts into one table."""
    return [[item for group in groups[start:stop] for item in group] for start, stop in plan.runs]


def plan_fold_merges(n_runs: int, n_levels: int) -> TaskPlan:
    """Plan the tasks of a fold: one for each run, and those that merge the tables.

    Parameters
    ----------
    n_runs
        Number of runs of the fold, at least 1.
    n_levels
        Levels of all variables: a table takes 8 bytes for each pair of them.
    """
    return plan_tasks([1] * n_runs, n_runs, 8 * n_levels**2)
