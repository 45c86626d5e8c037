"""Tasks of counting pairs fold by fold, for so many threads: for the stage itself, and for whoever plans one."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.running.grouping import COUNTING_COARSENESS, group_blocks, weigh_blocks
from pmflib.running.task_plans import TaskPlan, plan_tasks
from pmflib.store.sample_blocks import BlockReference

BUSY_SHARE = 0.9
"""Share of the time that all threads are to work, at least, were all runs of blocks equal."""
FOLDS_AHEAD = 4
"""Folds under way at a time, at least: a table that waits to be written takes as much memory as one being counted."""
AHEAD_BYTES = 8 << 20
"""Size of the tables of the folds under way at a time, bytes, up to which there are as many folds as there can be."""


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


def count_folds_ahead(n_folds: int, n_threads: int, n_levels: int) -> int:
    """Number of folds under way at a time: all where tables are small, else as many as keep threads busy, and one more.

    Those that are under way together take few messages, and no thread waits between one fold and the next.

    Parameters
    ----------
    n_folds, n_threads
        As for `choose_runs`.
    n_levels
        Levels of all variables.
    """
    busy = 1 + -(-n_threads // choose_runs(n_folds, n_threads))
    return min(n_folds, max(FOLDS_AHEAD + count_small_tables(n_levels), busy))


def count_small_tables(n_levels: int) -> int:
    """Number of tables of so many levels that may wait to be written, besides ``FOLDS_AHEAD``; 0 of large ones."""
    return max(0, AHEAD_BYTES // (8 * max(n_levels, 1) ** 2) - FOLDS_AHEAD)


def plan_fold_runs(costs: Sequence[int], n_groups: int, n_folds: int, n_threads: int) -> TaskPlan:
    """Cut the blocks of a fold into runs; each is counted into one table, by one task.

    Tables hold whole numbers, so that their sum has the same bits wherever runs are cut: between any two blocks, for
    the sake of runs that are alike, and not between groups, which are as large as tasks must be to be worth while.

    Parameters
    ----------
    costs
        Cost of each block of the fold, at least one, as `pmflib.running.grouping.weigh_blocks` has it.
    n_groups
        Groups that `pmflib.running.grouping.group_blocks` makes of them to count: there are no more runs.
    n_folds, n_threads
        As for `choose_runs`.

    Returns
    -------
    A plan of which only the runs are used: see `plan_fold_merges`.
    """
    return plan_tasks(costs, min(n_groups, choose_runs(n_folds, n_threads)))


def cut_fold(
    blocks: Sequence[BlockReference], n_folds: int, n_threads: int
) -> list[list[BlockReference]]:
    """Cut the blocks of a fold, at least one, into runs as `plan_fold_runs` plans them."""
    n_groups = len(group_blocks(blocks, COUNTING_COARSENESS))
    plan = plan_fold_runs([weigh_blocks([each]) for each in blocks], n_groups, n_folds, n_threads)
    return [list(blocks[start:stop]) for start, stop in plan.runs]


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
