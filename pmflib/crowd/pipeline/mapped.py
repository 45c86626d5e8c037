"""Passes over a label log in a store: a map over groups of its blocks each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from pmflib.arrays import FloatArray
from pmflib.counting.worker_pair_counts import WorkerPairCounts
from pmflib.crowd.passes import Evaluate
from pmflib.crowd.pipeline.block_groups import (
    count_group_meetings,
    count_groups,
    evaluate_group,
    load_voted,
)
from pmflib.em.statistics import EMStatistics
from pmflib.running.clients import Client, count_threads
from pmflib.running.grouping import COUNTING_COARSENESS
from pmflib.running.maps import keep_loaded, map_items, run_blocks
from pmflib.running.worker_messages import listen_to_counts
from pmflib.store.sample_blocks import BlockReference

Groups: TypeAlias = Sequence[Sequence[BlockReference]]
"""Blocks that are worked on together, a Dask task each."""


def evaluate_stored(
    client: Client, groups: Groups, n_workers: int, n_classes: int, spare: int
) -> Evaluate:
    """Statistics of all tasks as a map over groups of blocks.

    Parameters
    ----------
    client
        Dask client, or None.
    groups
        Where the answers are.
    n_workers, n_classes
        Sizes.
    spare
        Bytes: answers are kept in the workers' memory where they take no more, and else read again in every pass.
    """
    blocks = [block for group in groups for block in group]
    # the stratum of every task, and at worst a tally of its votes and a stratum of its own
    beside = (12 + 8 * n_classes) * sum(block.n_rows for block in blocks)
    fits = beside + sum(block.nbytes for block in blocks) <= spare
    load = partial(load_voted, n_workers=n_workers, n_classes=n_classes)
    items = keep_loaded(client, load, groups) if fits else groups

    def evaluate(log_prior: FloatArray, weights: FloatArray, gains: FloatArray) -> EMStatistics:
        if not items:
            return EMStatistics.zero(len(weights), log_prior.size)
        return run_blocks(
            client, evaluate_group, items, EMStatistics.merge, n_classes, log_prior, weights, gains
        )

    return evaluate


def join_groups(groups: Groups, n_threads: int) -> Groups:
    """Put groups together to be counted: a merge takes as long as many answers do, but all threads must work."""
    n_joined = max(1, min(COUNTING_COARSENESS, len(groups) // n_threads))
    return [
        [block for group in groups[start : start + n_joined] for block in group]
        for start in range(0, len(groups), n_joined)
    ]


def count_stored(
    client: Client,
    groups: Groups,
    n_workers: int,
    n_classes: int,
    on_tasks: Callable[[int], None],
) -> WorkerPairCounts:
    """Pairs of workers of all tasks: the same bits whoever counts which group, for integers add up.

    Parameters
    ----------
    client, n_workers, n_classes
        As for `evaluate_stored`.
    groups
        Where the answers are, as from `join_groups`.
    on_tasks
        Called with numbers of tasks that were counted: progress.
    """
    # a thread holds the counts of all that it counts, once
    n_threads = count_threads(client)
    shares = [groups[place::n_threads] for place in range(min(n_threads, len(groups)))]
    if not shares:
        return WorkerPairCounts.zero(n_workers, n_classes)
    with listen_to_counts(client, on_tasks) as topic:
        return run_blocks(
            client, count_groups, shares, WorkerPairCounts.merge, n_workers, n_classes, topic
        )


def count_stored_meetings(client: Client, groups: Groups, n_workers: int, n_classes: int) -> int:
    """Pairs of answers to the same task, in one quick pass over all tasks."""
    return sum(map_items(client, count_group_meetings, groups, n_workers, n_classes))
